"""The candidates of one step of a search, and how rules filter them.

A rule says for every candidate whether it may stand. Most are plain functions on arrays:

    rule.holds(trial, candidates) -> bool [count]

Those that need a model are sub-generators, like a search: ``mask = yield from rule.ask(trial, candidates)``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from isthmus.core import compiled
from isthmus.core.types import Bools, Floats
from isthmus.engine.requests import INSERT, MERGE, REPLACE, Edits, Request, Score
from isthmus.text.draft import DELETE, Draft

if TYPE_CHECKING:
    from isthmus.attacks.parts.trial import Trial


class Candidates:
    """`count` texts, each of them the base after its edits; `similarity` is known once a rule has asked for it.

    Where it is known roughly, `measured_by` is the rule that can tell it exactly.
    """

    __slots__ = ("base", "count", "edits", "measured_by", "numbers", "similarity")

    def __init__(self, base: Draft, edits: Edits, count: int | None = None) -> None:
        self.base, self.edits = base, edits
        self.count = count if count is not None else int(edits[-1, 0]) + 1 if len(edits) else 0
        self.similarity: Floats | None = None
        self.measured_by: Measuring | None = None
        self.numbers: NDArray[np.int64] | None = None  # which of those first proposed are left; None: all of them

    @property
    def single(self) -> bool:
        """Whether every candidate has exactly one edit."""
        return len(self.edits) == self.count and bool((self.edits[:, 0] == np.arange(self.count)).all())

    def keep(self, mask: Bools) -> Candidates:
        """The candidates for which the mask is true, numbered again."""
        if mask.all():
            return self
        if self.single:
            edits = self.edits[mask]
            edits[:, 0] = np.arange(len(edits))
        else:
            edits = self.edits[mask[self.edits[:, 0]]]
            edits[:, 0] = (np.cumsum(mask) - 1)[edits[:, 0]]
        fewer = Candidates(self.base, edits, int(mask.sum()))
        fewer.similarity = None if self.similarity is None else self.similarity[mask]
        fewer.measured_by = self.measured_by
        fewer.numbers = np.flatnonzero(mask) if self.numbers is None else self.numbers[mask]
        return fewer

    def edits_of(self, index: int) -> list[tuple[int, int, int]]:
        """The edits of one candidate: position, span, word."""
        if compiled.part is not None and self.edits.flags.c_contiguous:
            found: list[tuple[int, int, int]] = compiled.part.edits_of(self.edits, index)
            return found
        first, last = np.searchsorted(self.edits[:, 0], [index, index + 1])
        return [(position, span, word) for _, position, span, word in self.edits[first:last].tolist()]

    def draft(self, index: int) -> Draft:
        """The text of one candidate."""
        edits = self.edits_of(index)
        if len(edits) == 1 and edits[0][1] == REPLACE:  # The usual candidate.
            return self.base.replace(edits[0][0], edits[0][2])
        return self.base.apply(edits)

    def score(self) -> Score:
        """The request for their scores."""
        return Score(self.base, self.edits, self.count)

    def lengths(self) -> NDArray[np.int64]:
        """Words of each candidate."""
        spans, words = self.edits[:, 2], self.edits[:, 3]
        growth = (spans == INSERT).astype(np.int64) - (spans == MERGE) - ((spans == REPLACE) & (words == DELETE))
        return len(self.base) + np.bincount(self.edits[:, 0], growth, self.count).astype(np.int64)


@runtime_checkable
class PlainRule(Protocol):
    """A rule that needs only the words.

    One that has `cannot_fail(trial)` is not asked where that is true: nothing of what is proposed now would break it.
    """

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Which candidates are allowed [count]."""


@runtime_checkable
class AskingRule(Protocol):
    """A rule that queries a model."""

    def ask(self, trial: Trial, candidates: Candidates) -> Generator[Request, Any, Bools]:
        """Which candidates are allowed [count]; it may record their similarity."""


class Measuring(Protocol):
    """A rule that measures similarity."""

    def measure(self, trial: Trial, candidates: Candidates) -> Generator[Request, Any, Floats]:
        """The exact similarity of all candidates [count]."""


Rule = PlainRule | AskingRule


def find_allowed(
    trial: Trial, candidates: Candidates, passing: tuple[type, ...] = ()
) -> Generator[Request, Any, Candidates]:
    """The candidates that satisfy every rule of the trial: plain rules first, models see only the rest.

    Rules of the types in `passing` are seen to by whoever proposes.
    """
    candidates = find_plainly_allowed(trial, candidates, passing)
    for asking in trial.asking_rules:
        if not candidates.count:
            return candidates
        mask = yield from asking.ask(trial, candidates)
        candidates = candidates.keep(mask)
    trial.candidates += candidates.count
    return candidates


def find_plainly_allowed(trial: Trial, candidates: Candidates, passing: tuple[type, ...] = ()) -> Candidates:
    """The candidates that satisfy the plain rules; the caller of the other rules counts them."""
    for rule in trial.plain_rules:
        if not candidates.count:
            return candidates
        if passing and isinstance(rule, passing):
            continue
        if (cannot_fail := getattr(rule, "cannot_fail", None)) is not None and cannot_fail(trial):
            continue
        candidates = candidates.keep(rule.holds(trial, candidates))
    return candidates
