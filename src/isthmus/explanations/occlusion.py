"""The effect of deleting each word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.types import Example, Victim
from isthmus.engine.scheduler import Steps
from isthmus.explanations.base import Explainer, Explanation
from isthmus.explanations.parts.queries import AskScores, Weighed, check_absent, explain_by_queries


@dataclass(frozen=True, kw_only=True)
class Occlusion(Explainer):
    """Delete each word in turn and measure the change (Zeiler and Fergus, 2014; Li et al., 2016).

        w_i = p(c | x) - p(c | x without word i)

    One query a word. Words that stand in for each other (two adjectives that say the same) hide each other: neither
    alone changes much.

    References:
        Zeiler, Fergus: Visualizing and Understanding Convolutional Networks. ECCV 2014.
        Li, Monroe, Jurafsky: Understanding Neural Networks through Representation Erasure. arXiv:1612.08220, 2016.

    Where we depart:
        Words are deleted or replaced by the unknown token; there is no grey patch in a text.

    Relations:
        `shapley` leaves words out together with others, and so sees what this misses; `lime` fits a linear model.

    Example:
        ``isthmus explain runs/demo "a moving, quiet film" --method occlusion``
    """

    absent: str = "delete"
    """Replacement of a word that is left out: delete, or unknown (the model's unknown token)."""

    def __post_init__(self) -> None:
        check_absent(self.absent)

    def explain(
        self, victim: Victim, examples: Sequence[Example], classes: tuple[int, ...] | None, seed: int
    ) -> Iterator[Explanation]:
        """Explain each text by one request."""
        return explain_by_queries(victim, examples, classes, seed, _weigh, method=self.name, absent=self.absent)


def _weigh(words: int, ask: AskScores, key: int) -> Steps[Weighed]:
    del key
    present = np.ones((words + 1, words), bool)
    present[1:][np.diag_indices(words)] = False
    scores = yield from ask(present)
    return Weighed(scores[0], (scores[0] - scores[1:]).T, {})
