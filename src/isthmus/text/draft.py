"""A text under attack, as arrays.

A `Draft` is one state of an input: its words as integers over all fields, in reading order, and the gaps between them.
Drafts are immutable; an edit gives a new one that shares everything it did not change. Where the words came from is
remembered, so that the final draft can be laid beside the original word for word.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from isthmus.core import compiled
from isthmus.core.types import Bools, Int32
from isthmus.text.vocabulary import DELETE, UNKNOWN, Vocabulary
from isthmus.text.words import Words, split


@dataclass(slots=True)
class Units:
    """The units of a text with plain gaps (see `isthmus.text.splice`): each word and each gap is one.

    This is so for every tokenizer that cuts around spaces and punctuation, so it is worked out once for all that cut
    around the same marks.
    """

    unit_of: Int32  # [words]
    sections: Int32  # [fields] where each field's units begin
    separators: str  # marks outside ASCII around which is cut


NOT_PLAIN = Units(np.zeros(0, np.int32), np.zeros(0, np.int32), "")
"""Marks a structure some gap of which has to be looked at in its place."""


class Structure:
    """Shared by drafts: the fields, and the gaps between their words."""

    __slots__ = ("fields", "gaps", "starts", "units", "vocabulary")

    def __init__(
        self,
        vocabulary: Vocabulary,
        fields: tuple[str, ...],
        gaps: tuple[tuple[str, ...], ...],
        starts: tuple[int, ...],
    ) -> None:
        self.vocabulary = vocabulary
        self.fields = fields
        self.gaps = gaps
        self.starts = starts  # word position at which each field starts, and the total at the end
        self.units: Units | None = None  # filled in by whoever splices first


class Draft:
    """One state of a text under attack."""

    __slots__ = ("editable", "ids", "notes", "origin", "structure", "units")

    def __init__(
        self, structure: Structure, ids: Int32, origin: Int32, editable: Bools, units: Int32 | None = None
    ) -> None:
        self.structure = structure
        self.ids = ids  # [words] vocabulary ids
        self.origin = origin  # [words] position in the original text; -1 for an inserted word
        self.editable = editable  # [words]
        self.units = units  # [units], once somebody spliced it
        self.notes: dict[Any, Any] | None = None  # what services found out about it, for as long as it lives

    def note(self, key: Any) -> Any:
        """The note under a key, or None."""
        return None if self.notes is None else self.notes.get(key)

    def keep_note(self, key: Any, value: Any) -> None:
        """Store a note about this draft."""
        if self.notes is None:
            self.notes = {}
        self.notes[key] = value

    @classmethod
    def of(cls, texts: Mapping[str, str], vocabulary: Vocabulary, editable: Bools | None = None) -> Draft:
        """Make the first draft: the original text."""
        fields = [_number_words(text, vocabulary) for text in texts.values()]
        ids = fields[0][0] if len(fields) == 1 else np.concatenate([_NO_WORDS, *(own for own, _ in fields)])
        starts = (0, *accumulate(len(own) for own, _ in fields))
        structure = Structure(vocabulary, tuple(texts), tuple([gaps for _, gaps in fields]), starts)
        everything = _all_true(len(ids)) if editable is None else editable
        return cls(structure, ids, _count_up(len(ids)), everything)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def words(self) -> list[str]:
        """The words of all fields, in reading order."""
        return list(map(self.structure.vocabulary.strings.__getitem__, self.ids.tolist()))

    def word(self, position: int) -> str:
        """The word at a position."""
        return self.structure.vocabulary.strings[int(self.ids[position])]

    def field_of(self, position: int) -> int:
        """Index of the field of a position."""
        return bisect_right(self.structure.starts, position) - 1

    def to_words(self) -> list[Words]:
        """Each field as `Words`."""
        words, starts = self.words, self.structure.starts
        return [
            Words(tuple(words[starts[field] : starts[field + 1]]), gaps)
            for field, gaps in enumerate(self.structure.gaps)
        ]

    @property
    def texts(self) -> dict[str, str]:
        """Each field as a string."""
        words, starts, texts = self.words, self.structure.starts, {}
        for field, (name, gaps) in enumerate(zip(self.structure.fields, self.structure.gaps, strict=True)):
            pieces = [""] * (2 * len(gaps) - 1)
            pieces[::2], pieces[1::2] = gaps, words[starts[field] : starts[field + 1]]
            texts[name] = "".join(pieces)
        return texts

    # ------------------------------------------------------------------ edits

    def replace(self, position: int, word: int) -> Draft:
        """The draft with another word at a position."""
        if word == DELETE:
            return self.delete(position)
        ids = self.ids.copy()
        ids[position] = word
        known, units = self.structure.units, None
        if known is not None and known is not NOT_PLAIN and self.units is not None:
            units = self.units.copy()
            units[known.unit_of[position]] = word
        return Draft(self.structure, ids, self.origin, self.editable, units)

    def insert(self, position: int, word: int) -> Draft:
        """The draft with a new word before the word at `position`."""
        field = self.field_of(position)
        text = self.to_words()[field].insert(position - self.structure.starts[field], "")
        return self._insert(field, text, position, word)

    def add(self, field: int, word: int, *, front: bool = False) -> Draft:
        """The draft with a new word after (or before) everything in a field."""
        words = self.to_words()[field]
        text = words.prepend("") if front else words.append("")
        position = self.structure.starts[field if front else field + 1]
        return self._insert(field, text, position, word)

    def _insert(self, field: int, text: Words, position: int, word: int) -> Draft:
        return self._restructure(
            field,
            text.gaps,
            1,
            np.insert(self.ids, position, word),
            np.insert(self.origin, position, -1),
            np.insert(self.editable, position, True),
        )

    def delete(self, position: int) -> Draft:
        """The draft without the word at `position`."""
        field = self.field_of(position)
        text = self.to_words()[field].delete(position - self.structure.starts[field])
        return self._without(field, text.gaps, position)

    def merge(self, position: int, word: int) -> Draft:
        """The draft with one word in place of the words at `position` and `position + 1`."""
        field = self.field_of(position)
        text = self.to_words()[field].merge(position - self.structure.starts[field], "")
        merged = self._without(field, text.gaps, position + 1)
        merged.ids[position] = word
        return merged

    def _without(self, field: int, gaps: tuple[str, ...], position: int) -> Draft:
        ids, origin, editable = (np.delete(array, position) for array in (self.ids, self.origin, self.editable))
        return self._restructure(field, gaps, -1, ids, origin, editable)  # type: ignore[arg-type]

    def _restructure(
        self, field: int, gaps: tuple[str, ...], growth: int, ids: Int32, origin: Int32, editable: Bools
    ) -> Draft:
        old = self.structure
        all_gaps = (*old.gaps[:field], gaps, *old.gaps[field + 1 :])
        starts = tuple(start + growth * (index > field) for index, start in enumerate(old.starts))
        return Draft(Structure(old.vocabulary, old.fields, all_gaps, starts), ids, origin, editable)

    def apply(self, edits: Iterable[tuple[int, int, int]]) -> Draft:
        """The draft after several edits (position, span, word), all counted in this draft's positions."""
        draft, edits = self, list(edits)
        if len(edits) == 1 and edits[0][1] == REPLACE:
            return self.replace(edits[0][0], edits[0][2])
        # From the right, so that an edit does not move the positions of those still to come.
        for position, span, word in sorted(edits, reverse=True):
            if span == INSERT:
                draft = draft.insert(position, word)
            elif span == MERGE:
                draft = draft.merge(position, word)
            else:
                draft = draft.replace(position, word)
        return draft


