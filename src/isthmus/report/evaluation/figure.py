"""Reliability diagrams: accuracy by confidence, above a histogram of confidence.

Every run has one: of the development data of its training, of the texts of an attack before they were attacked, and of
every set it was evaluated on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isthmus.report import figures
from isthmus.report.attack.view import AttackView
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.marks import visible
from isthmus.report.numerals import three, three_bounds
from isthmus.report.view import RunView
from isthmus.summaries.evaluation import CalibrationSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ReliabilityPanel = tuple[str, CalibrationSummary]
"""Name and calibration of what is drawn in one panel."""
_COLUMNS = 3
_LONGEST = 28


def of_run(run: RunView) -> list[ReliabilityPanel]:
    """Calibration of a run without evaluations: on development data, and on clean texts of attacks."""
    found: list[ReliabilityPanel] = []
    trained = (run.record.results or {}).get("dev_calibration")
    if isinstance(trained, Mapping) and trained.get("bins"):
        found.append(("development data", CalibrationSummary.from_json(trained)))
    # An attack with another goal looks at one class alone.
    attacks = [view for view in run.attacks if view.goal.get("kind") == "untargeted"]
    before = _before(max(attacks, key=lambda view: len(view.results), default=None))
    return [*found, ("examples before the attack", before)] if before else found


def _before(view: AttackView | None) -> CalibrationSummary | None:
    asked = [each for each in view.results if each.score_before and each.label is not None] if view else []
    if not asked:
        return None
    scores = np.array([each.score_before for each in asked], np.float64)
    if (scores.max(axis=1) == 1).all():  # A victim that gives labels and no scores says nothing of how sure it is.
        return None
    return CalibrationSummary.of(scores.max(axis=1), scores.argmax(axis=1) == [each.label for each in asked])


def group_panels(views: Sequence[EvaluationView]) -> list[list[EvaluationView]]:
    """Group panels: sets of one panel share a figure; a set of several has its own."""
    alone = [view for view in views if len(view.panels()) == 1]
    return ([alone] if alone else []) + [[view] for view in views if len(view.panels()) > 1]


def reliability(views: Sequence[EvaluationView]) -> str:
    """One panel per inference mode, and one for the originals of an adversarial set."""
    shared = len(views) > 1  # Where there is one set its name stands above the figure.
    panels = [
        (visible(view.key, everything=True) if shared or not name else name, panel)
        for view in views
        for name, panel in view.panels()
    ]
    return diagrams("-".join(view.key for view in views), panels)


def diagrams(key: str, panels: Sequence[ReliabilityPanel]) -> str:
    """The figure of some panels; empty if there are none."""
    if not panels:
        return ""
    columns = 4 if len(panels) == 4 else _COLUMNS
    lines = -(-len(panels) // columns)
    least = min(each.low for _, panel in panels for each in panel.bins)

    def draw(figure: Figure) -> None:
        grid = figure.add_gridspec(2 * lines, columns, height_ratios=[3.2, 1] * lines)
        for place, (name, panel) in enumerate(panels):
            line, column = divmod(place, columns)
            top = figure.add_subplot(grid[2 * line, column])
            below = figure.add_subplot(grid[2 * line + 1, column], sharex=top)
            _draw_bins(top, name, panel, figures.series_colour(place), least)
            _draw_counts(below, panel, figures.series_colour(place))
            if column == 0:
                top.set_ylabel("right")
                below.set_ylabel("examples")

    told = "; ".join(f"{name}: {_describe_panel(panel)}" for name, panel in panels)
    return figures.inline_svg(f"reliability-{key}", f"Reliability diagrams. {told}", draw, 3.4 * lines)


def _draw_bins(axes: Axes, name: str, panel: CalibrationSummary, colour: str, least: float) -> None:
    axes.plot([0, 1], [0, 1], color=figures.MUTED, linewidth=1, linestyle=(0, (2, 2)))
    for each in panel.bins:
        low, width, accuracy = each.low, each.high - each.low, each.accuracy
        axes.bar(low, accuracy.estimate, width, align="edge", color=colour, alpha=0.22, linewidth=0)
        axes.plot([low, low + width], [accuracy.estimate] * 2, color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot([each.confidence] * 2, [accuracy.low, accuracy.high], color=colour, linewidth=1.3)
        axes.plot([each.confidence], [accuracy.estimate], "o", color=colour, markersize=4)
    ece = panel.ece
    shown = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    title = f"{shown}\nECE {three(ece.estimate)} ({three_bounds(ece)})"
    axes.set_title(title, loc="left", fontsize=10, color=figures.INK, pad=8)
    figures.percent_axis(axes, "y")
    axes.grid(axis="y", color=figures.RULE)
    axes.spines["left"].set_visible(False)
    axes.tick_params(labelbottom=False)
    axes.set_xlim(math.floor(10 * least) / 10 - 0.01, 1.01)


def _draw_counts(axes: Axes, panel: CalibrationSummary, colour: str) -> None:
    for each in panel.bins:
        axes.bar(
            each.low, each.count, 0.9 * (each.high - each.low), align="edge", color=colour, alpha=0.85, linewidth=0
        )
    axes.set_xlabel("confidence")
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", color=figures.RULE)
    axes.locator_params(axis="y", integer=True, nbins=3)
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(axis="x", pad=9)  # The first tick stands in the corner, beside the count of 0.
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def _describe_panel(panel: CalibrationSummary) -> str:
    return f"expected calibration error {three(panel.ece.estimate)} ({three_bounds(panel.ece)})"
