"""Draws the plots of measures: inline in the page's colours, and as SVG and PNG files in its light theme."""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.errors import MissingExtra
from isthmus.core.files import write_atomic
from isthmus.measures.base import Plot, Series
from isthmus.report import figures, image_grids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAPER = "#010207"
_LETTERS_IN_A_LINE = 105
"""What title and legend may hold beside each other."""
_LETTERS_BELOW = 100
"""What the names of ticks may hold beside each other."""
_MARKERS = ("o", "^", "s", "D", "v", "P")
_FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif'


def height(plot: Plot) -> float:
    """Height of a plot: low for curves over epochs, higher for a plane."""
    if plot.kind == "images":
        return 5.2
    return 2.7 if plot.kind == "line" else 4.2


@dataclass(frozen=True)
class Palette:
    """The colours of a figure."""

    ink: str = figures.INK
    muted: str = figures.MUTED
    rule: str = figures.RULE
    clean: str = figures.CLEAN
    paper: str = _PAPER
    series: tuple[str, ...] = figures.SERIES

    def of(self, number: int) -> str:
        """The colour of a series."""
        return self.series[number % len(self.series)]


@functools.cache
def light() -> dict[str, str]:
    """The stand-in colours in the page's light theme, read from its style sheet."""
    css = (Path(__file__).parents[1] / "templates" / "report.css").read_text(encoding="utf-8")
    values = dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{3,8})", css.split("@media")[0]))
    variables = {**figures._VARIABLES, _PAPER: "var(--paper)"}
    return {stand_in: values[variable[6:-1]] for stand_in, variable in variables.items()}


def inline(plot: Plot, scope: str = "") -> str:
    """The plot as SVG for the page; `scope` keeps the ids of two measures distinct."""
    if plot.kind == "images":
        return image_grids.svg(plot)
    return figures.inline_svg(
        f"{scope}{plot.name}", plot.title, lambda figure: draw(figure, plot, Palette()), height(plot)
    )


def save(plot: Plot, stem: Path) -> list[Path]:
    """Write the plot as an SVG and a PNG file, and return their paths."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "figure files") from None
    import io

    colours = light()
    svg = inline(plot)
    for stand_in, colour in colours.items():
        svg = svg.replace({**figures._VARIABLES, _PAPER: "var(--paper)"}[stand_in], colour)
    svg = svg.replace("<svg", f"<svg style='background:{colours[_PAPER]};font-family:{_FONT}'", 1)
    plain = ("ink", "muted", "rule", "clean", "paper")
    own = Palette(
        **{name: colours[getattr(Palette, name)] for name in plain},
        series=tuple(colours[each] for each in Palette.series),
    )
    style = {key: colours.get(value, value) if isinstance(value, str) else value for key, value in
             figures.style(plot.name).items()}  # fmt: skip
    buffer = io.BytesIO()
    with mpl.rc_context(style):
        figure = Figure(figsize=(figures.WIDTH, height(plot)), layout="constrained", facecolor=own.paper)
        draw(figure, plot, own)
        figure.savefig(buffer, format="png", dpi=160)
    paths = [stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")]
    write_atomic(paths[0], svg.encode("utf-8", errors="replace"))
    write_atomic(paths[1], buffer.getvalue())
    return paths


def draw(figure: Figure, plot: Plot, palette: Palette) -> None:
    """Draw a plot with the colours of `palette`."""
    if plot.kind == "images":
        image_grids.draw(figure, plot, palette.ink)
        return
    axes = figure.add_subplot(facecolor="none")
    kinds = {"line": _draw_lines, "path": _paths, "points": _points, "bars": _bars, "scatter": _scatter}
    if plot.diagonal:
        axes.plot([0, 1], [0, 1], color=palette.clean, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    kinds[plot.kind](axes, plot, palette)
    axes.set_title(plot.title, loc="left", fontsize=10.5, color=palette.ink, pad=10)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(axis="both" if plot.kind in ("path", "points", "scatter") else "y", color=palette.rule)
    axes.spines["left"].set_visible(False)
    if plot.ticks:
        axes.set_xticks(range(len(plot.ticks)), [_fold_name(name, len(plot.ticks)) for name in plot.ticks])
        axes.tick_params(axis="x", labelcolor=palette.ink)
    _logarithms(axes, plot)
    for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if which in plot.percent:
            axis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %")
    if len([series for series in plot.series if not series.small]) > 1:
        letters = len(plot.title) + sum(len(series.name) + 6 for series in plot.series if not series.small)
        if letters > _LETTERS_IN_A_LINE:
            axes.legend(frameon=False, labelcolor=palette.ink, fontsize=9)
        else:
            # Above the axes, where no point can lie under it.
            axes.legend(
                frameon=False, labelcolor=palette.ink, fontsize=9, ncols=min(4, len(plot.series)), loc="lower right",
                bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2,
            )  # fmt: skip


def _logarithms(axes: Axes, plot: Plot) -> None:
    from matplotlib.ticker import NullFormatter

    for which, change in (("x", axes.set_xscale), ("y", axes.set_yscale)):
        values = [value for series in plot.series for value in getattr(series, which) if math.isfinite(value)]
        if which not in plot.log or not values:
            continue
        if min(values) > 0:
            change("log")
        else:
            sizes = sorted(abs(value) for value in values if value) or [1.0]
            change("symlog", linthresh=sizes[len(sizes) // 2], linscale=0.5)
        axis = axes.xaxis if which == "x" else axes.yaxis
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


def _fold_name(name: str, names: int) -> str:
    """The label of a tick, wrapped to leave room for its neighbours."""
    return "\n".join(textwrap.wrap(name, max(6, _LETTERS_BELOW // names), break_long_words=False)) or name


def _draw_lines(axes: Axes, plot: Plot, palette: Palette) -> None:
    from matplotlib.ticker import MaxNLocator

    if all(float(x).is_integer() for series in plot.series for x in series.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    counts = {False: 0, True: 0}
    for series in plot.series:
        colour = palette.of(counts[series.reference])
        counts[series.reference] += 1
        if series.y_bounds:
            low, high = zip(*series.y_bounds, strict=True)
            alpha = 0.07 if series.reference else 0.14
            axes.fill_between(series.x, low, high, color=colour, alpha=alpha, linewidth=0)
        if series.reference:
            axes.plot(series.x, series.y, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), label=series.name)
        else:
            axes.plot(series.x, series.y, color=colour, linewidth=1.6, marker="o", markersize=4, label=series.name)


def _paths(axes: Axes, plot: Plot, palette: Palette) -> None:
    """Points coloured by their order, joined by a thin line; one shape per series."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.ticker import MaxNLocator

    # These read on light and on dark paper alike; more than fifty would be drawn as an image, which the page forbids.
    colours = LinearSegmentedColormap.from_list("order", ["#7a5cc4", "#c2528b", "#e8743b", "#e0a526"], N=48)
    steps = [float(label) for series in plot.series for label in series.labels] or [0.0, 1.0]
    scale = Normalize(min(steps), max(max(steps), min(steps) + 1))
    for number, series in enumerate(plot.series):
        order = [float(label) for label in series.labels] or list(range(len(series.x)))
        axes.plot(series.x, series.y, color=palette.clean, linewidth=1, zorder=2, linestyle=figures.DASHES[number % 6])
        _error_bars(axes, series, palette.clean)
        marker = _MARKERS[number % len(_MARKERS)]
        axes.scatter(
            series.x, series.y, c=[colours(scale(step)) for step in order], marker=marker, s=44, zorder=3,
            edgecolors=palette.paper, linewidths=0.8,
        )  # fmt: skip
        axes.plot([], [], marker, color=palette.muted, label=series.name)
    bar = axes.figure.colorbar(
        ScalarMappable(scale, colours), ax=axes, pad=0.02, aspect=28, ticks=MaxNLocator(8, integer=True)
    )
    bar.outline.set_visible(False)
    if bar.solids is not None:
        bar.solids.set_edgecolor("face")
    bar.set_label(plot.order_label or "order")


