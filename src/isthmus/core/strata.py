"""A seeded order of labelled rows whose every prefix is stratified, and an order that keeps groups together.

Within each label the rows are shuffled; the j-th of a label's N rows is then placed at (j + ½) / N. Sorting by that
place interleaves the labels evenly, so the first n rows hold each label in proportion (to within one row), and a
larger n only adds rows at the end: samples are nested. Questions have no labels to stratify by, but some belong
together: variants of one question, questions about one text.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from isthmus.core.seeds import python_stream


def stratified_order(labels: Sequence[int], seed: int, *key: str | int) -> list[int]:
    """Row numbers in the seeded stratified order; `key` names what the order is for."""
    groups: dict[int, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label, []).append(row)
    placed: list[tuple[float, float, int]] = []
    for label, rows in groups.items():
        stream = python_stream(seed, "strata", *key, label)
        tie = stream.random()
        stream.shuffle(rows)
        placed.extend(((position + 0.5) / len(rows), tie, row) for position, row in enumerate(rows))
    return [row for _, _, row in sorted(placed)]


def stratified_split(labels: Sequence[int], sizes: Sequence[int], seed: int, *key: str | int) -> list[list[int]]:
    """Disjoint groups of the given sizes, each stratified and shuffled."""
    order = stratified_order(labels, seed, *key)
    groups, start = [], 0
    for size in sizes:
        groups.append(order[start : start + size])
        start += size
    return groups


def grouped_order(groups: Sequence[Hashable], seed: int, *key: str | int) -> list[int]:
    """Row numbers group by group, the groups in a seeded order; rows of one group keep theirs."""
    rows: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows.setdefault(group, []).append(row)
    order = list(rows.values())
    python_stream(seed, "groups", *key).shuffle(order)
    return [row for group in order for row in group]


def link_rows(*keys: Sequence[Hashable]) -> list[int]:
    """The group of every row; rows that share any key, directly or through others, are in one group."""
    parent = list(range(len(keys[0])))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = row = parent[parent[row]]
        return row

    for column in keys:
        first: dict[Hashable, int] = {}
        for row, value in enumerate(column):
            parent[root(row)] = root(first.setdefault(value, row))
    return [root(row) for row in range(len(parent))]
