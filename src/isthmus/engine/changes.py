"""Changes that edits make to the units of a text.

    edit (candidate, position, span, word)  ─►  units first … last - 1 of a row give way to one unit (or two)

Where every word is a unit of its own this is arithmetic on arrays. Where a word shares its unit with what surrounds it
(``" word,"`` in byte-level BPE) the new unit is looked up edit by edit. A candidate whose edits cannot be made unit by
unit is *odd*: it has to be written out and tokenised whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Bools, Int32, Ints
from isthmus.engine.requests import Edits
from isthmus.text.draft import INSERT, MERGE, Draft
from isthmus.text.splice import Layout, Splicer
from isthmus.text.vocabulary import DELETE

Frames = tuple[tuple[str, str] | None, ...]
ONE_FIELD = np.zeros(1, np.int32)


class CandidateEdits(Protocol):
    """The edits of a request's candidates."""

    base: Draft
    edits: Edits
    count: int


@dataclass(slots=True)
class Laid:
    """The units of a draft, for one tokenizer."""

    units: Int32  # [units]
    unit_of: Int32  # [words]; -1: an edit of it needs the whole text tokenised
    sections: Int32  # [fields] where each field's units begin
    frames: Frames | None = None  # what shares a unit with each word; None: every word is a unit of its own
    whole: bool = False  # some field can't be spliced
    alone: Bools | None = None  # [words] whether a text may begin or end with its unit; None: all of them

    @classmethod
    def of(cls, layouts: Sequence[Layout], *, bare: bool = True) -> Laid:
        """The layouts of all fields as one; where cuts are not `bare` every word shares its unit with a space."""
        if len(layouts) == 1:
            units, unit_of, sections = layouts[0].units, layouts[0].unit_of, ONE_FIELD
        else:
            sections = np.cumsum([0, *(len(layout.units) for layout in layouts)])[:-1].astype(np.int32)
            units = np.concatenate([layout.units for layout in layouts])
            unit_of = np.concatenate(
                [
                    np.where(layout.unit_of < 0, -1, layout.unit_of + section).astype(np.int32)
                    for layout, section in zip(layouts, sections, strict=True)
                ]
            )
        frames: Frames | None = None
        alone = None
        if not bare or any(layout.frames is not None for layout in layouts):
            frames = tuple(frame for layout in layouts for frame in layout.frames or [("", "")] * len(layout.unit_of))
            alone = np.fromiter((bare and frame == ("", "") for frame in frames), bool, len(frames))
        return cls(units, unit_of, sections, frames, any(layout.whole for layout in layouts), alone)


class LaidTexts:
    """The units of several drafts, one after the other."""

    def __init__(self, laid: Sequence[Laid]) -> None:
        self.laid = laid
        self.units = np.concatenate([own.units for own in laid])
        self.unit_of = np.concatenate([own.unit_of for own in laid])
        sizes = np.fromiter((len(own.units) for own in laid), np.int64, len(laid))
        words = np.fromiter((len(own.unit_of) for own in laid), np.int64, len(laid))
        self.ends = np.cumsum(sizes)
        self.starts: Ints = self.ends - sizes  # where each draft's units begin
        self.words: Ints = np.cumsum(words) - words  # where each draft's words begin in `unit_of`
        self.fields = len(laid[0].sections)
        self.plain = np.fromiter((own.frames is None and not own.whole for own in laid), bool, len(laid))
        self.whole = np.fromiter((own.whole for own in laid), bool, len(laid))
        self._alone: Bools | None = None
        sections = np.zeros((len(laid), 1), np.int64) if self.fields == 1 else np.stack([own.sections for own in laid])
        self.sections: Ints = self.starts[:, None] + sections  # [drafts, fields] where each field's units begin

    def unit(self, draft: Ints, position: Int32 | Ints) -> Ints:
        """The unit in which the word at a position of a draft lies; it has to have one."""
        units: Ints = self.unit_of[self.words[draft] + position] + self.starts[draft]
        return units

    def alone(self, draft: Ints, position: Int32 | Ints) -> Bools:
        """Whether a text may begin or end with the word at a position of a draft."""
        if self.plain.all():
            return np.ones(len(draft), bool)
        if self._alone is None:
            self._alone = np.concatenate(
                [
                    np.full(len(own.unit_of), not own.whole) if own.alone is None else own.alone & (not own.whole)
                    for own in self.laid
                ]
            )
        alone: Bools = self._alone[self.words[draft] + position]
        return alone

    def bounds(self) -> tuple[Ints, Ints]:
        """First and last (exclusive) unit of every field of every draft."""
        return self.sections, np.concatenate([self.sections[:, 1:], self.ends[:, None]], axis=1)


