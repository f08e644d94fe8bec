"""Packs rows into batches, and sends batches through a model.

On a CPU a row's bits must not depend on what it was batched with, so that results are the same whatever the number of
attacks in flight: rows of equal token length are batched together and nothing is padded, or, for a model whose bits are
known to withstand it, lengths are mixed inside a block of 16 tokens. On a GPU lengths are mixed where padding costs
less than another launch, and identity is promised for the same packing only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from isthmus.core.errors import VictimError
from isthmus.core.types import Floats, Ints, Keys, Pending, TokenBatch
from isthmus.engine.rows import TokenRows, by_size


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a machine, by which batches are cut."""

    launch: int  # padded tokens whose forward pass costs about as much as one more launch
    most: int  # padded tokens in one batch


GPU = Costs(4_000, 1 << 18)
GPU_BF16 = Costs(16_000, 1 << 18)  # a token takes a quarter of the time
CPU = Costs(20, 2048)  # beyond that nothing is gained, and caches overflow

Failures = dict[int, VictimError]


@dataclass(slots=True)
class Packed:
    """Rows in batches."""

    batches: list[TokenBatch]
    order: Ints  # indices into the rows asked for, in the order in which the batches hold them

    @property
    def places(self) -> Ints:
        """For every requested row, its position in the batches."""
        places = np.empty(len(self.order), np.int64)
        places[self.order] = np.arange(len(self.order))
        return places


def pack_rows(
    work: TokenRows,
    chosen: Ints,
    *,
    on_gpu: bool,
    pad: int,
    streams: Keys | None = None,
    block: int = 1,
    half: bool = False,
) -> Packed:
    """Batches of the chosen rows; on a CPU lengths are mixed inside blocks of `block` tokens.

    A row may be chosen several times; `streams` has a key for each time. `half` says that the model is in 16 bits.
    """
    lengths = work.total[chosen]
    by_length = by_size(lengths)
    cuts = np.flatnonzero(np.diff(lengths[by_length])) + 1
    groups = [group for group in np.split(by_length, cuts) if len(group)]  # rows of one length each, shortest first
    if on_gpu:
        joined = _cheap_cuts(groups, lengths, GPU_BF16 if half else GPU)
    else:
        joined = [
            parts
            for _, family in groupby(groups, lambda group: _family(int(lengths[group[0]]), block))
            for parts in _cheap_cuts(list(family), lengths, CPU)
        ]
    together = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in joined]
    batches = [work.batch(chosen[own], pad) for own in together]
    if streams is not None:
        for batch, own in zip(batches, together, strict=True):
            batch.keys = streams[own]
    return Packed(batches, np.concatenate(together) if together else np.zeros(0, np.int64))


def _family(length: int, block: int) -> tuple[int, bool]:
    """Rows of one family may share a batch on a CPU; one that fills its last block has that to itself."""
    return length // block, length % block == 0


