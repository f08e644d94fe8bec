"""Figures of attacks: accuracy before and under attack, against queries and words changed, and scores of detectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.report.attack.detector import figures_of, vocabulary
from isthmus.report.attack.view import AttackView
from isthmus.report.figures import (
    CLEAN,
    DASHES,
    INK,
    RULE,
    SERIES,
    inline_svg,
    interval_text,
    percent_axis,
    series_colour,
    spread,
)
from isthmus.report.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def robust_accuracy(run: RunView) -> str:
    """Clean and robust accuracy under each attack, with whiskers; empty without an answer."""
    views = [(number, view) for number, view in enumerate(run.attacks) if view.is_answered]
    lines = [(view.key, view.summary, series_colour(number)) for number, view in views]
    if not lines:
        return ""
    if run.together is not None:
        lines.insert(0, ("all together", run.together, INK))
    words = vocabulary([view for _, view in views])

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for height, (_, summary, colour) in enumerate(lines):
            _whisker(axes, height + 0.0, summary.sacc, CLEAN, hollow=True)
            _whisker(axes, height + 0.0, summary.racc, colour)
        axes.set_yticks(range(len(lines)), [name for name, _, _ in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.tick_params(axis="y", labelcolor=INK, labelsize=10)
        percent_axis(axes, "x")
        axes.set_xlabel(f"{words.axis}: before the attack (hollow) and after it (filled)")
        axes.grid(axis="x", color=RULE)
        axes.spines["left"].set_visible(False)

    told = "; ".join(
        f"{name}: {interval_text(summary.sacc)} to {interval_text(summary.racc)}" for name, summary, _ in lines
    )
    return inline_svg(
        "robust-accuracy",
        f"{words.axis.capitalize()} before and after the attack. {told}",
        draw,
        0.75 + 0.42 * len(lines),
    )


def query_budget(run: RunView) -> str:
    """Robust accuracy against the number of queries an attacker may spend on one example."""
    views = [(number, view) for number, view in enumerate(run.attacks) if view.is_answered]
    if not views:
        return ""
    height = max(3.1, 0.7 + 0.19 * len(views))  # a line for every name
    words = vocabulary([view for _, view in views])

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        longest = max(max(view.curve.budgets) for _, view in views)
        ends: list[tuple[float, str, str]] = []
        for number, view in views:
            curve, colour = view.curve, series_colour(number)
            x = [*curve.budgets, max(longest * 1.02, 1)]
            bands = [[*values, values[-1]] for values in (curve.racc, curve.low, curve.high)]
            if len(views) <= len(SERIES):  # more bands than colours tell nothing
                axes.fill_between(x, bands[1], bands[2], step="post", color=colour, alpha=0.13, linewidth=0)
            axes.step(x, bands[0], where="post", color=colour, linewidth=1.8, linestyle=DASHES[number % len(DASHES)])
            ends.append((bands[0][-1], view.key, colour))
        gap = 0.18 / (height - 0.7)
        for place, (_, name, colour) in zip(spread([end[0] for end in ends], gap), ends, strict=True):
            axes.annotate(
                name, (1.0, place), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
                va="center", color=colour, fontsize=10, annotation_clip=False
            )  # fmt: skip
        shortest = min(max(view.curve.budgets) for _, view in views)
        if longest > 12 * max(shortest, 1):
            # Beside a search that asks thousands of times a thrifty one would be a stroke at the edge.
            axes.set_xscale("symlog", linthresh=10, linscale=0.5)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlim(0, max(longest * 1.02, 1))
        percent_axis(axes, "y")
        axes.grid(axis="y", color=RULE)
        axes.set_xlabel("maximum queries per example")
        axes.set_ylabel(words.rate_after)
        axes.spines["left"].set_visible(False)

    return inline_svg("query-budget", f"{words.rate_after.capitalize()} against the query budget", draw, height)


def draw_words_changed(run: RunView) -> str:
    """Share of words changed by successes, one panel per attack."""
    views = [(number, view) for number, view in enumerate(run.attacks) if view.shares]
    if not views:
        return ""
    columns = min(3 if len(views) <= 6 else 4, len(views))

    def draw(figure: Figure) -> None:
        longest = max(max(view.shares) for _, view in views)
        edges = np.linspace(0, max(0.1, np.ceil(longest * 10) / 10), 21)
        lines = -(-len(views) // columns)
        first: Axes | None = None
        for place, (number, view) in enumerate(views, start=1):
            axes = figure.add_subplot(lines, columns, place, sharex=first, sharey=first)
            first = first or axes
            colour = series_colour(number)
            axes.hist(view.shares, bins=list(edges), color=colour, alpha=0.85, rwidth=0.88)
            mean = float(np.mean(view.shares))
            axes.axvline(mean, color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_title(f"{view.key} · mean {100 * mean:.1f} %", loc="left", fontsize=10, color=INK, pad=8)
            percent_axis(axes, "x", upto=float(edges[-1]))
            axes.grid(axis="y", color=RULE)
            axes.spines["left"].set_visible(False)
            axes.locator_params(axis="y", integer=True, nbins=5 if columns < 4 else 3)
            axes.locator_params(axis="x", nbins=6 if columns < 4 else 4)
            if place > len(views) - columns:
                axes.set_xlabel("words changed")
            if (place - 1) % columns == 0:
                axes.set_ylabel("successes")

    return inline_svg(
        "words-changed",
        "Share of words changed in successful attacks",
        draw,
        (2.3 if columns < 4 else 1.7) * -(-len(views) // columns),
    )


def detection(view: AttackView) -> str:
    """Scores of the attacked class before and after the attack, beside those of the other classes."""
    found = figures_of(view)
    if found is None or found.label is None:
        return ""
    label, limit = found.label, found.threshold
    after = [result.score_after or result.score_before for result in view.results]
    groups = [
        ("other classes", list(found.negative_scores), CLEAN),
        ("before the attack", _scores([result.score_before for result in view.results], label), series_colour(1)),
        ("after the attack", _scores(after, label), series_colour(0)),
    ]
    groups = [group for group in groups if group[1]]

    def draw(figure: Figure) -> None:
        first: Axes | None = None
        for place, (name, scores, colour) in enumerate(groups, start=1):
            axes = figure.add_subplot(len(groups), 1, place, sharex=first)
            first = first or axes
            weights = np.full(len(scores), 1 / len(scores))
            axes.hist(scores, bins=list(np.linspace(0, 1, 41)), weights=weights, color=colour, alpha=0.85, rwidth=0.9)
            if limit is not None:
                axes.axvline(min(limit, 1.0), color=INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_yticks([])
            axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8, color=INK)
            percent_axis(axes, "x")
            axes.spines["left"].set_visible(False)
            if place < len(groups):
                axes.tick_params(labelbottom=False)
        axes.set_xlabel(f"score of {view.label(label)}; the dashed line is the threshold")

    return inline_svg(f"detection-{view.key}", "Scores before and after the attack", draw, 0.6 + 0.85 * len(groups))


def _scores(found: Sequence[Sequence[float]], label: int) -> list[float]:
    return [float(scores[label]) for scores in found if scores]


def _whisker(axes: Axes, height: float, interval: Any, colour: str, hollow: bool = False) -> None:
    axes.plot([interval.low, interval.high], [height, height], color=colour, linewidth=2.2, solid_capstyle="round")
    axes.plot(
        [interval.estimate], [height], "o", color=colour, markersize=8,
        markerfacecolor="#010207" if hollow else colour, markeredgewidth=1.8,
    )  # fmt: skip