@dataclass(slots=True)
class Changes:
    """Units `first` to `last` (exclusive, counted over all texts) of a row give way to others.

    Sorted by row and field and, within these, from left to right; no two overlap.
    """

    row: Ints
    field: Ints | None  # None: rows have one field
    first: Ints
    last: Ints
    units: Ints  # [changes], or [changes, 2] where some put in two units
    odd: list[int]  # rows whose edits can't be made this way; they have no changes here

    def __len__(self) -> int:
        return len(self.row)

    def keep(self, mask: NDArray[np.bool_]) -> Changes:
        """Some of the changes."""
        field = None if self.field is None else self.field[mask]
        return Changes(self.row[mask], field, self.first[mask], self.last[mask], self.units[mask], self.odd)


def changes_of(splicer: Splicer, requests: Sequence[CandidateEdits], texts: LaidTexts, counts: Ints) -> Changes:
    """The changes that the edits of all requests make to their texts."""
    sizes = np.fromiter((len(request.edits) for request in requests), np.int64, len(requests))
    edits = np.concatenate([request.edits for request in requests])
    of_edit = np.repeat(np.arange(len(requests)), sizes)
    first_rows = np.cumsum(counts) - counts
    if texts.plain.all():
        return _order(_change_plain_words(edits, of_edit, texts, first_rows), texts.fields)
    # Edits of words that are units of their own are made as anywhere.
    easy = texts.alone(of_edit, edits[:, 1])
    merged = np.flatnonzero(edits[:, 2] == MERGE)
    easy[merged] &= texts.alone(of_edit[merged], edits[merged, 1] + 1)
    changes = _change_plain_words(edits[easy], of_edit[easy], texts, first_rows)
    looked_up = _look_up(splicer, requests, texts, first_rows, edits[~easy], of_edit[~easy])
    whole = np.flatnonzero(texts.whole[: len(requests)])
    looked_up.odd += [row for at in whole for row in range(first_rows[at], first_rows[at] + counts[at])]
    return _order(_join(changes, looked_up), texts.fields)


def make_draft(request: CandidateEdits, candidate: int) -> Draft:
    """A candidate as a draft of its own."""
    low, high = np.searchsorted(request.edits[:, 0], [candidate, candidate + 1])
    return request.base.apply([(position, span, word) for _, position, span, word in request.edits[low:high].tolist()])


def _change_plain_words(edits: Edits, of_edit: Ints, texts: LaidTexts, first_rows: Ints) -> Changes:
    """Every word is a unit: it gives way to another, or, where a word is put in before it, stays."""
    spans = edits[:, 2]
    merged = spans == MERGE
    if merged.any():
        # One word for two: the first is replaced, the second taken out.
        second = edits[merged] + np.array([0, 1, 0, 0], np.int32)
        second[:, 3] = DELETE
        edits, of_edit = np.concatenate([edits, second]), np.concatenate([of_edit, of_edit[merged]])
        spans = edits[:, 2]
    row = edits[:, 0] + first_rows[of_edit]
    first = texts.unit(of_edit, edits[:, 1])
    last = first + (spans != INSERT)
    field = None
    if texts.fields > 1:
        field = (first[:, None] >= texts.sections[of_edit, 1:]).sum(axis=1)
    return Changes(row, field, first, last, edits[:, 3].astype(np.int64), [])


