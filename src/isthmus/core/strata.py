"""One seeded order of labelled rows in which every beginning is stratified.

Within each label the rows are shuffled; the j-th of a label's N rows is then placed at (j + ½) / N. Sorting by that
place interleaves the labels evenly, so the first n rows hold each label in proportion (to within one row), and a
larger n only adds rows at the end: samples are nested.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    """Disjoint groups of the given sizes, each stratified and with its labels mixed from the first row on."""
    order = stratified_order(labels, seed, *key)
    groups, start = [], 0
    for size in sizes:
        groups.append(order[start : start + size])
        start += size
    return groups
