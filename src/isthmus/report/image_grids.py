"""Draws small images as squares of plain colours: the page's policy shows no pictures, and squares stay sharp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from isthmus.measures.base import Plot

_SHADES = 16
"""Shades of each channel: enough for the eye at this size; more only make the file larger."""


def draw(figure: Figure, plot: Plot, ink: str) -> None:
    """The panels of a plot, row by row."""
    columns = max(len(row) for row in plot.panels)
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=10.5, color=ink)
    for row, panels in enumerate(plot.panels):
        for column, panel in enumerate(panels):
            axes = figure.add_subplot(len(plot.panels), columns, row * columns + column + 1, facecolor="none")
            axes.set_title(panel.title, fontsize=9, color=ink)
            paint(axes, np.array(panel.pixels, dtype=np.int64))


def paint(axes: Axes, pixels: NDArray[np.int64]) -> None:
    """An image [height, width, 1 or 3] of 0 to 255: one shape for every colour, neighbours in a line joined."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    height, width = pixels.shape[:2]
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_aspect("equal")
    axes.axis("off")
    shades = np.broadcast_to(pixels * (_SHADES - 1) // 255 * 255 // (_SHADES - 1), (height, width, 3))
    boxes: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
    for y in range(height):
        cuts = np.flatnonzero((shades[y, 1:] != shades[y, :-1]).any(axis=1)) + 1
        for start, end in zip([0, *cuts], [*cuts, width], strict=True):
            boxes.setdefault(tuple(int(value) for value in shades[y, start]), []).append((y, int(start), int(end)))
    for colour, places in boxes.items():
        corners, codes = [], []
        for y, start, end in places:
            corners += [(start, y), (end, y), (end, y + 1), (start, y + 1), (start, y)]
            codes += [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
        code = "#{:02x}{:02x}{:02x}".format(*colour)
        axes.add_patch(PathPatch(Path(corners, codes), facecolor=code, edgecolor=code, linewidth=0.2))
