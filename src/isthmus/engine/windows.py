"""The part of a text that is compared for its meaning: a number of words around an edit.

    position - (size - 1) / 2  …  position + (size - 1) / 2         moved inwards at either end of the text

For texts whose words are units of their own the window of a candidate is a range of the units of its base, worked out
for all candidates of a round at once; for others it is cut out of the written text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.types import Bools, Ints
from isthmus.engine.changes import Changes, LaidTexts
from isthmus.engine.requests import DELETE, INSERT, MERGE, REPLACE, Similarity
from isthmus.text.words import Words


def window(text: Words, position: int, size: int) -> str:
    """The part of a text that holds `size` words around a position, or as many as there are on either side."""
    if not len(text):
        return str(text)
    first, last = _window_bounds(np.array([position]), np.array([len(text)]), np.array([size]))
    offsets = text.offsets()
    return str(text)[offsets[int(first[0])][0] : offsets[int(last[0])][1]]


def _window_bounds(position: Ints, length: Ints, size: Ints) -> tuple[Ints, Ints]:
    """First and last word of each window."""
    position = np.minimum(position, length - 1)
    before, after = size // 2, (size - 1) // 2  # what lies on either side; a window of even size leans to the left
    first, last = position - before, position + after
    at_start = 2 * position < size - 1
    at_end = ~at_start & (2 * (position - length) + size - 1 >= 0)
    first = np.where(at_start, 0, np.where(at_end, np.maximum(0, length - size), first))
    last = np.where(at_start, np.minimum(size, length) - 1, np.where(at_end, length - 1, last))
    return first, last


@dataclass(slots=True)
class Centres:
    """Around which word of which field every candidate is compared, and how its edits move the words there."""

    owner: Ints  # [rows] the request it belongs to
    field: Ints
    start: Ints  # position at which the field starts
    local: Ints  # position in the field
    length: Ints  # words of the field in the base
    growth: Ints  # words by which the candidate is longer
    shifts_at: Ints  # where it grows or shrinks, counted in the field
    size: Ints  # words in the window; 0: the whole field
    awkward: Bools  # it grows or shrinks in several places

    @classmethod
    def of(cls, requests: Sequence[Similarity], counts: Ints) -> Centres:
        """Look at the edits of all requests."""
        rows = int(counts.sum())
        owner = np.repeat(np.arange(len(requests)), counts)
        edits = np.concatenate([request.edits for request in requests])
        sizes = np.fromiter((len(request.edits) for request in requests), np.int64, len(requests))
        row = edits[:, 0] + np.repeat(np.cumsum(counts) - counts, sizes)
        spans = edits[:, 2]
        moves = (spans != REPLACE) | (edits[:, 3] == DELETE)
        if len(row) == rows and bool((row == np.arange(rows)).all()):
            position = edits[:, 1].astype(np.int64)
            awkward = np.zeros(rows, bool)
        else:
            first = np.minimum(np.searchsorted(row, np.arange(rows)), max(0, len(row) - 1))
            number = np.bincount(row, minlength=rows)
            position = np.where(number > 0, edits[first, 1] if len(edits) else 0, 0)
            awkward = (number > 1) & (np.bincount(row, moves, rows) > 0)
        growth, shifts_at = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        if moves.any():
            growth[row[moves]] = np.where(spans[moves] == INSERT, 1, -1)
            shifts_at[row[moves]] = edits[moves, 1] + (spans[moves] == MERGE)
        starts = np.array([request.base.structure.starts for request in requests], np.int64)
        field = (position[:, None] >= starts[owner, 1:-1]).sum(axis=1)
        start = starts[owner, field]
        window_sizes = np.array([request.window or 0 for request in requests], np.int64)
        return cls(
            owner, field, start, position - start, starts[owner, field + 1] - start, growth, shifts_at - start,
            window_sizes[owner], awkward,
        )  # fmt: skip

    def ranges(self, texts: LaidTexts) -> tuple[Ints, Ints, Bools]:
        """First and last (exclusive) unit of every candidate's window, and for which that can't be said."""
        low, high = texts.bounds()
        low, high = low[self.owner, self.field], high[self.owner, self.field]
        length = self.length + self.growth
        windowed = self.size > 0
        odd = windowed & (self.awkward | texts.whole[self.owner])
        rows = np.flatnonzero(windowed & ~odd & (length > 0))
        if len(rows):
            first, last = _window_bounds(self.local[rows], length[rows], self.size[rows])
            owner, first_word, last_word, new_ends = self._words(rows, first, last)
            fine = texts.alone(owner, first_word) & texts.alone(owner, last_word)
            if not fine.all():
                odd[rows[~fine]] = True
                rows, owner, first_word, last_word = rows[fine], owner[fine], first_word[fine], last_word[fine]
                new_ends = new_ends[fine]
            low[rows] = texts.unit(owner, first_word)
            high[rows] = texts.unit(owner, last_word) + 1 - new_ends
        return low, high, odd

    def _words(self, rows: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints, Bools]:
        """The owner and the first and last word, counted in the base, of windows of candidates.

        Where a window ends with a new word, the last is the word in front of which that stands.
        """
        growth, at, start = self.growth[rows], self.shifts_at[rows], self.start[rows]
        # Behind a word that was taken out words are one further on, behind a new one further back.
        base_first = first + ((growth < 0) & (first >= at)) - ((growth > 0) & (first > at))
        base_last = last + ((growth < 0) & (last >= at)) - ((growth > 0) & (last > at))
        return self.owner[rows], start + base_first, start + base_last, (growth > 0) & (last == at)

    def reference_words(self, requests: Sequence[Similarity]) -> tuple[Ints, Ints]:
        """First and last word, counted in the field, of the part of the reference that each candidate is compared with.

        Without a window, 0 and -1: the whole field.
        """
        starts = np.array([request.reference.structure.starts for request in requests], np.int64)
        length = starts[self.owner, self.field + 1] - starts[self.owner, self.field]
        first, last = _window_bounds(self.local, np.maximum(1, length), np.maximum(1, self.size))
        whole = (self.size == 0) | (length == 0)
        return np.where(whole, 0, first), np.where(whole, -1, last)


def words_within(changes: Changes, low: Ints, high: Ints, odd: Sequence[int]) -> Changes:
    """The changes that lie in each row's range of units, for rows of one field; more rows turned out to be odd."""
    changes.field = None
    mask = (changes.first >= low[changes.row]) & (changes.last <= high[changes.row])
    if odd:
        changes.odd = sorted({*changes.odd, *odd})
        mask &= ~np.isin(changes.row, odd)
    return changes if mask.all() else changes.keep(mask)
