"""Certified accuracy against strength, and accuracy under attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isthmus.report import figures
from isthmus.report.certificate.view import CertificateView, format_strength
from isthmus.summaries.certificate import (
    Level,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_POINTS = 300


def draw_curve(view: CertificateView) -> str:
    """Certified accuracy against strength, and accuracy under attack."""
    draw = _radii if view.unit == "radius" else _draw_words
    told = "; ".join(
        f"{format_strength(level.strength, view.unit)}: {figures.interval_text(level.certified)}"
        for level in view.summary.levels
    )
    return figures.inline_svg(
        f"certificate-{view.key}", f"Certified accuracy. {told}", lambda figure: draw(figure, view), 3.2
    )


def _radii(figure: Figure, view: CertificateView) -> None:
    axes = figure.add_subplot()
    furthest = view.summary.levels[-1].strength or 1.0
    strengths = np.linspace(0.0, furthest, _POINTS).tolist()
    found = view.levels(strengths)
    _band(axes, strengths, found, furthest)
    axes.set_xlim(0, furthest)
    axes.set_xlabel("L2 radius around the embedding sequence")
    _style_axes(axes)


def _band(axes: Axes, strengths: Sequence[float], found: Sequence[Level], furthest: float) -> None:
    colour, clean = figures.series_colour(0), figures.series_colour(1)
    rates = [level.certified for level in found]
    axes.fill_between(
        strengths, [rate.low for rate in rates], [rate.high for rate in rates], color=colour, alpha=0.13, linewidth=0
    )
    axes.plot(strengths, [rate.estimate for rate in rates], color=colour, linewidth=1.9)
    ends = [(rates[-1].estimate, "certified", colour)]
    above = [level.empirical for level in found]
    if above[0] is not None:
        values = [rate.estimate for rate in above if rate is not None]
        axes.plot(strengths, values, color=clean, linewidth=1.7, linestyle=(0, (5, 1.6)))
        ends.append((values[-1], "under attack", clean))
    _label_ends(axes, ends)


def _draw_words(figure: Figure, view: CertificateView) -> None:
    axes = figure.add_subplot()
    found = view.summary.levels
    places = list(range(len(found)))
    colour, other = figures.series_colour(0), figures.series_colour(1)
    ends = []
    for name, rates, own, hollow, shift in (
        ("certified", [level.certified for level in found], colour, False, 0.0),
        ("under attack", [level.empirical for level in found], other, True, 0.06),
    ):
        known = [(place + shift, rate) for place, rate in zip(places, rates, strict=True) if rate is not None]
        if not known:
            continue
        for place, rate in known:
            axes.plot([place, place], [rate.low, rate.high], color=own, linewidth=2.0, solid_capstyle="round")
        axes.plot(
            [place for place, _ in known], [rate.estimate for _, rate in known], color=own, linewidth=1.3, marker="o",
            markersize=7, markerfacecolor="#010207" if hollow else own, markeredgewidth=1.6,
            linestyle=(0, (5, 1.6)) if hollow else "-",
        )  # fmt: skip
        ends.append((known[-1][1].estimate, name, own))
    _label_ends(axes, ends)
    axes.set_xticks(places, ["all" if math.isinf(level.strength) else f"{level.strength:.0f}" for level in found])
    axes.set_xlim(-0.3, len(found) - 0.7)
    axes.set_xlabel("words substituted")
    _style_axes(axes)


def _style_axes(axes: Axes) -> None:
    figures.percent_axis(axes, "y")
    axes.grid(axis="y", color=figures.RULE)
    axes.set_ylabel("right")
    axes.spines["left"].set_visible(False)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    for place, (_, name, colour) in zip(figures.spread([end[0] for end in ends], 0.08), ends, strict=True):
        axes.annotate(
            name, (1.0, place), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
            va="center", color=colour, fontsize=10, annotation_clip=False,
        )  # fmt: skip
