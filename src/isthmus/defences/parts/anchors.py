"""Chooses the anchored words of a sentence, neither unuseful nor non-robust, by the size of their gradients.

rank of a token = its place by ‖g_i‖, smallest first, among the n tokens of its sentence
unuseful < ceil(c_l n) <= anchored < ceil(c_h n) <= non-robust
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_SLACK = 1e-6
"""So that 0.7 of 10 tokens is 7 tokens, and not 8 because of rounding."""


def ranks(gradient: Tensor, mask: Tensor) -> Tensor:
    """Rank of every token [batch, length] by its gradient's norm; padding comes last."""
    import torch

    norms = gradient.float().norm(dim=-1)
    norms = torch.where(mask.bool(), norms, torch.full_like(norms, math.inf))
    # Sorting twice gives ranks: the place of each token in the order of its sentence.
    return norms.argsort(dim=1, stable=True).argsort(dim=1, stable=True)


class Band:
    """The range of ranks that is anchored in the sentences of a batch.

    Their lengths alone decide that, so it is found once for all passes over the batch.
    """

    def __init__(self, mask: Tensor, lowest: float, highest: float) -> None:
        import torch

        count = mask.sum(dim=1, keepdim=True).float()
        rank = torch.arange(mask.shape[1], device=mask.device)
        low, high = (lowest * count - _SLACK).ceil(), (highest * count - _SLACK).ceil()
        inside = (rank >= low) & (rank < high)
        single = rank == (lowest * count + _SLACK).floor().clamp(max=count - 1)
        self.ranks = torch.where(high > low, inside, single)  # [batch, length]
        self._behind = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask.bool(), math.inf)

    def find_anchored(self, gradient: Tensor) -> Tensor:
        """Mask of the anchored tokens [batch, length]; at least one in every sentence that has a token."""
        order = (gradient.float().norm(dim=-1) + self._behind).argsort(dim=1, stable=True)
        # Rank r belongs to token order[r].
        return self.ranks.scatter(1, order, self.ranks)


def find_anchored(gradient: Tensor, mask: Tensor, lowest: float, highest: float) -> Tensor:
    """The anchored tokens of one gradient."""
    return Band(mask, lowest, highest).find_anchored(gradient)


@functools.lru_cache(maxsize=256)
def most_anchors(length: int, lowest: float, highest: float) -> int:
    """Maximum number of anchors in a sentence of at most `length` tokens."""
    counts = (_ceiling(highest * n) - _ceiling(lowest * n) for n in range(length + 1))
    return max(1, *counts)


def _ceiling(value: float) -> int:
    return math.ceil(value - _SLACK)
