"""Texts that differ from the original in several words: rows of word ids, int32 [members, words].

What the genetic searches (`population`) and the particle swarm (`swarm`) have in common: a row is written as edits
against the original, one request holds the candidates of all rows, and every draw is taken from the example's stream.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.attacks.parts.candidates import Candidates, find_allowed
from isthmus.attacks.parts.rules import MostPerWord
from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Bools, Doubles, Floats, Int32, Ints
from isthmus.engine.requests import REPLACE, Edits, Request
from isthmus.text.draft import Draft


class Swaps:
    """Candidates that each change one word of a row: row, position and new word, ordered by row."""

    __slots__ = ("at", "rows", "words")

    def __init__(self, rows: Ints, at: Ints, words: Int32) -> None:
        self.rows, self.at, self.words = rows, at, words

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Ints) -> Swaps:
        """Select some swaps."""
        return Swaps(self.rows[chosen], self.at[chosen], self.words[chosen])

    @classmethod
    def of_rows(cls, rows: Ints) -> Swaps:
        """Rows as they are, as candidates without a change of their own."""
        return cls(rows, np.full(len(rows), -1), np.zeros(len(rows), np.int32))

    def after(self, first: Swaps) -> Swaps:
        """Append these swaps to `first`."""
        return Swaps(*(np.concatenate([getattr(first, name), getattr(self, name)]) for name in ("rows", "at", "words")))


class Substitutes:
    """The possible substitutes of each word of the original text; none for replaced words."""

    __slots__ = ("at", "counts", "original", "starts", "words")

    def __init__(self, original: Int32, found: Mapping[int, Int32]) -> None:
        self.original = original
        self.counts = np.zeros(len(original), np.int64)
        for position, words in found.items():
            self.counts[position] = len(words)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])
        self.at = np.repeat(np.arange(len(original)), self.counts)
        self.words = np.concatenate([np.zeros(0, np.int32), *(found[position] for position in sorted(found))])

    def __len__(self) -> int:
        return len(self.words)

    def available(self, words: Int32) -> Bools:
        """For every word of every row whether it can be replaced."""
        return np.asarray((words == self.original) & (self.counts > 0))

    def swaps(self, words: Int32) -> Swaps:
        """Every replacement of an original word in every row."""
        rows, which = np.nonzero(words[:, self.at] == self.original[self.at])
        return Swaps(rows, self.at[which], self.words[which])

    def of(self, position: int, word: int) -> Int32:
        """The substitutes at a position where `word` stands."""
        if word != self.original[position]:
            return self.words[:0]
        return self.words[self.starts[position] : self.starts[position + 1]]


def most_per_word(trial: Trial) -> int | None:
    """Maximum candidates per word, if the user sets a limit."""
    return min((rule.most for rule in trial.plain_rules if isinstance(rule, MostPerWord)), default=None)


# ---------------------------------------------------------------------- as candidates


def edits_of(original: Int32, words: Int32, swaps: Swaps) -> Edits:
    """Edits against the original: candidate i is row `swaps.rows[i]` with its own word put in."""
    row, place = np.nonzero(words != original)
    begins = np.searchsorted(row, np.arange(len(words) + 1))
    counts = np.diff(begins)[swaps.rows]
    candidate = np.repeat(np.arange(len(swaps)), counts)
    index = np.arange(len(candidate)) + np.repeat(begins[swaps.rows] - (np.cumsum(counts) - counts), counts)
    at, new = place[index], words[row, place][index]
    kept = at != swaps.at[candidate]  # what the candidate itself puts there goes before
    own = np.flatnonzero((swaps.at >= 0) & (swaps.words != original[swaps.at]))
    candidate = np.concatenate([candidate[kept], own])
    at, new = np.concatenate([at[kept], swaps.at[own]]), np.concatenate([new[kept], swaps.words[own]])
    order = np.lexsort((at, candidate))
    edits = np.empty((len(order), 4), np.int32)
    edits[:, 0], edits[:, 1], edits[:, 2], edits[:, 3] = candidate[order], at[order], REPLACE, new[order]
    return edits


def candidates_of(trial: Trial, words: Int32, swaps: Swaps) -> Candidates:
    """The swaps as candidates of the trial."""
    return Candidates(trial.original, edits_of(trial.original.ids, words, swaps), len(swaps))


def find_permitted(trial: Trial, words: Int32, swaps: Swaps) -> Generator[Request, Any, Ints]:
    """Which swaps satisfy the rules of the trial; the limit per word is the caller's task."""
    if not (trial.plain_rules or trial.asking_rules):
        trial.candidates += len(swaps)
        return np.arange(len(swaps))
    left = yield from find_allowed(trial, candidates_of(trial, words, swaps), passing=(MostPerWord,))
    return np.arange(len(swaps)) if left.numbers is None else left.numbers


