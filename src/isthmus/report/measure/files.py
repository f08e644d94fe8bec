"""Plots of measures as files in a run's folder of figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import MissingExtra
from isthmus.verbs.measure import Measured

if TYPE_CHECKING:
    from rich.console import Console


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
