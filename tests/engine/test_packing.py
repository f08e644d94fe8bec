"""On a GPU rows of different lengths share a batch where padding costs less than another launch."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine import packing
from isthmus.engine.packing import _cheap_cuts
from isthmus.engine.rows import TokenRows


def cost(batches: list[list[np.ndarray]], lengths: np.ndarray) -> int:
    return sum(
        packing.GPU.launch
        + sum(map(len, batch)) * max(int(lengths[group[0]]) for group in batch)
        for batch in batches
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(3, 90)), min_size=1, max_size=7, unique_by=lambda item: item[1])
)
def test_no_other_cut_is_cheaper(sizes: list[tuple[int, int]]) -> None:
    sizes.sort(key=lambda item: item[1])
    lengths = np.repeat([length for _, length in sizes], [count for count, _ in sizes])
    groups = np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(lengths)) + 1)
    batches = _cheap_cuts(groups, lengths, packing.GPU)
    assert sorted(np.concatenate([np.concatenate(batch) for batch in batches]).tolist()) == list(range(len(lengths)))
    others = []
    for cuts in itertools.product([False, True], repeat=len(groups) - 1):
        parts: list[list[np.ndarray]] = [[groups[0]]]
        for group, new in zip(groups[1:], cuts, strict=True):
            parts = [*parts, [group]] if new else [*parts[:-1], [*parts[-1], group]]
        others.append(cost(parts, lengths))
    assert cost(batches, lengths) == min(others)


@given(st.lists(st.integers(3, 70), min_size=1, max_size=80), st.sampled_from([1, 16]))
def test_on_a_cpu_lengths_are_mixed_inside_blocks_only(lengths: list[int], block: int) -> None:
    total = np.array(lengths)
    order = np.argsort(total, kind="stable")
    ids = np.concatenate([np.full(total[row], row, np.int64) for row in order])
    work = packing.pack_rows(
        TokenRows(total, order, ids, None), np.arange(len(total)), on_gpu=False, pad=-1, block=block
    )
    seen = []
    for batch in work.batches:
        own = batch.ids[:, 0]
        seen += own.tolist()
        assert batch.ids.size <= max(packing.CPU.most, 4 * batch.ids.shape[1])
        for row, line in zip(own, batch.ids, strict=True):
            length = int(total[row])
            assert (line[:length] == row).all()
            assert (line[length:] == -1).all()
            if length < len(line):
                assert block == 16
                assert length // 16 == len(line) // 16
                assert length % 16 > 0
                assert batch.mask is not None
        if batch.mask is not None:
            assert batch.mask.sum(axis=1).tolist() == total[own].tolist()
    assert seen == work.order.tolist()
    assert sorted(seen) == list(range(len(total)))


def test_no_batch_is_larger_than_the_limit() -> None:
    lengths = np.repeat([10, 11, 500], [60_000, 60_000, 3_000])
    groups = np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(lengths)) + 1)
    for batch in _cheap_cuts(groups, lengths, packing.GPU):
        assert sum(map(len, batch)) * int(lengths[batch[-1][0]]) <= packing.GPU.most
