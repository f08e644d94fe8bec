"""Turns edits into token rows: the candidates of a whole round, spliced by array operations.

    edits ─► changes of units (`isthmus.engine.changes`) ─► cuts of tokens ─► rows (`isthmus.engine.rows`)

What a unit is depends on the tokenizer (see `isthmus.text.splice`); its tokens are looked up. A candidate whose edits
cannot be made unit by unit is written out and tokenised whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core import compiled
from isthmus.core.types import Int32, Ints, Keys
from isthmus.engine.changes import ONE_FIELD, CandidateEdits, Changes, Laid, LaidTexts, changes_of, make_draft
from isthmus.engine.rows import Cuts, TokenRows, gather_rows, join_ranges
from isthmus.engine.template import Template
from isthmus.text.draft import NOT_PLAIN, Draft, Units
from isthmus.text.splice import Splicer, every_other
from isthmus.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_numbers = count()


class Assembler:
    """Builds token rows for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary, max_tokens: int) -> None:
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.splicer = Splicer.shared(tokenizer, vocabulary)
        self.number = next(_numbers)  # under which drafts note their units
        self._templates: dict[int, Template] = {}
        scramble = np.random.default_rng(0x1575)
        # One key for every token in every segment, and one for every place; ids may have gaps.
        self._size = self.splicer.size
        self._token_keys = scramble.integers(1, 2**63, 2 * self._size, np.uint64) * np.uint64(2) + np.uint64(1)
        self._place_keys = scramble.integers(1, 2**63, max_tokens + 1, np.uint64) * np.uint64(2) + np.uint64(1)

    def renew(self, vocabulary: Vocabulary) -> None:
        """Use another vocabulary; the units of the old one stay with it, because others may still use them."""
        self.splicer = Splicer.shared(self.tokenizer, vocabulary)

    def template(self, fields: int) -> Template:
        """The special tokens around rows with this number of fields."""
        if fields not in self._templates:
            self._templates[fields] = Template(self.tokenizer, fields, self.max_tokens)
        return self._templates[fields]

    # ------------------------------------------------------------------ laying out

    def lay(self, draft: Draft) -> Laid:
        """The units of a draft."""
        structure, splicer = draft.structure, self.splicer
        if splicer.mode == "bare":
            if structure.units is None or (draft.units is None and structure.units is not NOT_PLAIN):
                self._lay_plain(draft)
            known = structure.units
            if draft.units is not None and known is not None and known.separators == splicer.separators:
                return Laid(draft.units, known.unit_of, known.sections)
        laid: Laid | None = draft.note(self.number)
        if laid is None:
            laid = Laid.of([splicer.layout(text) for text in draft.to_words()], bare=splicer.mode == "bare")
            draft.keep_note(self.number, laid)
        return laid

    def _lay_plain(self, draft: Draft) -> None:
        structure, ids = draft.structure, draft.ids
        if structure.units is not None and structure.units.separators != self.splicer.separators:
            return
        if len(structure.gaps) == 1:  # The usual text: one field, every second unit a word.
            units = self.splicer.plain_units(ids, structure.gaps[0])
            if units is None:
                structure.units = NOT_PLAIN
                return
            draft.units = units
            if structure.units is None:
                structure.units = Units(every_other(len(ids)), ONE_FIELD, self.splicer.separators)
            return
        layouts = []
        for field, gaps in enumerate(structure.gaps):
            layout = self.splicer.plain_layout(ids[structure.starts[field] : structure.starts[field + 1]], gaps)
            if layout is None:
                structure.units = NOT_PLAIN
                return
            layouts.append(layout)
        laid = Laid.of(layouts)
        draft.units = laid.units
        if structure.units is None:
            structure.units = Units(laid.unit_of, laid.sections, self.splicer.separators)

    # ------------------------------------------------------------------ rows

    def rows(self, requests: Sequence[CandidateEdits]) -> TokenRows:
        """The token rows of all candidates, request after request."""
        made = None if compiled.part is None else self._splice_compiled(requests)
        return self.splice_rows(requests) if made is None else made

    def _splice_compiled(self, requests: Sequence[CandidateEdits]) -> TokenRows | None:
        """Splice in one pass over all tokens, for texts with one field whose words are all units; None otherwise."""
        if not requests or len(requests[0].base.structure.fields) != 1 or self.template(1).uses_types:
            return None
        units, words = list[Int32](), list[Int32]()
        bare, separators = self.splicer.mode == "bare", self.splicer.separators
        for request in requests:
            base = request.base
            own, known = base.units, base.structure.units
            if own is not None and known is not None and bare and known.separators == separators:
                units.append(own)
                words.append(known.unit_of)
                continue
            laid = self._plain(base)
            if laid is None:
                return None
            units.append(laid[0])
            words.append(laid[1])
        edits = [request.edits for request in requests]
        number, splicer, template = len(requests), self.splicer, self.template(1)
        splicer.flush()
        found = compiled.part.rows(
            np.concatenate(units), np.fromiter(map(len, units), np.int64, number),
            np.concatenate(words), np.fromiter(map(len, words), np.int64, number),
            np.concatenate(edits), np.fromiter(map(len, edits), np.int64, number),
            np.fromiter((request.count for request in requests), np.int64, number),
            splicer.starts, splicer.lengths, splicer.tokens,
            *(np.array(own, np.int64) for own in template.specials),
            self._token_keys, self._place_keys, max(0, template.room),
        )  # fmt: skip
        if found is None:
            return None
        total, begins, ids = (np.frombuffer(array, np.int64) for array in found[:3])
        return TokenRows(total, None, ids, None, np.frombuffer(found[3], np.uint64), begins)

    def _plain(self, draft: Draft) -> tuple[Int32, Int32] | None:
        """The units of a draft and where its words are among them; None where some word shares its unit."""
        known, splicer = draft.structure.units, self.splicer
        if draft.units is not None and known is not None and known.separators == splicer.separators:
            return (draft.units, known.unit_of) if splicer.mode == "bare" else None
        laid = self.lay(draft)
        return None if laid.whole or laid.frames is not None else (laid.units, laid.unit_of)

    def unread_from(self, draft: Draft) -> int:
        """The first word of a long text of one field that no row holds a token of, nor of any behind it."""
        found: int | None = draft.note(key := (self.number, "unread"))
        if found is None:
            laid = self._plain(draft) if len(draft.structure.fields) == 1 else None
            found = len(draft)
            if laid is not None:
                self.splicer.flush()
                sizes = self.splicer.lengths[laid[0]]
                begins = (np.cumsum(sizes) - sizes)[laid[1]]  # [words] where each word's tokens begin
                found = int(np.searchsorted(begins, self.template(1).room))
            draft.keep_note(key, found)
        return found

    def splice_rows(self, requests: Sequence[CandidateEdits]) -> TokenRows:
        """Splice by array operations: for every text, tokenizer and kind of edit."""
        texts = LaidTexts([self.lay(request.base) for request in requests])
        counts = np.fromiter((request.count for request in requests), np.int64, len(requests))
        changes = changes_of(self.splicer, requests, texts, counts)
        low, high = texts.bounds()
        return self.join(
            texts, np.repeat(low, counts, axis=0), np.repeat(high, counts, axis=0), changes,
            self.encode(_write_candidates(requests, counts, changes.odd)),
        )  # fmt: skip

    def encode(self, texts: Mapping[int, Sequence[str]]) -> dict[int, list[list[int]]]:
        """The tokenizer's own ids of the fields of some rows."""
        written = [text for fields in texts.values() for text in fields]
        ids = iter(self.splicer.subwords.encode(written) if written else ())
        return {row: [next(ids) for _ in fields] for row, fields in texts.items()}

    def join(
        self, texts: LaidTexts, low: Ints, high: Ints, changes: Changes, whole: Mapping[int, Sequence[Sequence[int]]]
    ) -> TokenRows:
        """Rows that hold the units `low[r, f]` to `high[r, f]` with changes; those in `whole` hold the ids given."""
        stock = Stock(self.splicer, texts, changes)
        low, high = stock.at[low], stock.at[high]
        for row, fields in whole.items():
            for field, ids in enumerate(fields):
                low[row, field], high[row, field] = stock.add(ids)
        return gather_rows(self.template(low.shape[1]), stock.pool, low, high, stock.cuts)

    # ------------------------------------------------------------------ identity of rows

    def keys(self, ids: Ints, types: Ints | None) -> Keys:
        """A 64-bit key for each row of a matrix of ids: equal rows, equal keys (and hardly ever otherwise)."""
        length = ids.shape[1]
        if types is not None and types.any():
            ids = ids + types * self._size
        mixed = self._token_keys[ids]
        mixed *= self._place_keys[:length]
        mixed ^= mixed >> np.uint64(29)
        keys: Any = mixed.sum(axis=1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(length)
        keys ^= keys >> np.uint64(32)
        keys[keys == 0] = 1  # 0 marks an empty place in the cache
        return keys  # type: ignore[no-any-return]

    def row_keys(self, rows: TokenRows) -> Keys:
        """The keys of all rows."""
        if rows.keys is not None:
            return rows.keys
        if not len(rows):
            return np.zeros(0, np.uint64)
        keys = np.empty(len(rows), np.uint64)
        assert rows.order is not None
        keys[rows.order] = np.concatenate([self.keys(ids, types) for ids, types in rows.matrices])
        return keys


class Stock:
    """The tokens that the rows of a round are made of: those of the texts, then those of the changes, then others."""

    def __init__(self, splicer: Splicer, texts: LaidTexts, changes: Changes) -> None:
        splicer.flush()
        sizes = splicer.lengths[texts.units]
        self.at = np.zeros(len(sizes) + 1, np.int64)  # where each unit's tokens begin
        np.cumsum(sizes, out=self.at[1:])
        new = changes.units.ravel()
        new_sizes = splicer.lengths[new]
        self._pieces = [
            splicer.tokens[join_ranges(splicer.starts[texts.units], sizes)],
            splicer.tokens[join_ranges(splicer.starts[new], new_sizes)],
        ]
        size = new_sizes if changes.units.ndim == 1 else new_sizes.reshape(-1, 2).sum(axis=1)
        where = self.at[-1] + np.cumsum(size) - size
        self.cuts = Cuts(changes.row, changes.field, self.at[changes.first], self.at[changes.last], where, size)
        self.end = int(self.at[-1] + new_sizes.sum())

    def add(self, ids: Sequence[int]) -> tuple[int, int]:
        """Append tokens; return where they begin and end."""
        start, self.end = self.end, self.end + len(ids)
        self._pieces.append(np.array(ids, np.int32))
        return start, self.end

    @property
    def pool(self) -> Ints:
        """All tokens."""
        return np.concatenate(self._pieces, dtype=np.int64)


def _write_candidates(requests: Sequence[CandidateEdits], counts: Ints, rows: Sequence[int]) -> dict[int, list[str]]:
    """Some candidates as texts."""
    texts, ends = {}, np.cumsum(counts)
    for row in rows:
        index = int(np.searchsorted(ends, row, side="right"))
        texts[row] = list(make_draft(requests[index], row - int(ends[index] - counts[index])).texts.values())
    return texts
