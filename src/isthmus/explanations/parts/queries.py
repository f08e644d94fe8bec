"""Explanations from queries with some words left out, many texts at once through the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.seeds import derive
from isthmus.core.types import ABSTAINS, Bools, Doubles, Example, Victim
from isthmus.engine.requests import DELETE, REPLACE, UNKNOWN, Edits, Score
from isthmus.engine.scheduler import Engine, Steps
from isthmus.explanations.base import Explanation
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

Probabilities = NDArray[np.float64]
AskScores = Callable[[Bools], "Steps[Probabilities]"]
"""Probabilities [rows, classes] of the text with the words where a row [rows, words] is False left out."""

Weigh = Callable[[int, AskScores, int], "Steps[Weighed]"]
"""Computes the weights of a method from the number of words, a function that queries, and the key of the draws."""

ABSENT = {"delete": DELETE, "unknown": UNKNOWN}
"""What stands for a word that is left out: nothing, or the model's unknown token."""


class Weighed(NamedTuple):
    """The result of a method for one text."""

    scores: Probabilities  # [classes]
    weights: Doubles  # [classes, words]
    details: dict[str, Doubles]
    """Each [classes]."""


def check_absent(absent: str) -> None:
    """Refuse an unknown way of leaving a word out."""
    if absent not in ABSENT:
        raise UsageError(f"absent is 'delete' or 'unknown', not {absent!r}")


class _ExplanationProgram:
    """One text, as a program of the engine."""

    budget = None
    label = 0

    def __init__(self, number: int, example: Example, weigh: Weigh, absent: int, seed: int) -> None:
        self.number, self.example, self.weigh, self.absent = number, example, weigh, absent
        self.key = derive(seed, "explanation", example.id)

    def start(self, vocabulary: Vocabulary) -> Steps[Weighed]:
        draft = Draft.of(self.example.texts, vocabulary)

        def ask(present: Bools) -> Steps[Probabilities]:
            scores: Probabilities = yield Score(draft, without(present, self.absent), len(present))
            return np.asarray(scores, np.float64)

        return self.weigh(len(draft), ask, self.key)


def without(present: Bools, absent: int) -> Edits:
    """Edits where candidate i leaves out the words that are False in row i."""
    candidate, position = np.nonzero(~present)
    edits: Edits = np.empty((len(candidate), 4), np.int32)
    edits[:, 0], edits[:, 1], edits[:, 2], edits[:, 3] = candidate, position, REPLACE, absent
    return edits


def explain_by_queries(
    victim: Victim,
    examples: Sequence[Example],
    classes: tuple[int, ...] | None,
    seed: int,
    weigh: Weigh,
    *,
    method: str,
    absent: str,
) -> Iterator[Explanation]:
    """Explain examples by the probabilities of texts with words left out."""
    labels = tuple(label for label in victim.labels if label != ABSTAINS)
    engine = Engine(victim)
    programs = (_ExplanationProgram(n, example, weigh, ABSENT[absent], seed) for n, example in enumerate(examples))
    found: list[Explanation | None] = [None] * len(examples)
    for finished in engine.run(programs):
        program: Any = finished.program
        if finished.value is None:
            raise VictimError(f"example {program.example.id} cannot be explained: {finished.error}")
        found[program.number] = _make_explanation(program.example, finished.value, labels, classes, method)
    yield from (each for each in found if each is not None)


def _make_explanation(
    example: Example, weighed: Weighed, labels: tuple[str, ...], classes: tuple[int, ...] | None, method: str
) -> Explanation:
    scores = weighed.scores[: len(labels)]
    own = (int(scores.argmax()),) if classes is None else classes
    chosen = list(own)
    return Explanation(
        id=example.id,
        texts=example.texts,
        method=method,
        labels=labels,
        scores=tuple(map(float, scores)),
        classes=own,
        weights=weighed.weights[chosen],
        details={name: values[chosen].tolist() for name, values in weighed.details.items()},
    )
