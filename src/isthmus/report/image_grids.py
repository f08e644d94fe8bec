"""Draws grids of small images; on the page as coloured squares, because its policy allows no images."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from isthmus.report.marks import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from isthmus.measures.base import Panel, Plot

_SHADES = 16
"""Shades of each channel: enough for the eye at this size; more only make the file larger."""
_SIDE, _LARGE, _GAP, _LINE = 120, 224, 16, 18


def svg(plot: Plot) -> str:
    """The grid in the page's colours: one row per kind of panel, one column per image."""
    columns = list(zip(*plot.panels, strict=True))  # One example a column: a screen is wider than high.
    width = max(4, len(plot.panels)) * (_SIDE + _GAP) + _GAP
    height = 2 * _LINE + len(columns) * (_SIDE + _GAP + _LINE)
    label = escape(visible(plot.title, everything=True), quote=True)
    parts = [
        f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        _svg_text(_GAP, _LINE, plot.title, "start", 13),
    ]
    for row, panels in enumerate(columns):
        for column, panel in enumerate(panels):
            x, y = _GAP + column * (_SIDE + _GAP), 2 * _LINE + row * (_SIDE + _GAP + _LINE)
            parts += [_svg_text(x + _SIDE / 2, y + 12, panel.title, "middle", 11), _squares(panel, x, y + _LINE)]
    return "".join([*parts, "</svg>"])


def row_svg(panels: Sequence[Panel], told: str) -> str:
    """A few large images side by side: one example of the page."""
    width, height = len(panels) * (_LARGE + _GAP) - _GAP, _LARGE + _LINE
    label = escape(visible(told, everything=True), quote=True)
    # Drawn at its own size: one image alone would else fill the page.
    parts = [
        f'<svg role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'style="width:100%;max-width:{width}px">'
    ]
    for column, panel in enumerate(panels):
        x = column * (_LARGE + _GAP)
        parts += [_svg_text(x, 12, panel.title, "start", 12), _squares(panel, x, _LINE, _LARGE)]
    return "".join([*parts, "</svg>"])


def _svg_text(x: float, y: float, text: str, anchor: str, size: int) -> str:
    shown = escape(visible(text, everything=True))
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="var(--ink)">{shown}</text>'


def _squares(panel: Panel, x: float, y: float, side: int = _SIDE) -> str:
    """One path per colour; equal neighbours in a line are one box."""
    pixels = colours_of(panel)
    height, width = pixels.shape[:2]
    boxes: dict[str, list[str]] = {}
    for line in range(height):
        cuts = np.flatnonzero((pixels[line, 1:] != pixels[line, :-1]).any(axis=1)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), width], strict=True):
            red, green, blue = (int(value) for value in pixels[line, start])
            path = f"M{start} {line}h{end - start}v1h{start - end}z"
            boxes.setdefault(f"#{red:02x}{green:02x}{blue:02x}", []).append(path)
    scale = side / max(height, width)
    paths = "".join(f'<path fill="{colour}" d="{"".join(path)}"/>' for colour, path in boxes.items())
    return f'<g transform="translate({x:g} {y:g}) scale({scale:g})" shape-rendering="crispEdges">{paths}</g>'


def draw(figure: Figure, plot: Plot, ink: str) -> None:
    """Draw the grid as a bitmap."""
    columns = list(zip(*plot.panels, strict=True))
    figure.suptitle(plot.title, x=0.01, ha="left", fontsize=10.5, color=ink)
    for row, panels in enumerate(columns):
        for column, panel in enumerate(panels):
            axes = figure.add_subplot(len(columns), len(panels), row * len(panels) + column + 1, facecolor="none")
            axes.set_title(panel.title, fontsize=9, color=ink)
            axes.imshow(colours_of(panel) / 255, interpolation="nearest")
            axes.axis("off")


def colours_of(panel: Panel) -> NDArray[np.int64]:
    """Red, green and blue of every pixel, in few shades [height, width, 3]."""
    pixels = np.array(panel.pixels, dtype=np.int64)
    shades = np.rint(pixels * (_SHADES - 1) / 255) * 255 / (_SHADES - 1)
    return np.broadcast_to(np.rint(shades).astype(np.int64), (*pixels.shape[:2], 3))
