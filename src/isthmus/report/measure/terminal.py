"""Measures of a run in the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.measures.base import MarkedText, Measurement
from isthmus.report.marks import visible
from isthmus.report.measure.view import SHADES, FigureGrid, format_bounds, format_figure
from isthmus.verbs.measure import Measured, measurements

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from isthmus.runs.folder import RunFolder

_STYLES = {"held": "bold green", "loose": "bold red underline", "faint": "dim"}
_SIGNS = {"held": "[{}]", "loose": "*{}*", "faint": "{}"}


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

    grid = FigureGrid.of(found.figures)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(grid.columns))
    table.add_column("", overflow="fold")
    for column in grid.columns:
        table.add_column(Text(visible(column, everything=True)), justify="right")
    for name, cells in grid.lines:
        figures = [
            Text("")
            if cell is None
            else Text.assemble(format_figure(cell), (f"\n{format_bounds(cell)}" if format_bounds(cell) else "", "dim"))
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
        console.print(Padding(_mark_text(text, coloured), (0, 0, 0, 2)))
    if found.texts:
        console.print()
        for kind, meaning in found.legend.items():
            console.print(Text.assemble(_piece(kind, kind, coloured), (f"  {meaning}", "dim")))


def _mark_text(text: MarkedText, coloured: bool) -> Text:
    from rich.text import Text

    found = Text(overflow="fold")
    for piece, kind in text.pieces:
        plain = visible(" ".join(piece.split("\n")))
        found.append_text(_piece(plain, kind, coloured) if kind else Text(plain))
    return found


def _piece(text: str, kind: str, coloured: bool) -> Text:
    from rich.text import Text

    shade = SHADES.get(kind, "")
    if coloured:
        return Text(text, style=_STYLES.get(shade, "underline"))
    return Text(_SIGNS.get(shade, "<{}>").format(text))
