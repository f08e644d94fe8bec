"""The training log as a figure: every loss term by step, and development accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.report.figures import INK, RULE, inline_svg, percent_axis, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def training(log: Sequence[Mapping[str, Any]]) -> str:
    """Plot loss terms by step, and development accuracy."""
    from isthmus.report.training.view import read_curves

    curves = read_curves(log)
    if not curves.terms:
        return ""

    def draw(figure: Figure) -> None:
        columns = 2 if curves.accuracy else 1
        axes = figure.add_subplot(1, columns, 1)
        for number, (name, (steps, values)) in enumerate(curves.terms.items()):
            axes.plot(steps, values, color=series_colour(number), linewidth=1.6, label=name)
        axes.set_title("training loss", loc="left", fontsize=10, color=INK, pad=8)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if len(curves.terms) > 1:
            axes.legend(frameon=False, labelcolor=INK, fontsize=9)
        _step_axis(axes)
        if curves.accuracy:
            right = figure.add_subplot(1, columns, 2)
            steps, values = curves.accuracy
            right.plot(steps, values, color=series_colour(0), linewidth=1.2, marker="o", markersize=5)
            best = curves.judged_from + int(np.argmax(values[curves.judged_from :]))
            right.annotate(
                f"{100 * values[best]:.1f} %", (steps[best], values[best]), xytext=(0, 8), textcoords="offset points",
                ha="center", color=INK, fontsize=9,
            )  # fmt: skip
            right.set_title(f"development {curves.metric}", loc="left", fontsize=10, color=INK, pad=8)
            percent_axis(right, "y")
            _step_axis(right)

    return inline_svg("training", f"Training loss and development {curves.metric}", draw, 2.5)


def _step_axis(axes: Axes) -> None:
    axes.set_xlabel("optimiser step")
    axes.grid(axis="y", color=RULE)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(left=0)
