"""From edits to token rows: the candidates of a whole round, spliced by array operations.

    base units  ─ repeat per candidate ─►  rows of units  ─ assign edits ─►  edited rows  ─ look up ─►  rows of tokens

A row of one field is ``prefix A suffix``, of two ``prefix A middle B suffix``; what the tokenizer puts around the
content is learnt by asking it. Rows longer than the model reads are truncated as the tokenizer would (the longer field
first), and units that lie wholly behind the limit are never looked at, so that a text of 100,000 words costs no more
than what the model sees of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Ints, TokenBatch
from isthmus.engine.cache import Keys
from isthmus.engine.requests import Edits, Score
from isthmus.text.draft import REPLACE, Draft, Units
from isthmus.text.splice import Layout, Splicer
from isthmus.text.words import Words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Int64 = NDArray[np.int64]


@dataclass(slots=True)
class Rows:
    """Token rows, their content still scattered: row r, field f is ``tokens[starts[r, f]:][:lengths[r, f]]``."""

    tokens: NDArray[np.int32]
    starts: Int64  # [rows, fields]
    lengths: Int64  # [rows, fields]
    total: Int64  # [rows] tokens with the special ones

    def __len__(self) -> int:
        return len(self.total)


class Template:
    """What a tokenizer puts before, between and after the content of a row."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, fields: int, max_tokens: int) -> None:
        texts = ("a b", "c d")[:fields]
        bare = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
        encoding = tokenizer(*texts, return_token_type_ids=True)
        ids, types = list(encoding["input_ids"]), list(encoding["token_type_ids"])
        self.specials: list[list[int]] = []
        self.special_types: list[list[int]] = []
        self.field_types: list[int] = []
        at = 0
        for content in bare:
            start = _find(ids, content, at)
            self.specials.append(ids[at:start])
            self.special_types.append(types[at:start])
            self.field_types.append(types[start])
            at = start + len(content)
        self.specials.append(ids[at:])
        self.special_types.append(types[at:])
        self.uses_types = "token_type_ids" in tokenizer.model_input_names
        self.added = sum(map(len, self.specials))
        self.room = max_tokens - self.added  # content tokens that fit

    def truncated(self, lengths: Int64) -> Int64:
        """Content lengths [rows, fields] after truncation, the longer field first."""
        if lengths.shape[1] == 1:
            return np.minimum(lengths, self.room)
        if not (lengths.sum(axis=1) > self.room).any():
            return lengths
        low, high = lengths.min(axis=1), lengths.max(axis=1)
        # The longer field shrinks to the length of the shorter; if that is not enough, each gets half.
        kept_high = np.where(low > self.room, low, np.maximum(low, self.room - low))
        kept_high = np.minimum(kept_high, high)
        halved = low + kept_high > self.room
        kept_low = np.where(halved, self.room // 2, low)
        kept_high = np.where(halved, self.room // 2 + self.room % 2, kept_high)
        swapped = lengths[:, 0] > lengths[:, 1]
        first = np.where(swapped, kept_high, kept_low)
        second = np.where(swapped, kept_low, kept_high)
        over = lengths.sum(axis=1) > self.room
        return np.where(over[:, None], np.stack([first, second], axis=1), lengths)

    def matrix(self, rows: Rows, chosen: Int64) -> tuple[Ints, Ints | None]:
        """Ids and segment ids of the chosen rows, which all have the same total length."""
        length = int(rows.total[chosen[0]])
        if rows.starts.shape[1] == 1:
            before, after = self.specials
            content = length - self.added
            ids = np.empty((len(chosen), length), np.int64)
            ids[:, : len(before)] = before
            ids[:, len(before) + content :] = after
            ids[:, len(before) : len(before) + content] = rows.tokens[rows.starts[chosen] + np.arange(content)]
            types = np.full(ids.shape, self.field_types[0], np.int64) if self.uses_types else None
            return ids, types
        return self._pair_matrix(rows, chosen, length)

    def _pair_matrix(self, rows: Rows, chosen: Int64, length: int) -> tuple[Ints, Ints | None]:
        pieces, kinds, base = [rows.tokens], list[int](), len(rows.tokens)
        starts, lengths = list[Int64](), list[Int64]()
        for index, special in enumerate(self.specials):
            pieces.append(np.array(special, np.int32))
            starts.append(np.full(len(chosen), base))
            lengths.append(np.full(len(chosen), len(special)))
            kinds.append(self.special_types[index][0] if special else 0)
            base += len(special)
            if index < len(self.field_types):
                starts.append(rows.starts[chosen, index])
                lengths.append(rows.lengths[chosen, index])
                kinds.append(self.field_types[index])
        start, count = np.stack(starts, axis=1).ravel(), np.stack(lengths, axis=1).ravel()
        ids = np.concatenate(pieces)[_spread(start, count)].reshape(len(chosen), length).astype(np.int64)
        if not self.uses_types:
            return ids, None
        types = np.repeat(np.tile(kinds, len(chosen)), count).reshape(len(chosen), length)
        return ids, types.astype(np.int64)


class Assembler:
    """Builds the token rows of a round of `Score` requests for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, splicer: Splicer, max_tokens: int) -> None:
        self.tokenizer, self.splicer, self.max_tokens = tokenizer, splicer, max_tokens
        self._templates: dict[int, Template] = {}
        scramble = np.random.default_rng(0x1575)
        # One key for every token in every segment, and one for every place.
        self._token_keys = scramble.integers(1, 2**63, 2 * len(tokenizer), np.uint64) * np.uint64(2) + np.uint64(1)
        self._place_keys = scramble.integers(1, 2**63, max_tokens + 1, np.uint64) * np.uint64(2) + np.uint64(1)

    def template(self, fields: int) -> Template:
        """What is put around rows of so many fields."""
        if fields not in self._templates:
            self._templates[fields] = Template(self.tokenizer, fields, self.max_tokens)
        return self._templates[fields]

    # ------------------------------------------------------------------ laying out

    def prepare(self, draft: Draft) -> Units:
        """Make sure that a draft has units."""
        structure = draft.structure
        if structure.units is None or draft.units is None:
            layouts = self._layouts(draft)
            sections = _ONE_FIELD
            plain = all(layout.frames is None and not layout.whole for layout in layouts)
            if len(layouts) == 1:
                unit_of, draft.units = layouts[0].unit_of, layouts[0].units
            else:
                sizes = [len(layout.units) for layout in layouts]
                sections = np.cumsum([0, *sizes])[:-1].astype(np.int32)
                draft.units = np.concatenate([layout.units for layout in layouts])
                unit_of = np.concatenate(
                    [
                        np.where(layout.unit_of < 0, -1, layout.unit_of + section).astype(np.int32)
                        for layout, section in zip(layouts, sections, strict=True)
                    ]
                )
            frames = None
            if not plain or self.splicer.mode != "bare":
                plain = False
                frames = tuple(
                    frame for layout in layouts for frame in (layout.frames or [("", "")] * len(layout.unit_of))
                )
            structure.units = Units(unit_of, sections, frames, plain, any(layout.whole for layout in layouts))
        return structure.units

    def _layouts(self, draft: Draft) -> list[Layout]:
        structure, splicer = draft.structure, self.splicer
        parsed: list[Words] | None = None
        ids = draft.ids.tolist()
        layouts = []
        for field, gaps in enumerate(structure.gaps):
            layout = None
            if splicer.mode == "bare":
                layout = splicer.plain_layout(ids[structure.starts[field] : structure.starts[field + 1]], gaps)
            if layout is None:
                parsed = parsed or draft.parsed()
                layout = splicer.layout(parsed[field])
            layouts.append(layout)
        return layouts

    def rows(self, requests: Sequence[Score]) -> Rows:
        """The token rows of all candidates, request after request; their drafts must be prepared."""
        fields = len(requests[0].base.structure.fields)
        # Whoever asks has prepared the drafts.
        plain = [request.base.structure.units.plain for request in requests]  # type: ignore[union-attr]
        edits = np.concatenate([request.edits for request in requests])
        if all(plain) and (edits[:, 2] == REPLACE).all():
            rows = self._spliced(requests, edits)
        else:
            easy = [
                is_plain and bool((request.edits[:, 2] == REPLACE).all())
                for is_plain, request in zip(plain, requests, strict=True)
            ]
            rows = self._mixed(requests, easy)
        template = self.template(fields)
        rows.lengths = template.truncated(rows.lengths)
        rows.total = rows.lengths.sum(axis=1) + template.added
        return rows

    def _mixed(self, requests: Sequence[Score], easy: Sequence[bool]) -> Rows:
        """Some candidates insert or merge words, or lie in texts that can't be cut: build those one by one."""
        counts = [request.count for request in requests]
        offsets = np.cumsum([0, *counts])
        fields = len(requests[0].base.structure.fields)
        starts = np.zeros((offsets[-1], fields), np.int64)
        lengths = np.zeros_like(starts)
        tokens = np.zeros(0, np.int32)
        quick = [index for index, is_easy in enumerate(easy) if is_easy]
        if quick:
            chosen = [requests[index] for index in quick]
            spliced = self._spliced(chosen, np.concatenate([request.edits for request in chosen]))
            where = np.concatenate([np.arange(offsets[index], offsets[index + 1]) for index in quick])
            starts[where], lengths[where], tokens = spliced.starts, spliced.lengths, spliced.tokens
        odd = [index for index, is_easy in enumerate(easy) if not is_easy]
        contents = [content for index in odd for content in self._one_by_one(requests[index])]
        where = np.concatenate([np.arange(offsets[index], offsets[index + 1]) for index in odd])
        flat = [piece for content in contents for piece in content]  # row after row, field after field
        sizes = np.fromiter(map(len, flat), np.int64, len(flat)).reshape(-1, fields)
        lengths[where] = sizes
        starts[where] = len(tokens) + (np.cumsum(sizes) - sizes.ravel()).reshape(-1, fields)
        return Rows(np.concatenate([tokens, *flat]).astype(np.int32), starts, lengths, np.zeros(0, np.int64))

    def _one_by_one(self, request: Score) -> list[list[NDArray[np.int32]]]:
        """The content of each candidate's fields, for a request of any kind."""
        contents: list[list[NDArray[np.int32]] | None] = []
        texts: list[str] = []
        bounds = np.searchsorted(request.edits[:, 0], np.arange(request.count + 1))
        edits = request.edits[:, 1:].tolist()
        for candidate in range(request.count):
            own = edits[bounds[candidate] : bounds[candidate + 1]]
            units = self._edited_units(request.base, own)
            if units is None:
                texts += request.base.apply([(position, span, word) for position, span, word in own]).texts.values()
            contents.append(units)
        encoded = iter(self.splicer.encode(texts))
        fields = len(request.base.structure.fields)
        self.splicer.flush()
        return [
            [self._tokens_of(units) for units in content]
            if content is not None
            else [np.array(next(encoded), np.int32) for _ in range(fields)]
            for content in contents
        ]

    def _edited_units(self, base: Draft, edits: Sequence[Sequence[int]]) -> list[NDArray[np.int32]] | None:
        """Each field's units after the edits, or None where the text must be tokenised."""
        known = base.structure.units
        assert known is not None
        assert base.units is not None
        touched = [int(known.unit_of[position]) for position, _, _ in edits]
        if known.whole or -1 in touched or len(set(touched)) < len(touched):
            return None
        units = base.units.copy()
        inserts = []
        for unit, (position, span, word) in zip(touched, edits, strict=True):
            if span == REPLACE:
                frame = known.frames[position] if known.frames is not None else None
                new = word if known.plain or frame is None else self._framed(frame, word)
                if new < 0:
                    return None
                units[unit] = new
            elif span == 0 and known.plain:
                inserts.append((unit, word))
            else:
                return None
        parts = np.split(units, known.sections[1:])
        for unit, word in sorted(inserts, reverse=True):
            field = int(np.searchsorted(known.sections, unit, side="right")) - 1
            parts[field] = np.insert(parts[field], unit - known.sections[field], word)
        return parts

    def _framed(self, frame: tuple[str, str], word: int) -> int:
        return word if frame == ("", "") and self.splicer.mode == "bare" else self.splicer.framed(frame, word)

    def _tokens_of(self, units: NDArray[np.int32]) -> NDArray[np.int32]:
        splicer = self.splicer
        return splicer.tokens[_spread(splicer.starts[units], splicer.lengths[units])]

    # ------------------------------------------------------------------ splicing

    def _spliced(self, requests: Sequence[Score], edits: Edits) -> Rows:
        splicer = self.splicer
        splicer.flush()
        fields = len(requests[0].base.structure.fields)
        if fields == 1 and any(len(request.base.units) > self.max_tokens for request in requests):  # type: ignore[arg-type]
            requests = [self._within_reach(request) for request in requests]
            edits = np.concatenate([request.edits for request in requests])
        bases = [request.base.units for request in requests if request.base.units is not None]
        sizes = np.fromiter(map(len, bases), np.int64, len(bases))
        counts = np.fromiter((request.count for request in requests), np.int64, len(requests))
        base_units = np.concatenate(bases)
        base_starts = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(len(requests)), counts)  # [rows]
        row_sizes = sizes[owner]
        row_starts = np.cumsum(row_sizes) - row_sizes
        units = base_units[_spread(base_starts[owner], row_sizes)]
        if len(edits):
            self._assign(units, requests, edits, counts, row_starts)
        per_unit = splicer.lengths[units]
        tokens = splicer.tokens[_spread(splicer.starts[units], per_unit)]
        section_starts = row_starts[:, None]
        if fields > 1:
            sections = np.stack([request.base.structure.units.sections for request in requests])  # type: ignore[union-attr]
            section_starts = row_starts[:, None] + sections[owner]
        lengths = np.add.reduceat(per_unit, section_starts.ravel()) if len(units) else np.zeros(0, np.int64)
        starts = np.cumsum(lengths) - lengths
        shape = section_starts.shape
        return Rows(tokens, starts.reshape(shape), lengths.reshape(shape), np.zeros(0, np.int64))

    def _assign(
        self, units: NDArray[np.int32], requests: Sequence[Score], edits: Edits, counts: Int64, row_starts: Int64
    ) -> None:
        edit_counts = np.fromiter((len(request.edits) for request in requests), np.int64, len(requests))
        unit_of = [request.base.structure.units.unit_of for request in requests]  # type: ignore[union-attr]
        word_counts = np.fromiter(map(len, unit_of), np.int64, len(unit_of))
        of_edit = np.repeat(np.arange(len(requests)), edit_counts)
        row = edits[:, 0] + (np.cumsum(counts) - counts)[of_edit]
        place = np.concatenate(unit_of)[edits[:, 1] + (np.cumsum(word_counts) - word_counts)[of_edit]]
        units[row_starts[row] + place] = edits[:, 3]

    def _within_reach(self, request: Score) -> Score:
        """The request without the units and edits that lie behind what the model reads."""
        units = request.base.units
        assert units is not None
        if len(units) <= self.max_tokens:
            return request
        sizes = self.splicer.lengths[units]
        edits = request.edits
        most = int(np.bincount(edits[:, 0]).max()) if len(edits) else 0
        # Deleting a word pulls later ones into view: leave room for the largest deletions a candidate can make.
        reach = self.max_tokens + most * int(sizes.max())
        end = int(np.searchsorted(np.cumsum(sizes), reach)) + 1
        if end >= len(units):
            return request
        known = request.base.structure.units
        assert known is not None
        shorter = Draft(
            request.base.structure, request.base.ids, request.base.origin, request.base.editable, units[:end]
        )
        return Score(shorter, edits[known.unit_of[edits[:, 1]] < end], request.count, request.exact)

    # ------------------------------------------------------------------ identity of rows

    def keys(self, ids: Ints, types: Ints | None) -> Keys:
        """A 64-bit key for each row of a matrix of ids: equal rows, equal keys (and hardly ever otherwise)."""
        length = ids.shape[1]
        if types is not None and types.any():
            ids = ids + types * len(self.tokenizer)
        mixed = self._token_keys[ids]
        mixed *= self._place_keys[:length]
        mixed ^= mixed >> np.uint64(29)
        keys: Any = mixed.sum(axis=1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(length)
        keys ^= keys >> np.uint64(32)
        keys[keys == 0] = 1  # 0 marks an empty place in the cache
        return keys  # type: ignore[no-any-return]


def padded(ids: Sequence[Ints], types: Sequence[Ints | None], length: int, pad: int) -> TokenBatch:
    """One batch of matrices of different lengths, padded on the right."""
    rows = sum(map(len, ids))
    all_ids = np.full((rows, length), pad, np.int64)
    mask = np.zeros((rows, length), np.int64)
    all_types = np.zeros((rows, length), np.int64) if types[0] is not None else None
    at = 0
    for matrix, segment in zip(ids, types, strict=True):
        block = slice(at, at + len(matrix)), slice(0, matrix.shape[1])
        all_ids[block] = matrix
        mask[block] = 1
        if all_types is not None and segment is not None:
            all_types[block] = segment
        at += len(matrix)
    return TokenBatch(all_ids, mask, all_types)


def _spread(starts: Int64, lengths: Int64) -> Int64:
    """Indices of the concatenation of the ranges start, start + 1, …, start + length - 1."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - ends + lengths, lengths)


_ONE_FIELD = np.zeros(1, np.int32)


def _find(ids: list[int], content: list[int], at: int) -> int:
    for start in range(at, len(ids) - len(content) + 1):
        if ids[start : start + len(content)] == content:
            return start
    raise ValueError("the tokenizer changes a text's ids when it adds special tokens")
