"""Figures of a measure as text, and as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from isthmus.core import catalog
from isthmus.core.errors import UnknownName
from isthmus.measures.base import Figure
from isthmus.report.numerals import percent

SHADES = {"anchored": "held", "non-robust": "loose", "unuseful": "faint"}
"""How kinds of words are shown; a kind that is not here is underlined."""


def format_number(value: float | None) -> str:
    """A number of any size in few digits."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) < 5e-7:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def format_figure(figure: Figure) -> str:
    """The estimate as text."""
    return percent(figure.estimate) if figure.share else format_number(figure.estimate)


def format_bounds(figure: Figure) -> str:
    """The interval as text; empty if there is none."""
    if figure.low is None or figure.high is None or math.isnan(figure.low):
        return ""
    if figure.share:
        return f"{100 * figure.low:.1f}–{100 * figure.high:.1f}"
    low, high = format_number(figure.low), format_number(figure.high)
    return f"{low} to {high}" if "-" in low + high else f"{low}–{high}"


@dataclass(frozen=True)
class FigureGrid:
    """Figures as a table: one line per name, one column per thing measured."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Figure | None, ...]], ...]

    @classmethod
    def of(cls, figures: Sequence[Figure]) -> FigureGrid:
        """Names and columns in the order of first occurrence."""
        columns = tuple(dict.fromkeys(figure.of for figure in figures))
        names = dict.fromkeys(figure.name for figure in figures)
        found = {(figure.name, figure.of): figure for figure in figures}
        return cls(columns, tuple((name, tuple(found.get((name, column)) for column in columns)) for name in names))


def summary(measure: str) -> str:
    """One sentence about a measure; empty if this version does not know it."""
    try:
        return catalog.find("measures", measure).summary
    except UnknownName:
        return ""
