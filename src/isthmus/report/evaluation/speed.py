"""Speed and cost of evaluated models, for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core.statistics import Interval
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.marks import visible
from isthmus.report.numerals import decimal, percent, percent_bounds

HOW_FAST = (
    "Wall time on this machine. p50, p95: one example alone, with the interval of the quantile. Examples per second: "
    "in full batches, with the range of the rounds. Passes: forward passes; a gradient counts as one more."
)
Cell = tuple[str, str]
"""A figure, and its interval."""


@dataclass(frozen=True)
class SpeedLine:
    """One line of the table."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class SpeedLines:
    """The table; empty columns are left out."""

    headings: tuple[str, ...]
    lines: tuple[SpeedLine, ...]


def speed_lines(views: Sequence[EvaluationView]) -> SpeedLines:
    """One line for every set on which the model was timed."""
    timed = [(view, speed) for view in views if (speed := view.speed)]
    columns: dict[str, list[Cell]] = {
        "p50": [_milliseconds(speed.p50, speed.single) for _, speed in timed],
        "p95": [_milliseconds(speed.p95) for _, speed in timed],
        "examples\nper s": [_rate(speed.texts_per_second) for _, speed in timed],
        "passes\neach": [_passes(speed.passes) for _, speed in timed],
        "second\nstep": [_share(speed.second) for _, speed in timed],
        "cost of\n1,000": [_cost(view.cost_per_1000) for view, _ in timed],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(figure for figure, _ in cells)}
    rows = zip(*columns.values(), strict=True) if timed else ()
    names = [visible(view.key, everything=True) for view, _ in timed]
    lines = tuple(SpeedLine(name, tuple(cells)) for name, cells in zip(names, rows, strict=True))
    return SpeedLines(tuple(columns), lines)


def _milliseconds(time: Interval, texts: int = 0) -> Cell:
    if math.isnan(time.estimate):
        return "", ""
    low, high = (_format_milliseconds(bound) for bound in (time.low, time.high))
    span = f"{low}–{high}" if low and high else f"over {low}" if low else ""
    return f"{_format_milliseconds(time.estimate)} ms", ", ".join(
        part for part in (span, f"n {texts}" if texts else "") if part
    )


def _format_milliseconds(seconds: float) -> str:
    return decimal(1000 * seconds) if math.isfinite(seconds) else ""


def _rate(rate: Interval) -> Cell:
    if math.isnan(rate.estimate):
        return "", ""
    return decimal(rate.estimate), f"{decimal(rate.low)}–{decimal(rate.high)}"


def _passes(value: float | None) -> Cell:
    return ("", "") if value is None else (decimal(value), "")


def _share(share: Interval | None) -> Cell:
    return ("", "") if share is None else (percent(share.estimate), percent_bounds(share, unit=False))


def _cost(value: float | None) -> Cell:
    return ("", "") if value is None else (f"{value:.3g}", "")
