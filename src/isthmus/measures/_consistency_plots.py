"""The curves of `interpretation_consistency`: overlap by k, and tau by the number of words changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.statistics import Interval
from isthmus.measures.base import Plot, Series

CHANGED = ((1, 1, "1"), (2, 2, "2"), (3, 4, "3–4"), (5, 8, "5–8"), (9, None, "9 or more"))
"""First and last number of words changed of each group, and its name."""


@dataclass(frozen=True)
class ConsistencyCurve:
    """Top-k overlap by k, or tau by the number of words changed, of one run and outcome."""

    name: str
    x: tuple[float, ...]
    means: tuple[Interval, ...]


def top_plot(curves: Sequence[ConsistencyCurve]) -> Plot:
    """Plot the overlap by k."""
    return Plot(
        name="interpretation_top_k",
        title="Words among the k heaviest both before and after the attack",
        x_label="k",
        y_label="overlap",
        series=tuple(_make_series(curve) for curve in curves),
        percent="y",
        caption="Bands are 95 % bootstrap intervals over texts. By place a replaced word counts as the same one.",
    )


def plot_changes(curves: Sequence[ConsistencyCurve]) -> Plot:
    """Plot tau by the number of words changed."""
    return Plot(
        name="interpretation_by_changes",
        title="Kendall's tau between the words' weights before and after, by words changed",
        x_label="words changed",
        y_label="tau-b",
        series=tuple(_make_series(curve) for curve in curves),
        kind="bars",
        ticks=tuple(name for _, _, name in CHANGED),
        caption="95 % bootstrap intervals over texts.",
    )


def _make_series(curve: ConsistencyCurve) -> Series:
    known = [place for place, each in enumerate(curve.means) if not math.isnan(each.estimate)]
    return Series(
        curve.name,
        tuple(curve.x[place] for place in known),
        tuple(curve.means[place].estimate for place in known),
        y_bounds=tuple((curve.means[place].low, curve.means[place].high) for place in known),
    )