def _points(axes: Axes, plot: Plot, palette: Palette) -> None:
    number = -1
    for series in plot.series:
        if series.small:
            axes.plot(series.x, series.y, ".", color=palette.of(number), markersize=5, alpha=0.55, zorder=2)
            continue
        number += 1
        colour = palette.of(number)
        _error_bars(axes, series, colour)
        axes.plot(series.x, series.y, color=colour, linewidth=0.9, alpha=0.5, linestyle=figures.DASHES[number % 6])
        axes.plot(
            series.x,
            series.y,
            _MARKERS[number % len(_MARKERS)],
            color=colour,
            markersize=7,
            label=series.name,
            zorder=3,
        )
        for x, y, label in zip(series.x, series.y, series.labels, strict=False):
            axes.annotate(label, (x, y), xytext=(7, 6), textcoords="offset points", color=palette.ink, fontsize=9)


def _scatter(axes: Axes, plot: Plot, palette: Palette) -> None:
    counts = {False: 0, True: 0}
    for series in plot.series:
        number = counts[series.reference]
        counts[series.reference] += 1
        if series.reference:
            dashes = figures.DASHES[(number + 1) % 6]
            axes.plot(series.x, series.y, color=palette.ink, linewidth=1.2, linestyle=dashes, label=series.name)
            continue
        colour = palette.of(number)
        _error_bars(axes, series, colour)
        size = 3 if len(series.x) > 60 else 6
        axes.plot(
            series.x, series.y, _MARKERS[number % 6], color=colour, markersize=size, alpha=0.7, label=series.name,
            markeredgewidth=0, linestyle="none",
        )  # fmt: skip
        for x, y, label in zip(series.x, series.y, series.labels, strict=False):
            if label:
                axes.annotate(label, (x, y), xytext=(6, 5), textcoords="offset points", color=palette.ink, fontsize=9)


def _bars(axes: Axes, plot: Plot, palette: Palette) -> None:
    places = sorted({x for series in plot.series for x in series.x})
    gap = min(np.diff(places), default=1.0)
    width = 0.8 * float(gap) / len(plot.series)
    for number, series in enumerate(plot.series):
        shift = (number - (len(plot.series) - 1) / 2) * width
        moved = [x + shift for x in series.x]
        colour = palette.of(number)
        axes.bar(moved, series.y, width=0.9 * width, color=colour, alpha=0.55, label=series.name)
        if series.y_bounds:
            low, high = zip(*series.y_bounds, strict=True)
            axes.vlines(moved, low, high, color=colour, linewidth=2, zorder=4)
    axes.axhline(0, color=palette.rule, linewidth=0.8)


def _error_bars(axes: Axes, series: Series, colour: str) -> None:
    for bounds, line in ((series.x_bounds, axes.hlines), (series.y_bounds, axes.vlines)):
        if bounds:
            low, high = zip(*bounds, strict=True)
            fixed: Sequence[float] = series.y if line == axes.hlines else series.x
            line(fixed, low, high, color=colour, linewidth=1.3, alpha=0.75)