def _cheap_cuts(groups: Sequence[Ints], lengths: Ints, costs: Costs) -> list[list[Ints]]:
    """Groups of rows of one length each, joined into batches at the least cost in padded tokens and launches.

        cost(i, j) = launch + rows(i … j) * longest(i … j),    best(j) = min over i of best(i) + cost(i, j)

    Groups come shortest first; one that is too large for a batch is cut before.
    """
    groups = [
        group[start : start + most]
        for group in groups
        for most in [max(4, costs.most // int(lengths[group[0]]))]
        for start in range(0, len(group), most)
    ]
    if len(groups) == 1:
        return [groups]
    rows = np.cumsum([0, *map(len, groups)])
    longest = np.array([int(lengths[group[0]]) for group in groups], np.int64)
    best, cut = np.zeros(len(groups) + 1), np.zeros(len(groups) + 1, np.int64)
    for end in range(1, len(groups) + 1):
        tokens = (rows[end] - rows[:end]) * longest[end - 1]  # [end]: padded tokens of a batch of groups i … end - 1
        cost = best[:end] + costs.launch + np.where(tokens > costs.most, np.inf, tokens)
        cost[end - 1] = best[end - 1] + costs.launch + tokens[-1]
        cut[end] = int(cost.argmin())
        best[end] = cost[cut[end]]
    batches = []
    end = len(groups)
    while end:
        batches.append(groups[cut[end] : end])
        end = int(cut[end])
    return batches


# ---------------------------------------------------------------------- through a model


def launch_batches(
    launch: Callable[[Sequence[TokenBatch]], Pending], work: Packed, spent: Callable[[float], None]
) -> Callable[[], tuple[Floats, Failures]]:
    """Start a model on batches; the result waits for one row of numbers per row, as the batches hold them.

    Where a launch fails the batches are tried one by one, then in halves, so that only the guilty rows are lost: these
    hold NaN, and the second result says why.
    """
    began = time.perf_counter()
    pending, early = None, None
    try:
        pending = launch(work.batches) if work.batches else None
    except Exception as error:
        early = error
    spent(time.perf_counter() - began)

    def wait() -> tuple[Floats, Failures]:
        began = time.perf_counter()
        failed: Failures = {}
        try:
            if early is not None:
                raise early
            values = np.zeros((0, 1), np.float32) if pending is None else pending()
        except Exception:
            values = _rescue(launch, work, failed)
        spent(time.perf_counter() - began)
        return values, failed

    return wait


def _rescue(launch: Callable[[Sequence[TokenBatch]], Pending], work: Packed, failed: Failures) -> Floats:
    found: list[tuple[int, Floats]] = []
    at = 0
    for batch in work.batches:
        for rows in halves(len(batch.ids)):
            try:
                found.append((at + rows.start, launch([_take_rows(batch, rows)])()))
            except Exception as error:
                if len(rows) > 1:
                    rows.split = True
                    continue
                failed[at + rows.start] = as_victim_error(error)
        at += len(batch.ids)
    width = found[0][1].shape[1] if found else 1
    values = np.full((at, width), np.nan, np.float32)
    for start, own in found:
        values[start : start + len(own)] = own
    return values


def _take_rows(batch: TokenBatch, rows: Range) -> TokenBatch:
    chosen = slice(rows.start, rows.stop)
    return TokenBatch(
        batch.ids[chosen],
        None if batch.mask is None else batch.mask[chosen],
        None if batch.types is None else batch.types[chosen],
        None if batch.keys is None else batch.keys[chosen],
    )


def distinct(keys: Keys) -> tuple[Ints, Ints]:
    """One index of every key that occurs, and for each key which of these is its own."""
    order = np.argsort(keys)
    ordered = keys[order]
    new = np.ones(len(keys), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    inverse = np.empty(len(keys), np.int64)
    inverse[order] = np.cumsum(new) - 1
    return order[new], inverse


def not_finite(values: Floats, failed: Failures) -> None:
    """Mark rows with NaN or infinity as failed."""
    for index in np.flatnonzero(~np.isfinite(values).all(axis=1)):
        failed.setdefault(int(index), VictimError("the model returned NaN or infinity"))


def as_victim_error(error: BaseException) -> VictimError:
    """Any exception, as the error of a victim."""
    if isinstance(error, VictimError):
        return error
    return VictimError(f"the victim raised {type(error).__name__}: {error}")


@dataclass(slots=True)
class Range:
    """Rows start to stop; set `split` to be given its halves next."""

    start: int
    stop: int
    split: bool = False

    def __len__(self) -> int:
        return self.stop - self.start


def halves(count: int) -> Iterator[Range]:
    """The whole range; then, wherever the caller asks for a split, its halves, down to single rows."""
    stack = [Range(0, count)] if count else []
    while stack:
        current = stack.pop()
        yield current
        if current.split:
            middle = (current.start + current.stop) // 2
            stack += [Range(middle, current.stop), Range(current.start, middle)]
