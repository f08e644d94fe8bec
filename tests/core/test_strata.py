from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.strata import grouped_order, link_rows, stratified_order, stratified_split

labels = st.lists(st.integers(-1, 4), min_size=1, max_size=120)


@given(labels, st.integers(0, 5))
def test_every_beginning_is_stratified(rows, seed):
    order = stratified_order(rows, seed)
    assert sorted(order) == list(range(len(rows)))
    totals = Counter(rows)
    seen: Counter[int] = Counter()
    for n, row in enumerate(order, start=1):
        seen[rows[row]] += 1
        for label, total in totals.items():
            # Rounding at one half in each of the labels.
            assert abs(seen[label] - n * total / len(rows)) <= 1 + len(totals) / 2


@given(labels, st.integers(0, 5))
def test_seeded(rows, seed):
    assert stratified_order(rows, seed, "a") == stratified_order(rows, seed, "a")


def test_keys_and_seeds_matter():
    rows = [0, 1] * 50
    orders = [stratified_order(rows, seed, key) for seed in (0, 1) for key in ("a", "b")]
    assert len({tuple(order) for order in orders}) == 4


def test_split():
    rows = [0] * 60 + [1] * 40
    groups = stratified_split(rows, [70, 20, 10], 0, "x")
    assert [len(group) for group in groups] == [70, 20, 10]
    assert sorted(row for group in groups for row in group) == list(range(100))
    assert [sum(rows[row] for row in group) for group in groups] == [28, 8, 4]


def test_groups_stay_together_and_are_shuffled() -> None:
    groups = [row % 7 for row in range(21)]
    order = grouped_order(groups, 0, "x")
    assert sorted(order) == list(range(21))
    met = [groups[row] for row in order]
    assert [met[i : i + 3] for i in range(0, 21, 3)] == [[g] * 3 for g in dict.fromkeys(met)]
    assert list(dict.fromkeys(met)) != list(range(7))
    assert order == grouped_order(groups, 0, "x")
    assert order != grouped_order(groups, 1, "x")


def test_rows_are_linked_through_others() -> None:
    # 0-1 share a text, 1-2 share a question, so 0 and 2 belong together; 3 is alone.
    found = link_rows(["t", "t", "u", "v"], ["a", "b", "b", "c"])
    assert found[0] == found[1] == found[2] != found[3]
    assert link_rows([], []) == []
