"""On a GPU rows of different lengths share a batch where padding costs less than another launch."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isthmus.engine import packing
from isthmus.engine.packing import _cheap_cuts


def cost(batches: list[list[np.ndarray]], lengths: np.ndarray) -> int:
    return sum(
        packing._LAUNCH_COST
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
    batches = _cheap_cuts(groups, lengths)
    assert sorted(np.concatenate([np.concatenate(batch) for batch in batches]).tolist()) == list(range(len(lengths)))
    others = []
    for cuts in itertools.product([False, True], repeat=len(groups) - 1):
        parts: list[list[np.ndarray]] = [[groups[0]]]
        for group, new in zip(groups[1:], cuts, strict=True):
            parts = [*parts, [group]] if new else [*parts[:-1], [*parts[-1], group]]
        others.append(cost(parts, lengths))
    assert cost(batches, lengths) == min(others)


def test_no_batch_is_larger_than_the_limit() -> None:
    lengths = np.repeat([10, 11, 500], [60_000, 60_000, 3_000])
    groups = np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(lengths)) + 1)
    for batch in _cheap_cuts(groups, lengths):
        assert sum(map(len, batch)) * int(lengths[batch[-1][0]]) <= packing._MOST_TOKENS
