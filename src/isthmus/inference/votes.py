"""Class probabilities of several draws by mean logits or by votes, and whether votes leave the class open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor


def find_undecided(draws: int, level: float) -> NDArray[np.bool_]:
    """Whether n_a against n_b votes leave the likelier class open: [draws + 1, draws + 1], n_a >= n_b.

    p = 2 · P[Bin(n_a + n_b, ½) ≤ n_b] > level
    """
    from scipy.special import bdtr

    first, second = np.meshgrid(np.arange(draws + 1), np.arange(draws + 1), indexing="ij")
    both = np.maximum(first + second, 1)
    return np.asarray(np.minimum(1.0, 2 * bdtr(np.minimum(first, second), both, 0.5)) > level)


def votes_of(logits: Tensor) -> Tensor:
    """Count the votes for every class [rows, classes] in logits [rows, draws, classes]."""
    from torch.nn import functional

    return functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).sum(dim=1)


def average_logits(logits: Tensor) -> Tensor:
    """softmax of the mean logits [rows, classes]."""
    probabilities: Tensor = logits.float().mean(dim=1).softmax(dim=-1)
    return probabilities


def share_votes(logits: Tensor) -> Tensor:
    """Shares of the votes [rows, classes]; mean probabilities break a tie of the first two."""
    votes, draws = votes_of(logits).float(), logits.shape[1]
    top = votes.topk(2, dim=-1).values
    # A vote more outweighs any difference of probabilities, so the order of the classes can only change at a tie.
    untied = (votes + logits.float().softmax(dim=-1).mean(dim=1)) / (draws + 1)
    return (votes / draws).where((top[:, 0] > top[:, 1]).unsqueeze(-1), untied)
