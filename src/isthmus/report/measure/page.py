"""Measures of a run as a section of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.measures.base import MarkedText
from isthmus.report.measure.view import SHADES, FigureGrid, summary
from isthmus.verbs.measure import measurements

if TYPE_CHECKING:
    from isthmus.runs.folder import RunFolder


@dataclass(frozen=True)
class MeasureSection:
    """One measurement on the page."""

    key: str
    summary: str
    grid: FigureGrid
    plots: tuple[tuple[Any, str], ...]
    """Markup and caption."""
    texts: tuple[MarkedText, ...]
    legend: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def sections(folder: RunFolder) -> list[MeasureSection]:
    """Every measurement of a run."""
    from markupsafe import Markup

    from isthmus.report.measure import figure as plots

    return [
        MeasureSection(
            each.key,
            summary(each.measure),
            FigureGrid.of(each.measurement.figures),
            tuple((Markup(plots.inline(plot, each.key)), plot.caption) for plot in each.measurement.plots),
            each.measurement.texts,
            tuple(each.measurement.legend.items()),
            each.measurement.notes,
        )
        for each in measurements(folder)
    ]


def shade(kind: str) -> str:
    """The CSS class of a piece of text."""
    return SHADES.get(kind, "other") if kind else ""
