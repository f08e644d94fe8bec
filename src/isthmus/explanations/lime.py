"""A linear model of the classifier around one text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Doubles, Example, Victim
from isthmus.engine.scheduler import Steps
from isthmus.explanations.base import Explainer, Explanation
from isthmus.explanations.parts.queries import AskScores, Weighed, check_absent, explain_by_queries


@dataclass(frozen=True, kw_only=True)
class LIME(Explainer):
    """Fit a linear model to the probabilities of texts with random words deleted (Ribeiro et al., 2016).

        w = argmin over w, b of  Σ_s π_s (p(c | z_s) - w·z_s - b)²  +  λ ‖w‖²
        π_s = exp(-d(z_s, 1)² / k²),     d = 100 · (1 - cosine)

    z_s says which words sample s keeps: how many are left out is drawn from 1 to all of them, then which. The first
    sample is the whole text. `details` has the share of the (weighted) variance that the linear model explains: where
    it is small, the weights say little.

    References:
        Ribeiro, Singh, Guestrin: "Why Should I Trust You?" Explaining the Predictions of Any Classifier. KDD 2016.

    Where we depart:
        All words are kept in the linear model: none is selected beforehand. A word that occurs twice is two words.

    Relations:
        `shapley` is the same question with other weights; `integrated_gradients` needs one backward pass a step and no
        sampling. Two seeds differ: look at both before reading a difference between two texts.

    Example:
        ``isthmus explain runs/demo "a moving, quiet film" --method lime -P samples=1000``
    """

    draws: ClassVar[bool] = True

    samples: int = 1000
    """Number of texts with words left out."""
    kernel_width: float = 25.0
    """How fast texts that keep fewer words lose weight (k)."""
    ridge: float = 1.0
    """Strength of the penalty (λ)."""
    absent: str = "delete"
    """Replacement of a word that is left out: delete, or unknown (the model's unknown token)."""

    def __post_init__(self) -> None:
        check_absent(self.absent)
        if self.samples < 2:
            raise UsageError(f"lime needs at least 2 samples, not {self.samples}")
        if not (self.kernel_width > 0 and math.isfinite(self.kernel_width)):
            raise UsageError(f"kernel_width is a positive number, not {self.kernel_width}")
        if not (self.ridge >= 0 and math.isfinite(self.ridge)):
            raise UsageError(f"ridge is at least 0, not {self.ridge}")

    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain each text by one request."""
        return explain_by_queries(
            victim, examples, classes, seed, partial(_weigh, self), method=self.name, absent=self.absent
        )


def _weigh(lime: LIME, words: int, ask: AskScores, key: int) -> Steps[Weighed]:
    present = draw_kept(words, lime.samples, key)
    scores = yield from ask(present)
    weights, explained = ridge(present.astype(np.float64), scores, closeness(present, lime.kernel_width), lime.ridge)
    return Weighed(scores[0], weights.T, {"variance explained": explained})


def draw_kept(words: int, samples: int, key: int) -> Bools:
    """The words that each sample keeps [samples, words]; the first sample keeps all."""
    stream = np.random.default_rng(key)
    present = np.ones((samples, words), bool)
    if words:
        left_out = stream.integers(1, words + 1, samples - 1)
        rank = np.argsort(stream.random((samples - 1, words)), axis=1).argsort(axis=1)
        present[1:] = rank >= left_out[:, None]
    return present


def closeness(present: Bools, kernel_width: float) -> Doubles:
    """Weights of the samples by the cosine between z and the whole text, the root of the share of kept words."""
    share = present.mean(axis=1) if present.shape[1] else np.ones(len(present))
    distance = 100 * (1 - np.sqrt(share))
    return np.exp(-((distance / kernel_width) ** 2))


def ridge(samples: Doubles, targets: Doubles, weights: Doubles, penalty: float) -> tuple[Doubles, Doubles]:
    """Weighted ridge regression with an intercept that is not penalised.

    Coefficients [columns, targets], and the share of each target's weighted variance that they explain [targets].
    """
    total = weights.sum()
    centre, level = weights @ samples / total, weights @ targets / total
    # Rounding leaves a little of a constant, which is no weight.
    x, y = samples - centre, np.where(np.ptp(targets, axis=0) == 0, 0.0, targets - level)
    weighted = x * weights[:, None]
    matrix = weighted.T @ x + penalty * np.eye(x.shape[1])
    found = np.linalg.lstsq(matrix, weighted.T @ y, rcond=None)[0] if x.shape[1] else np.zeros((0, y.shape[1]))
    left, whole = weights @ (y - x @ found) ** 2, weights @ y**2
    return found, 1 - np.divide(left, whole, out=np.zeros_like(left), where=whole > 0)
