"""Token rows around blanks.

    the plot is [MASK] and the acting terrible          all of the field, where it fits;
    … plot is [MASK] and the acting …                   else as many tokens around the blank as the model takes

A blank is an edit that puts in the mask token, so rows are spliced as those of candidates are. Where a tokenizer does
not cut a text so that this can be done, the text is written out with the mask in it and tokenised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.types import Ints
from isthmus.engine.assembly import Assembler, Stock
from isthmus.engine.changes import Changes, LaidTexts, changes_of
from isthmus.engine.requests import NO_EDITS, Edits, Fill, Likelihood, Score, at_each
from isthmus.engine.rows import TokenRows, gather_rows, join_ranges
from isthmus.text.draft import Draft
from isthmus.text.splice import PROBES
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import Words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(slots=True)
class Around:
    """Rows, and the blanks in them: blank i is the token at `place[i]` of row `row[i]`, and belongs to `entry[i]`."""

    rows: TokenRows
    row: Ints
    place: Ints
    entry: Ints
    tokens: Ints | None = None  # what stood in the blanks, where that is asked for


class Contexts:
    """Builds rows around blanks for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary, context: int) -> None:
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self.assembler = Assembler(tokenizer, vocabulary, context)
        self.mask = str(tokenizer.mask_token)
        self.mask_id = int(tokenizer.mask_token_id)
        self.splices = self._splices()

    def _splices(self) -> bool:
        """Whether splicing in a mask gives what the tokenizer makes of a text with a mask in it."""
        splicer = self.assembler.splicer
        for probe in PROBES:
            text = Words.of(probe)
            layout = splicer.layout(text)
            for position in range(len(text)):
                spliced = splicer.splice(layout, position, self.mask)
                written = str(text.replace({position: self.mask}))
                if spliced is not None and spliced != splicer.subwords.encode([written])[0]:
                    return False
        return True

    # ------------------------------------------------------------------ what is asked

    def blank(self, requests: Sequence[Fill]) -> Around:
        """One blank for every position of every request."""
        asked = _Asked.of(requests, self.assembler)
        mask = self.vocabulary.id(self.mask)
        edits = [at_each(request.positions, mask, request.span) for request in requests]
        changes, odd = self._changes(asked, edits)
        written = {
            row: self._tokenise(asked.base(row).apply([(position, span, mask)]), position)
            for row in odd
            for position, span in [(int(asked.position[row]), requests[asked.owner[row]].span)]
        }
        rows, place = self._rows(asked, changes, written)
        every = np.arange(len(rows))
        return Around(rows, every, place, every)

    def keep_words(self, requests: Sequence[Fill]) -> Around:
        """Every sub-word of the word at every position of every request; nothing is blanked."""
        asked = _Asked.of(requests, self.assembler)
        changes, _ = self._changes(asked, [NO_EDITS] * len(requests))
        odd = np.flatnonzero(~asked.texts.plain[asked.owner]).tolist()
        written = {row: self._tokenise(asked.base(row), int(asked.position[row])) for row in odd}
        units = asked.units()
        self.assembler.splicer.flush()
        sizes = self.assembler.splicer.lengths[asked.texts.units[units]]
        sizes[odd] = [len(places) for _, places in written.values()]
        rows, place = self._rows(asked, changes, written, units)
        entry = np.repeat(np.arange(len(rows)), sizes)
        return Around(rows, entry, join_ranges(place, sizes), entry)

    def put_words(self, requests: Sequence[Likelihood]) -> Around:
        """Put blanks for the sub-words of each word in its place; `tokens` are those sub-words."""
        asked = _Asked.of(requests, self.assembler)
        words = np.concatenate([request.words for request in requests]).astype(np.int64)
        splicer = self.assembler.splicer
        splicer.flush()
        plain = asked.texts.plain[asked.owner] & self.splices
        sizes = np.where(plain, splicer.lengths[words], 0)
        masks = {size: self.vocabulary.id(" ".join([self.mask] * size)) for size in np.unique(sizes).tolist()}
        edits = at_each(asked.position.astype(np.int32), 0)
        edits[:, 3] = [masks[size] for size in sizes.tolist()]
        changes, _ = self._changes(asked, _number_edits(edits, asked.counts), np.flatnonzero(~plain).tolist())
        starts = splicer.starts[words].tolist()
        tokens = [splicer.tokens[start : start + size] for start, size in zip(starts, sizes.tolist(), strict=True)]
        written = {}
        for row in np.flatnonzero(~plain).tolist():
            position = int(asked.position[row])
            ids, places = self._tokenise(asked.base(row).replace(position, int(words[row])), position)
            written[row] = [self.mask_id if at in places else token for at, token in enumerate(ids)], places
            tokens[row], sizes[row] = np.array([ids[at] for at in places], np.int32), len(places)
        rows, place = self._rows(asked, changes, written)
        entry = np.repeat(np.arange(len(rows)), sizes)
        return Around(rows, entry, join_ranges(place, sizes), entry, np.concatenate(tokens).astype(np.int64))

    # ------------------------------------------------------------------ rows

    def _changes(
        self, asked: _Asked, edits: Sequence[Edits], also_odd: Sequence[int] = ()
    ) -> tuple[Changes, list[int]]:
        """The changes by the edits, in rows of one field, and the rows that cannot be spliced."""
        candidates = [
            Score(request.base, own, count)
            for request, own, count in zip(asked.requests, edits, asked.counts.tolist(), strict=True)
        ]
        changes = changes_of(self.assembler.splicer, candidates, asked.texts, asked.counts)
        changes.field = None
        odd = sorted({*changes.odd, *also_odd}) if self.splices else list(range(len(asked.position)))
        return (changes.keep(~np.isin(changes.row, odd)) if odd else changes), odd

    def _rows(
        self, asked: _Asked, changes: Changes, written: Mapping[int, _Tokenised], units: Ints | None = None
    ) -> tuple[TokenRows, Ints]:
        """Rows around the first change of each, or around a unit of it; and where in them that is."""
        low, high = (bounds[asked.owner, asked.field] for bounds in asked.texts.bounds())
        stock = Stock(self.assembler.splicer, asked.texts, changes)
        cuts, low, high = stock.cuts, stock.at[low], stock.at[high]
        length = high - low + np.bincount(cuts.row, cuts.size - cuts.stop + cuts.start, len(low)).astype(np.int64)
        if units is not None:
            place = stock.at[units] - low
        else:
            place = np.zeros(len(low), np.int64)
            # From the last to the first, so that a row keeps its first change.
            place[cuts.row[::-1]] = (cuts.start + self._before_mask(stock) - low[cuts.row])[::-1]
        for row, (ids, places) in written.items():
            low[row], high[row] = stock.add(ids)
            place[row], length[row] = places[0] if places else 0, len(ids)
        template = self.assembler.template(1)
        skip = np.clip(place - template.room // 2, 0, np.maximum(0, length - template.room))
        rows = gather_rows(template, stock.pool, low[:, None], high[:, None], cuts, skip if skip.any() else None)
        return rows, place - skip + len(template.specials[0])

    def _before_mask(self, stock: Stock) -> Ints:
        """For every cut the number of its tokens before the mask."""
        masks = np.flatnonzero(stock.pool == self.mask_id)
        found = np.searchsorted(masks, stock.cuts.new)
        inside = found < len(masks)
        first = np.where(inside, masks[np.minimum(found, len(masks) - 1)] if len(masks) else 0, 0)
        return np.where(inside & (first < stock.cuts.new + stock.cuts.size), first - stock.cuts.new, 0)

    def _tokenise(self, draft: Draft, position: int) -> _Tokenised:
        """Token ids of the field in which a position lies, and which of them spell the word there."""
        field = draft.field_of(position)
        text = draft.to_words()[field]
        start, end = text.offsets()[position - draft.structure.starts[field]]
        encoding = self.assembler.splicer.subwords.backend.encode(str(text), add_special_tokens=False)
        places = [at for at, (left, right) in enumerate(encoding.offsets) if left < end and right > start]
        return list(encoding.ids), places


_Tokenised = tuple[list[int], list[int]]


@dataclass(slots=True)
class _Asked:
    """The positions of all requests, one row for each."""

    requests: Sequence[Fill | Likelihood]
    texts: LaidTexts
    counts: Ints
    owner: Ints  # [rows] index of the request
    position: Ints  # [rows]
    field: Ints  # [rows]

    @classmethod
    def of(cls, requests: Sequence[Fill] | Sequence[Likelihood], assembler: Assembler) -> _Asked:
        texts = LaidTexts([assembler.lay(request.base) for request in requests])
        counts = np.fromiter((len(request.positions) for request in requests), np.int64, len(requests))
        owner = np.repeat(np.arange(len(requests)), counts)
        position = np.concatenate([request.positions for request in requests]).astype(np.int64)
        starts = np.array([request.base.structure.starts for request in requests], np.int64)
        field = (position[:, None] >= starts[owner, 1:-1]).sum(axis=1)
        return cls(requests, texts, counts, owner, position, field)

    def base(self, row: int) -> Draft:
        base: Draft = self.requests[self.owner[row]].base
        return base

    def units(self) -> Ints:
        """The unit of the word at each position; the first one of all where it has none of its own."""
        chosen = self.texts.plain[self.owner]
        units = np.zeros(len(self.position), np.int64)
        units[chosen] = self.texts.unit(self.owner[chosen], self.position[chosen])
        return units


def _number_edits(edits: Edits, counts: Ints) -> list[Edits]:
    """Edits of one candidate each, request after request, as each request numbers them."""
    parts = np.split(edits, np.cumsum(counts)[:-1])
    for part in parts:
        part[:, 0] = np.arange(len(part))
    return parts
