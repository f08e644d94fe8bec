"""Measures of a run: in the terminal, as figure files, and as a section of the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.core.errors import MissingExtra, UnknownName
from isthmus.measures.base import Figure, MarkedText, Measurement
from isthmus.report.marks import visible
from isthmus.report.numerals import percent
from isthmus.verbs.measure import Measured, measurements

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from isthmus.runs.folder import RunFolder

_SHADES = {"anchored": "held", "non-robust": "loose", "unuseful": "faint"}
"""How kinds of words are shown; a kind that is not here is underlined."""
_STYLES = {"held": "bold green", "loose": "bold red underline", "faint": "dim"}
_SIGNS = {"held": "[{}]", "loose": "*{}*", "faint": "{}"}


def number(value: float | None) -> str:
    """A number of any size in few digits."""
    if value is None or math.isnan(value):
        return "–"
    if abs(value) < 5e-7:
        return "0"
    if abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def shown(figure: Figure) -> str:
    """The estimate as text."""
    return percent(figure.estimate) if figure.share else number(figure.estimate)


def bounds(figure: Figure) -> str:
    """The interval as text; empty if there is none."""
    if figure.low is None or figure.high is None or math.isnan(figure.low):
        return ""
    if figure.share:
        return f"{100 * figure.low:.1f}–{100 * figure.high:.1f}"
    low, high = number(figure.low), number(figure.high)
    return f"{low} to {high}" if "-" in low + high else f"{low}–{high}"


@dataclass(frozen=True)
class Grid:
    """Figures as a table: one line per name, one column per thing measured."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Figure | None, ...]], ...]

    @classmethod
    def of(cls, figures: Sequence[Figure]) -> Grid:
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


def print_measured(console: Console, measured: Measured, files: Sequence[Path] = ()) -> None:
    """Print title, table, marked texts, notes and the paths of the figures."""
    from rich.text import Text

    found = measured.measurement
    told = f"   {visible(measured.folder.name)}" + ("   measured before" if measured.was_there else "")
    console.print()
    console.print(Text.assemble((visible(measured.key), "bold"), (told, "dim")))
    if found.figures:
        console.print(figure_table(found))
    _print_texts(console, found)
    for note in found.notes:
        console.print(Text(visible(note), style="dim"))
    if files:
        names = ", ".join(path.stem for path in files if path.suffix == ".svg")
        console.print(Text(f"figures (SVG, PNG) in {files[0].parent}: {names}", style="dim"), soft_wrap=True)


def print_tables(console: Console, folder: RunFolder) -> None:
    """Print the figures of all measures of a run, without texts and notes."""
    for each in measurements(folder):
        if each.measurement.figures:
            print_measured(console, dataclasses.replace(each, measurement=Measurement(each.measurement.figures)))


def figure_table(found: Measurement) -> Table:
    """The figures, each with its interval under it."""
    from rich.table import Table
    from rich.text import Text

    grid = Grid.of(found.figures)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(grid.columns))
    table.add_column("", overflow="fold")
    for column in grid.columns:
        table.add_column(Text(visible(column, everything=True)), justify="right")
    for name, cells in grid.lines:
        figures = [
            Text("")
            if cell is None
            else Text.assemble(shown(cell), (f"\n{bounds(cell)}" if bounds(cell) else "", "dim"))
            for cell in cells
        ]
        table.add_row(Text(visible(name)), *figures)
    return table


def _print_texts(console: Console, found: Measurement) -> None:
    from rich.padding import Padding
    from rich.text import Text

    coloured = console.is_terminal and not console.no_color
    for text in found.texts:
        console.print()
        console.print(Text(visible(text.title, everything=True), style="dim"))
        console.print(Padding(_marked(text, coloured), (0, 0, 0, 2)))
    if found.texts:
        console.print()
        for kind, meaning in found.legend.items():
            console.print(Text.assemble(_piece(kind, kind, coloured), (f"  {meaning}", "dim")))


def _marked(text: MarkedText, coloured: bool) -> Text:
    from rich.text import Text

    found = Text(overflow="fold")
    for piece, kind in text.pieces:
        plain = visible(" ".join(piece.split("\n")))
        found.append_text(_piece(plain, kind, coloured) if kind else Text(plain))
    return found


def _piece(text: str, kind: str, coloured: bool) -> Text:
    from rich.text import Text

    shade = _SHADES.get(kind, "")
    if coloured:
        return Text(text, style=_STYLES.get(shade, "underline"))
    return Text(_SIGNS.get(shade, "<{}>").format(text))


def write_figures(measured: Measured, console: Console | None = None) -> list[Path]:
    """Write every missing plot as SVG and PNG into the run's folder of figures."""
    from isthmus.report.measure import figure as plots

    written: list[Path] = []
    for plot in measured.measurement.plots:
        there = measured.figure_files(plot.name)
        if measured.was_there and all(path.is_file() for path in there):
            written += there
            continue
        try:
            with measured.folder.hold("measure"):
                written += plots.save(plot, there[0].with_name(there[0].name.removesuffix(".svg")))
        except MissingExtra as error:
            if console is not None:
                console.print(str(error), markup=False)
            return []
    return written


@dataclass(frozen=True)
class Section:
    """One measurement on the page."""

    key: str
    summary: str
    grid: Grid
    plots: tuple[tuple[Any, str], ...]
    """Markup and caption."""
    texts: tuple[MarkedText, ...]
    legend: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def sections(folder: RunFolder) -> list[Section]:
    """Every measurement of a run."""
    from markupsafe import Markup

    from isthmus.report.measure import figure as plots

    return [
        Section(
            each.key,
            summary(each.measure),
            Grid.of(each.measurement.figures),
            tuple((Markup(plots.inline(plot, each.key)), plot.caption) for plot in each.measurement.plots),
            each.measurement.texts,
            tuple(each.measurement.legend.items()),
            each.measurement.notes,
        )
        for each in measurements(folder)
    ]


def shade(kind: str) -> str:
    """The CSS class of a piece of text."""
    return _SHADES.get(kind, "other") if kind else ""
