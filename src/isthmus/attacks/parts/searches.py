"""Searches, as sub-generators: ``yield from greedy(trial, order, propose)``.

by_importance, by_gradient, by_chance      in which order to go through the words
greedy                                     word by word, the best candidate if it helps
step                                       one word of such a search, as the papers pick the last candidate
beam                                       over all words at once, the best few texts after every step
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.candidates import Candidates, find_allowed, find_plainly_allowed
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import VictimError
from isthmus.core.types import Floats
from isthmus.engine.requests import DELETE, UNKNOWN, Edits, Gradient, Request, Score, Similarity, TokenGradient, at_each
from isthmus.engine.tasks import Stop
from isthmus.text.draft import Draft

Search = Generator[Request, Any, None]
Proposal = Callable[[Trial, int], Edits | Generator[Request, Any, Edits]]
"""Edits that could be made at a position, one candidate each; a generator where a model proposes them."""
ProposalOfAll = Callable[[Trial, Draft], Edits | Generator[Request, Any, Edits]]
"""Edits that could be made anywhere in a draft."""


def greedy(trial: Trial, order: Iterable[int], propose: Proposal) -> Search:
    """Position by position, take the candidate that helps most, if it helps at all; stop when the goal is reached.

    Where several reach it and their similarity to the original is known, the most similar one is taken.
    """
    for position in order:
        edits = propose(trial, position)
        if trial.asking_rules or not isinstance(edits, np.ndarray):
            candidates = yield from find_proposed(trial, trial.draft, edits)
        else:  # Nobody has to be asked: spare two generators a step.
            candidates = find_plainly_allowed(trial, Candidates(trial.draft, edits))
            trial.candidates += candidates.count
        if not candidates.count:
            continue
        scores = yield candidates.score()
        best, progress = trial.leading(scores)
        if progress <= trial.progress:
            continue
        if candidates.similarity is not None:
            judged = trial.judge(scores)
            best = yield from most_similar(trial, scores, judged, candidates)
            progress = float(judged[best])
        if trial.accept(candidates.draft(best), scores[best], progress):
            return


def step(trial: Trial, candidates: Candidates) -> Generator[Request, Any, bool]:
    """Take the candidate most like the original among those that reach the goal, else the best if it helps.

    True if the goal is reached. Unlike `greedy`, which knows only what a rule has measured on the way, this asks for
    the similarity to the original, of the whole text.
    """
    if not candidates.count:
        return False
    scores = yield candidates.score()
    progress = trial.judge(scores)
    best = int(progress.argmax())
    reached = np.asarray(trial.goal.is_reached(scores, trial.label))
    if reached.any():
        ends = candidates.keep(reached)
        similarity = yield Similarity(ends.base, ends.edits, ends.count, trial.original)
        best = int(np.flatnonzero(reached)[similarity.argmax()])
    elif progress[best] <= trial.progress:
        return False
    return trial.accept(candidates.draft(best), scores[best], float(progress[best]))


def beam(trial: Trial, propose: ProposalOfAll, width: int = 1) -> Search:
    """Step by step, from each of the best `width` texts try every edit; width 1 is the full greedy search.

    A step is taken even where it does not help, and the search ends when no candidate is left.
    """
    drafts = [trial.draft]
    while True:
        steps: list[tuple[Candidates, Floats, Floats]] = []
        for draft in drafts:
            candidates = yield from find_proposed(trial, draft, propose(trial, draft))
            if candidates.count:
                scores = yield candidates.score()
                steps.append((candidates, scores, trial.judge(scores)))
        if not steps:
            return
        progress = np.concatenate([found for _, _, found in steps])
        owner = np.repeat(np.arange(len(steps)), [candidates.count for candidates, _, _ in steps])
        place = np.concatenate([np.arange(candidates.count) for candidates, _, _ in steps])
        ranks = np.argsort(-progress, kind="stable")[:width]
        drafts = [steps[owner[rank]][0].draft(int(place[rank])) for rank in ranks]
        best = ranks[0]
        if trial.accept(drafts[0], steps[owner[best]][1][place[best]], float(progress[best])):
            return


def find_proposed(
    trial: Trial, draft: Draft, edits: Edits | Generator[Request, Any, Edits]
) -> Generator[Request, Any, Candidates]:
    """The proposals, as candidates that satisfy the trial's rules."""
    if not isinstance(edits, np.ndarray):
        edits = yield from edits
    return (yield from find_allowed(trial, Candidates(draft, edits)))


def most_similar(
    trial: Trial, scores: Floats, progress: Floats, candidates: Candidates
) -> Generator[Request, Any, int]:
    """The most similar candidate that reaches the goal with more progress than all that fail; else the best.

    Where similarity is known roughly, the exact one decides; if time ends before it is known, the rough one.
    """
    order = np.argsort(-progress, kind="stable")
    reached = np.asarray(trial.goal.is_reached(scores[order], trial.label))
    leading = int(reached.argmin()) if not reached.all() else len(reached)
    if leading < 2:
        return int(order[0])
    similarity = candidates.similarity
    assert similarity is not None
    if candidates.measured_by is not None:
        mask = np.zeros(candidates.count, bool)
        mask[order[:leading]] = True
        with contextlib.suppress(Stop, VictimError):  # A success in hand is not lost over which of them it is.
            exact = yield from candidates.measured_by.measure(trial, candidates.keep(mask))
            similarity = similarity.copy()
            similarity[mask] = exact
    return int(order[similarity[order[:leading]].argmax()])


# ---------------------------------------------------------------------- in which order


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
    if not len(positions):
        return []
    scores = yield Score(trial.draft, at_each(positions, blank), len(positions))
    return trial.rank(positions, scores)


def by_gradient(trial: Trial, positions: NDArray[np.int32]) -> Generator[Request, Any, list[int]]:
    """Positions, the ones with the largest gradient of the loss first (L1 norm of the mean over a word's tokens)."""
    if not len(positions):
        return []
    gradient: TokenGradient = yield Gradient(trial.draft, trial.label)
    norms = [_norm(gradient, position) for position in positions.tolist()]
    order: list[int] = positions[np.argsort(-np.array(norms), kind="stable")].tolist()
    return order


def _norm(gradient: TokenGradient, position: int) -> float:
    own = gradient.values[gradient.position_of == position]
    return float(np.abs(own.mean(axis=0)).sum()) if len(own) else 0.0


def by_chance(trial: Trial, positions: NDArray[np.int32]) -> list[int]:
    """Positions in random order."""
    order: list[int] = positions.tolist()
    trial.rng.shuffle(order)
    return order


__all__ = [
    "DELETE",
    "UNKNOWN",
    "Proposal",
    "ProposalOfAll",
    "Search",
    "beam",
    "by_chance",
    "by_gradient",
    "by_importance",
    "find_proposed",
    "greedy",
    "most_similar",
    "saliency",
    "step",
]  # fmt: skip