def _number_words(text: str, vocabulary: Vocabulary) -> tuple[Int32, tuple[str, ...]]:
    """Number the words of a text and the gaps around them."""
    if compiled.part is not None:
        found = compiled.part.words_of(text, vocabulary.table, vocabulary.strings)
        if found is not None:
            return np.frombuffer(found[0], np.int32), found[1]
    pieces = split(text)
    return vocabulary.ids(pieces[1::2]), tuple(pieces[::2])


# Most texts are short: their places, and leave to edit all of them, begin two arrays that nobody writes.
_NO_WORDS = np.zeros(0, np.int32)
_PLACES, _TRUTHS = np.arange(1024, dtype=np.int32), np.ones(1024, bool)
for _shared in (_PLACES, _TRUTHS):
    _shared.setflags(write=False)


def _count_up(size: int) -> Int32:
    """0, 1, 2, …"""
    return _PLACES[:size] if size <= len(_PLACES) else np.arange(size, dtype=np.int32)


def _all_true(size: int) -> Bools:
    return _TRUTHS[:size] if size <= len(_TRUTHS) else np.ones(size, bool)


INSERT, REPLACE, MERGE = 0, 1, 2
"""What an edit does: a word before the position, in place of it, or in place of it and the next."""

__all__ = ["DELETE", "INSERT", "MERGE", "NOT_PLAIN", "REPLACE", "UNKNOWN", "Draft", "Structure", "Units"]
