"""Searches, as sub-generators: ``yield from greedy(trial, order, propose)``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Floats
from isthmus.engine.requests import DELETE, UNKNOWN, Request, Score, at_each, replacing

Search = Generator[Request, Any, None]
Proposal = Callable[[Trial, int], NDArray[np.int32]]
"""Words (vocabulary ids) that could stand at a position."""


def greedy(trial: Trial, order: Iterable[int], propose: Proposal) -> Search:
    """Position by position, take the candidate that helps most, if it helps at all; stop when the goal is reached."""
    for position in order:
        words = propose(trial, position)
        if not len(words):
            continue
        trial.candidates += len(words)
        scores = yield Score(trial.draft, replacing(position, words), len(words))
        progress = trial.judge(scores)
        best = int(progress.argmax())
        if progress[best] > trial.progress and trial.accept(
            trial.draft.replace(position, int(words[best])), scores[best], float(progress[best])
        ):
            return


def saliency(trial: Trial, positions: NDArray[np.int32], blank: int = UNKNOWN) -> Generator[Request, Any, Floats]:
    """Progress of the text when each of the positions in turn is made unknown (or deleted)."""
    if not len(positions):
        return np.zeros(0, np.float32)
    scores = yield Score(trial.draft, at_each(positions, blank), len(positions))
    return trial.judge(scores)


def by_importance(
    trial: Trial, positions: NDArray[np.int32], blank: int = UNKNOWN
) -> Generator[Request, Any, list[int]]:
    """Positions, the ones whose absence helps most first."""
    importance = yield from saliency(trial, positions, blank)
    order: list[int] = positions[np.argsort(-importance, kind="stable")].tolist()
    return order


__all__ = ["DELETE", "UNKNOWN", "Proposal", "Search", "by_importance", "greedy", "saliency"]
