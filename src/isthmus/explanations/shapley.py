"""Shapley values by sampling orders of the words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.types import Example, Victim
from isthmus.engine.scheduler import Steps
from isthmus.explanations.base import Explainer, Explanation
from isthmus.explanations.parts.queries import AskScores, Weighed, check_absent, explain_by_queries


@dataclass(frozen=True, kw_only=True)
class Shapley(Explainer):
    """Add the words one by one in random orders, and average the effect of each (Castro et al., 2009).

        w_i = E over orders π of  p(c | words before i in π, and i) - p(c | words before i in π)
        Σ_i w_i = p(c | x) - p(c | no words)        whatever the orders

    Orders come in pairs, each with its reverse, which cancels much of the noise. `details` has the largest standard
    error of a word's weight for every class.

    References:
        Castro, Gómez, Tejada: Polynomial Calculation of the Shapley Value Based on Sampling. Computers & Operations
        Research 2009.
        Lundberg, Lee: A Unified Approach to Interpreting Model Predictions. NeurIPS 2017.

    Where we depart:
        Whole orders are walked, as Castro et al. do; SHAP's kernel regression estimates the same values.

    Relations:
        `occlusion` is the last step of every order alone; `lime` fits a linear model to texts with words left out.

    Example:
        ``isthmus explain runs/demo "a moving, quiet film" --method shapley -P orders=50``
    """

    draws: ClassVar[bool] = True

    orders: int = 20
    """Orders of the words, at least two; odd numbers are rounded up."""
    absent: str = "delete"
    """Replacement of a word that is left out: delete, or unknown (the model's unknown token)."""

    def __post_init__(self) -> None:
        check_absent(self.absent)
        if self.orders < 2:
            raise UsageError(f"shapley walks at least 2 orders, not {self.orders}")

    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain each text by one request."""
        weigh = partial(_weigh, orders=-(-self.orders // 2))
        return explain_by_queries(victim, examples, classes, seed, weigh, method=self.name, absent=self.absent)


def _weigh(words: int, ask: AskScores, key: int, *, orders: int) -> Steps[Weighed]:
    """Walk each order and its reverse; every walk includes the empty text and the whole text."""
    stream = np.random.default_rng(key)
    if not words:
        scores = yield from ask(np.ones((1, 0), bool))
        return Weighed(scores[0], np.zeros((scores.shape[1], 0)), {})
    drawn = stream.permuted(np.tile(np.arange(words), (orders, 1)), axis=1)
    walks = np.concatenate([drawn, drawn[:, ::-1]])  # [2 orders, words]
    rank = np.argsort(walks, axis=1)  # when each word comes
    steps = np.arange(1, words)
    inside = rank[:, None, :] < steps[None, :, None]  # [walks, steps between, words]
    ends = np.stack([np.zeros(words, bool), np.ones(words, bool)])
    scores = yield from ask(np.concatenate([ends, inside.reshape(-1, words)]))
    none, whole = scores[0], scores[1]
    between = scores[2:].reshape(len(walks), words - 1, len(whole))
    shape = (len(walks), 1, len(whole))
    path = np.concatenate([np.broadcast_to(none, shape), between, np.broadcast_to(whole, shape)], axis=1)
    gains = np.diff(path, axis=1)  # [walks, steps, classes]: what the word at each step adds
    added = np.take_along_axis(gains, rank[:, :, None], axis=1)  # [walks, words, classes]
    pairs = (added[:orders] + added[orders:]) / 2
    spread = pairs.std(axis=0, ddof=1) / np.sqrt(orders) if orders > 1 else np.full(pairs.shape[1:], np.nan)
    return Weighed(whole, pairs.mean(axis=0).T, {"largest standard error": spread.max(axis=0)})
