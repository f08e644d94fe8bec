"""Speed and cost of evaluated models, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.marks import visible
from isthmus.report.numerals import decimal, percent, percent_bounds, read_interval

if TYPE_CHECKING:
    from rich.table import Table

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
        "p50": [_milliseconds(speed.get("p50_s"), speed.get("single_texts")) for _, speed in timed],
        "p95": [_milliseconds(speed.get("p95_s"), None) for _, speed in timed],
        "examples\nper s": [_rate(speed.get("texts_per_second")) for _, speed in timed],
        "passes\neach": [_passes(speed.get("passes_per_text")) for _, speed in timed],
        "second\nstep": [_share(speed.get("second_step")) for _, speed in timed],
        "cost of\n1,000": [_cost(speed.get("cost_per_1000")) for _, speed in timed],
    }
    columns = {heading: cells for heading, cells in columns.items() if any(figure for figure, _ in cells)}
    rows = zip(*columns.values(), strict=True) if timed else ()
    names = [visible(view.key, everything=True) for view, _ in timed]
    lines = tuple(SpeedLine(name, tuple(cells)) for name, cells in zip(names, rows, strict=True))
    return SpeedLines(tuple(columns), lines)


def speed_table(views: Sequence[EvaluationView]) -> Table:
    """The same for a terminal of eighty columns."""
    from rich.table import Table
    from rich.text import Text

    found = speed_lines(views)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("speed", overflow="fold", min_width=14, vertical="top")
    for heading in found.headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in found.lines:
        table.add_row(Text(line.name), *(Text.assemble(figure, "\n", (span, "dim")) for figure, span in line.cells))
    return table


def _milliseconds(figure: Any, texts: Any) -> Cell:
    if not isinstance(figure, Mapping) or figure.get("estimate") is None:
        return "", ""
    low, high = (_format_milliseconds(figure.get(key)) for key in ("low", "high"))
    span = f"{low}–{high}" if low and high else f"over {low}" if low else ""
    return f"{_format_milliseconds(figure['estimate'])} ms", ", ".join(
        part for part in (span, f"n {texts}" if texts else "") if part
    )


def _format_milliseconds(seconds: Any) -> str:
    return "" if seconds is None else decimal(1000 * float(seconds))


def _rate(figure: Any) -> Cell:
    interval = read_interval(figure)
    if interval.estimate != interval.estimate:
        return "", ""
    return decimal(interval.estimate), f"{decimal(interval.low)}–{decimal(interval.high)}"


def _passes(value: Any) -> Cell:
    return ("", "") if value is None else (decimal(float(value)), "")


def _share(figure: Any) -> Cell:
    return (
        (percent(read_interval(figure).estimate), percent_bounds(read_interval(figure), unit=False))
        if figure
        else ("", "")
    )


def _cost(value: Any) -> Cell:
    return ("", "") if value is None else (f"{float(value):.3g}", "")
