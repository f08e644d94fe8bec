"""Token rows of many candidates, gathered in one step from the tokens of a few texts.

    text      t0 t1 | t2 t3 | t4 … tn                 tokens of a text as it stands
    cut               └─ w0 w1 w2                     what an edit puts in place of some of them (or between two)
    row       [CLS]  t0 t1  w0 w1 w2  t4 … tn  [SEP]  three segments, and what the tokenizer puts around them

A row is a list of segments, each a range of one pool of tokens. Rows are put in the order of their lengths before they
are gathered, so that those of equal length lie side by side and form a matrix without being moved again. Nothing is
done per word of an unchanged text, and tokens that a model would not read are never gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from isthmus.core import compiled
from isthmus.core.types import Ints, TokenBatch
from isthmus.engine.template import Template


@dataclass(slots=True)
class Cuts:
    """Tokens `start` to `stop` of the pool give way to tokens `new` to `new + size`, in one field of one row.

    Sorted by row and field and, within these, from left to right; no two overlap.
    """

    row: Ints
    field: Ints | None  # None: rows have one field
    start: Ints
    stop: Ints
    new: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.row)


class TokenRows:
    """Rows of tokens, one after the other, the shortest first; equal rows may share their tokens."""

    __slots__ = ("_begins", "ids", "keys", "order", "total", "types")

    def __init__(
        self,
        total: Ints,
        order: Ints | None,
        ids: Ints,
        types: Ints | None,
        keys: NDArray[np.uint64] | None = None,
        begins: Ints | None = None,
    ) -> None:
        self.keys = keys  # [rows] what tells rows apart, where it is known already
        self.total = total  # [rows] tokens, the special ones included
        self.order = order  # rows, the shortest first; None where `begins` says where each one is
        self.ids, self.types = ids, types  # [tokens] of all rows, in that order
        self._begins = begins

    def __len__(self) -> int:
        return len(self.total)

    @property
    def begins(self) -> Ints:
        """The position of the first token of each row."""
        if self._begins is None:
            assert self.order is not None
            lengths = self.total[self.order]
            self._begins = np.empty(len(lengths), np.int64)
            self._begins[self.order] = np.cumsum(lengths) - lengths
        return self._begins

    @property
    def matrices(self) -> Iterator[tuple[Ints, Ints | None]]:
        """Ids and segment ids of the rows of each length, the shortest first, if each has tokens of its own."""
        assert self.order is not None
        lengths = self.total[self.order]
        bounds = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)] if len(lengths) else []
        at = 0
        for first, last in pairwise(bounds):
            shape = last - first, int(lengths[first])
            end = at + shape[0] * shape[1]
            yield self.ids[at:end].reshape(shape), None if self.types is None else self.types[at:end].reshape(shape)
            at = end

    def take(self, rows: Ints) -> TokenRows:
        """Some of the rows, in the order given, without the others."""
        return _collect(self.total[rows], self.begins[rows], self.ids, self.types)

    @classmethod
    def join(cls, parts: Sequence[TokenRows]) -> TokenRows:
        """The rows of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        sizes = np.fromiter((len(part.ids) for part in parts), np.int64, len(parts))
        shifts = np.cumsum(sizes) - sizes
        types = [part.types for part in parts if part.types is not None]
        return _collect(
            np.concatenate([part.total for part in parts]),
            np.concatenate([part.begins + shift for part, shift in zip(parts, shifts, strict=True)]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate(types) if types else None,
        )

    def batch(self, rows: Ints, pad: int) -> TokenBatch:
        """Some rows as one batch, padded on the right where their lengths differ."""
        lengths = self.total[rows]
        width = int(lengths.max())
        if compiled.part is not None and self.types is None:
            ids, mask = compiled.part.padded(self.ids, self.begins, self.total, rows, width, pad)
            shape = len(rows), width
            ids = np.frombuffer(ids, np.int64).reshape(shape)
            return TokenBatch(ids, None if mask is None else np.frombuffer(mask, np.int64).reshape(shape))
        columns = np.arange(width)
        places = self.begins[rows][:, None] + columns  # [rows, width]
        if int(lengths.min()) == width:
            return TokenBatch(self.ids[places], None, None if self.types is None else self.types[places])
        is_token = columns < lengths[:, None]
        places[~is_token] = 0
        types = None if self.types is None else np.where(is_token, self.types[places], 0)
        return TokenBatch(np.where(is_token, self.ids[places], pad), is_token.astype(np.int64), types)


def _collect(total: Ints, begins: Ints, ids: Ints, types: Ints | None) -> TokenRows:
    """Rows that begin anywhere in `ids`."""
    order = by_size(total)
    places = join_ranges(begins[order], total[order])
    return TokenRows(total, order, ids[places], None if types is None else types[places])


def gather_rows(
    template: Template, pool: Ints, low: Ints, high: Ints, cuts: Cuts, skip: Ints | None = None
) -> TokenRows:
    """Rows whose field f holds the tokens `low[r, f]` to `high[r, f]` of the pool, with cuts.

    What does not fit is left out at the end of a row; with `skip`, also that many tokens at its beginning.
    """
    starts, sizes = _segments(low, high, cuts)
    lengths: Ints = sizes.sum(axis=2)
    kept = template.truncate(lengths if skip is None else lengths - skip[:, None])
    if skip is not None or (kept < lengths).any():
        _trim(starts, sizes, kept, np.zeros(len(low), np.int64) if skip is None else skip)
    total: Ints = kept.sum(axis=1) + template.added
    order = by_size(total)
    return _lay_out(template, pool, starts[order], sizes[order], total, order)


def _segments(low: Ints, high: Ints, cuts: Cuts) -> tuple[Ints, Ints]:
    """Starts and sizes [rows, fields, segments] of the segments of every field: text, cut, text, cut, …, text."""
    rows, fields = low.shape
    if not len(cuts):
        return low[:, :, None].copy(), (high - low)[:, :, None]
    field = 0 if cuts.field is None else cuts.field
    rank = _ranks(cuts.row * fields + field)
    most = int(rank.max()) + 1
    # [rows, fields, segments]: even places hold the text between cuts, odd ones what a cut puts in its place.
    starts, sizes = np.zeros((2, rows, fields, 2 * most + 1), np.int64)
    # Where a field has fewer cuts than the most there are, the rest of its segments are empty.
    starts[:, :, 0::2], stops = high[:, :, None], np.repeat(high[:, :, None], most + 1, axis=2)
    starts[:, :, 0] = low
    starts[cuts.row, field, 2 * rank + 2] = cuts.stop
    stops[cuts.row, field, rank] = cuts.start
    sizes[:, :, 0::2] = stops - starts[:, :, 0::2]
    starts[cuts.row, field, 2 * rank + 1] = cuts.new
    sizes[cuts.row, field, 2 * rank + 1] = cuts.size
    return starts, sizes


def _ranks(keys: Ints) -> Ints:
    """The rank of each key among its equals, from 0; equal keys lie side by side."""
    new = np.r_[True, keys[1:] != keys[:-1]]
    if new.all():
        return np.zeros(len(keys), np.int64)
    first = np.flatnonzero(new)
    # The running number of the run that a key is in finds where the run begins; the rank is the distance from there.
    ranks: Ints = np.arange(len(keys)) - first[np.cumsum(new) - 1]
    return ranks


def _trim(starts: Ints, sizes: Ints, kept: Ints, skip: Ints) -> None:
    """Leave out the tokens of every field before `skip` and more than `kept` after it."""
    ends = np.cumsum(sizes, axis=2)  # [rows, fields, segments]: a segment covers tokens ends - sizes to ends
    left_out = np.clip(skip[:, None, None] - (ends - sizes), 0, sizes)
    stays = np.clip((skip[:, None] + kept)[:, :, None] - (ends - sizes), 0, sizes)
    starts += left_out
    sizes[:] = np.maximum(stays - left_out, 0)


def _lay_out(template: Template, pool: Ints, starts: Ints, sizes: Ints, total: Ints, order: Ints) -> TokenRows:
    """Put the special tokens in their places and gather everything."""
    rows, fields, segments = starts.shape
    # [rows, columns]: a row is a list of ranges of one pool, which the special tokens continue. One gather reads them.
    columns = fields * segments + template.added
    all_starts, all_sizes = np.empty((rows, columns), np.int64), np.empty((rows, columns), np.int64)
    kinds, at, special = list[int](), 0, len(pool)
    for field in range(fields + 1):
        own = template.special_types[field]
        all_starts[:, at : at + len(own)] = np.arange(special, special + len(own))
        all_sizes[:, at : at + len(own)] = 1
        kinds += own
        at, special = at + len(own), special + len(own)
        if field < fields:
            all_starts[:, at : at + segments] = starts[:, field]
            all_sizes[:, at : at + segments] = sizes[:, field]
            kinds += [template.field_types[field]] * segments
            at += segments
    tokens = np.concatenate([pool, *(np.array(own, np.int64) for own in template.specials)])
    flat = all_sizes.ravel()
    ids = tokens[join_ranges(all_starts.ravel(), flat)]  # [tokens of all rows]
    types = np.repeat(np.tile(np.array(kinds, np.int64), rows), flat) if template.uses_types else None
    return TokenRows(total, order, ids, types)


def by_size(sizes: Ints) -> Ints:
    """Indices in the order of sizes, equal ones as they come."""
    # Small integers are sorted digit by digit, in linear time.
    small = len(sizes) > 0 and int(sizes.max()) < 1 << 16
    return np.argsort(sizes.astype(np.uint16) if small else sizes, kind="stable")


def join_ranges(starts: Ints, lengths: Ints) -> Ints:
    """Indices of the concatenation of the ranges start, start + 1, …, start + length - 1."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    # One count runs through all ranges; each of them is shifted so that it begins at its start.
    return np.arange(total) + np.repeat(starts - ends + lengths, lengths)