def _look_up(
    splicer: Splicer,
    requests: Sequence[CandidateEdits],
    texts: LaidTexts,
    first_rows: Ints,
    edits: Edits,
    of_edit: Ints,
) -> Changes:
    """The changes by edits of words that share units with what surrounds them."""
    changes, odd = list[tuple[int, int, int, int, int, int]](), set[int]()
    rows = (edits[:, 0] + first_rows[of_edit]).tolist()
    for index, row, (position, span, word) in zip(of_edit.tolist(), rows, edits[:, 1:].tolist(), strict=True):
        laid = texts.laid[index]
        own = None if laid.whole else _in_frames(splicer, laid, requests[index].base, position, span, word)
        if own is None:
            odd.add(row)
            continue
        shift = int(texts.starts[index])
        for first, last, new, second in own:
            field = 0 if texts.fields == 1 else int(np.searchsorted(laid.sections, first, side="right")) - 1
            changes.append((row, field, shift + first, shift + last, new, second))
    columns = np.array(changes, np.int64).reshape(-1, 6).T
    fields = columns[1] if texts.fields > 1 else None
    return Changes(columns[0], fields, columns[2], columns[3], columns[4:].T, sorted(odd))


def _in_frames(
    splicer: Splicer, laid: Laid, base: Draft, position: int, span: int, word: int
) -> list[tuple[int, int, int, int]] | None:
    """Which units give way to which one or two; None where that can't be said."""
    assert laid.frames is not None
    unit, frame = int(laid.unit_of[position]), laid.frames[position]
    if unit < 0 or frame is None:
        return None
    last, second = unit + 1, DELETE
    before, after = frame
    deleted = None
    if span == INSERT:
        if word == DELETE:
            return None
        # "(old" becomes "(new old": the old word now stands behind a space, or, where spaces do not count, alone.
        space = "" if splicer.mode == "bare" else " "
        second, after = _frame(splicer, (space, after), int(base.ids[position])), ""
    elif span == MERGE:
        next_unit, next_frame = int(laid.unit_of[position + 1]), laid.frames[position + 1]
        if next_unit < 0 or next_frame is None:
            return None
        if not after and next_unit == last and next_frame[0] == " ":
            last, after = last + 1, next_frame[1]  # only a space between them, which goes
        else:
            deleted = next_unit, next_unit + 1, _frame(splicer, next_frame, DELETE), DELETE
    changes = [(unit, last, _frame(splicer, (before, after), word), second)]
    if deleted is not None:
        changes.append(deleted)
    return None if any(change[2] < 0 or change[3] < 0 for change in changes) else changes


def _frame(splicer: Splicer, frame: tuple[str, str], word: int) -> int:
    return word if frame == ("", "") and splicer.mode == "bare" else splicer.find_framed(frame, word)


def _join(one: Changes, other: Changes) -> Changes:
    units = np.stack([one.units, np.full(len(one), DELETE, np.int64)], axis=1)
    return Changes(
        np.concatenate([one.row, other.row]),
        None if one.field is None or other.field is None else np.concatenate([one.field, other.field]),
        np.concatenate([one.first, other.first]),
        np.concatenate([one.last, other.last]),
        np.concatenate([units, other.units]),
        other.odd,
    )


def _order(changes: Changes, fields: int) -> Changes:
    """Sort, and take out the rows that are odd because two of their changes overlap, or for any other reason."""
    keys = changes.row if changes.field is None else changes.row * fields + changes.field
    if not (keys[1:] > keys[:-1]).all():
        word = changes.units if changes.units.ndim == 1 else changes.units[:, 0]
        changes = _take(changes, np.lexsort((word, changes.last, changes.first, keys)))
        keys = changes.row if changes.field is None else changes.row * fields + changes.field
        overlap = (keys[1:] == keys[:-1]) & (changes.first[1:] < changes.last[:-1])
        changes.odd = sorted({*changes.odd, *changes.row[1:][overlap].tolist()})
    if changes.odd:
        changes = changes.keep(~np.isin(changes.row, changes.odd))
    return changes


def _take(changes: Changes, order: Ints) -> Changes:
    field = None if changes.field is None else changes.field[order]
    return Changes(
        changes.row[order], field, changes.first[order], changes.last[order], changes.units[order], changes.odd
    )