def score_swaps(trial: Trial, words: Int32, swaps: Swaps) -> Generator[Request, Any, Floats]:
    """Scores of the swaps; where the budget does not cover all, the best of those it covers is the search's last word.

    A generation is one request, so that what its last queries found would be lost otherwise.
    """
    request = candidates_of(trial, words, swaps).score()
    scores: Floats = yield request
    if request.asked < request.count:
        progress = trial.judge(scores)
        best = int(progress.argmax())
        if lead(trial, progress, scores, best):
            trial.accept(_draft(trial, _write_swap(words, swaps, best)), scores[best], float(progress[best]))
    return scores


@dataclass(frozen=True, slots=True)
class BestSwaps:
    """The best swap of every word that has one, with its scores."""

    swaps: Swaps
    scores: Floats
    progress: Floats


def best_swaps(trial: Trial, words: Int32, swaps: Swaps) -> Generator[Request, Any, BestSwaps]:
    """The best swap of every word of every row, all scored in one request."""
    swaps = swaps.take((yield from find_permitted(trial, words, swaps)))
    if not len(swaps):
        return BestSwaps(swaps, np.zeros((0, len(trial.scores)), np.float32), np.zeros(0, np.float32))
    scores = yield from score_swaps(trial, words, swaps)
    progress = trial.judge(scores)
    best = best_of_each(swaps.rows * words.shape[1] + swaps.at, progress)
    return BestSwaps(swaps.take(best), scores[best], progress[best])


def lead(trial: Trial, progress: Floats, scores: Floats, row: int) -> bool:
    """Whether a row is closer to the goal than the current text, or at the goal."""
    return bool(progress[row] > trial.progress or trial.goal.is_reached(scores[row], trial.label))


def settle(trial: Trial, words: Int32, scores: Floats, progress: Floats, anyone: bool) -> bool:
    """Move the trial to the furthest row, with `anyone` to one that reaches the goal if there is one; True if it does.

    With more than two classes the furthest row may miss a goal that another one reaches.
    """
    row = int(progress.argmax())
    if anyone:
        reached = np.asarray(trial.goal.is_reached(scores, trial.label))
        if reached.any():
            row = int(np.where(reached, progress, -np.inf).argmax())
    if lead(trial, progress, scores, row):
        trial.accept(_draft(trial, words[row]), scores[row], float(progress[row]))
    return trial.reached


def _write_swap(words: Int32, swaps: Swaps, index: int) -> Int32:
    row: Int32 = words[swaps.rows[index]].copy()
    if swaps.at[index] >= 0:
        row[swaps.at[index]] = swaps.words[index]
    return row


def _draft(trial: Trial, row: Int32) -> Draft:
    changed = np.flatnonzero(row != trial.original.ids)
    return trial.original.apply(
        (at, REPLACE, word) for at, word in zip(changed.tolist(), row[changed].tolist(), strict=True)
    )


# ---------------------------------------------------------------------- draws


def stream_of(trial: Trial) -> np.random.Generator:
    """The example's own randomness, for array draws."""
    return np.random.default_rng(trial.rng.getrandbits(64))


def draw_weighted(weights: Doubles, stream: np.random.Generator) -> Ints:
    """One index for every row of weights, with probability proportional to its weight; each row has one above zero."""
    sums = np.cumsum(weights, axis=1)
    reached = stream.random(len(weights)) * sums[:, -1]
    return np.asarray((sums <= reached[:, None]).sum(axis=1))


def best_of_each(groups: Ints, values: Floats) -> Ints:
    """The position of the first maximum in each run of equal groups."""
    if not len(groups):
        return np.zeros(0, np.int64)
    begins = np.concatenate([[True], groups[1:] != groups[:-1]])
    run = np.cumsum(begins) - 1
    top = np.flatnonzero(values == np.maximum.reduceat(values, np.flatnonzero(begins))[run])
    return top[np.unique(run[top], return_index=True)[1]]
