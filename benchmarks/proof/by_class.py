"""Which class are the texts of that withstand an attack? A model that prefers one answer keeps that class alone.

In every seed the classes are ordered by the share of their texts that is right under the attack; the first is the
favoured one. Shares are averaged over seeds. The ledger has no labels, so the data are read beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from isthmus.data import Dataset
from ledger import Cell
from proof.tables import markdown

Shares = NDArray[np.float64]
"""Of one seed [classes, 2]: right without attack and under it, the favoured class first."""


def shares_of(clean: Cell, attacked: Cell, data: Dataset) -> Shares:
    """The shares of one training."""
    if clean.key.data["fingerprint"] != attacked.key.data["fingerprint"] or clean.key.n != len(data):
        raise DataError(f"{clean.row!r} was asked about other texts than {data.name} has")
    labels = np.array(data.label_indices())
    order = {example.id: place for place, example in enumerate(data)}
    asked = [order[example.id] for example in data.sample(attacked.key.n)]
    there = np.unique(labels)
    found = np.array(
        [[clean.right[labels == each].mean(), attacked.right[labels[asked] == each].mean()] for each in there]
    )
    return found[np.argsort(-found[:, 1], kind="stable")]


def table(cells: Iterable[Cell], data: Dataset, backbone: str, attack: str, rows: Sequence[str]) -> str:
    """The favoured class and the least favoured one of each row, mean over seeds, in per cent."""
    clean: dict[tuple[str, int], Cell] = {}
    attacked: dict[tuple[str, int], Cell] = {}
    for cell in cells:
        key = cell.key
        if key.backbone != backbone or key.data["name"] != data.name or key.data["split"] != data.split or key.measure:
            continue
        if key.attack is None:
            clean[cell.row, key.seed] = cell
        elif key.attack["name"] == attack and not key.limits:
            attacked[cell.row, key.seed] = cell
    head = ["", "seeds", "favoured class", "other class", f"favoured class, {attack}", f"other class, {attack}"]
    lines = []
    for row in rows:
        seeds = sorted(seed for name, seed in clean.keys() & attacked.keys() if name == row)
        if seeds:
            found = np.mean([shares_of(clean[row, seed], attacked[row, seed], data) for seed in seeds], axis=0)
            shown = [f"{100 * found[place, column]:.1f}" for column in (0, 1) for place in (0, -1)]
            lines.append([row, str(len(seeds)), *shown])
    return markdown(head, lines)
