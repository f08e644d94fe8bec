"""Figures as inline SVG in the page's own colours, so that they follow its light and dark themes.

Matplotlib draws with stand-in colours; afterwards each is replaced by a CSS variable. Texts stay texts: they can be
selected and read aloud, and take the page's type face.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import MissingExtra
from isthmus.report.attack.view import AttackView, RunView
from isthmus.report.marks import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INK, _MUTED, _RULE, _CLEAN = "#010203", "#010204", "#010205", "#010206"
_SERIES = tuple(f"#0102{index:02x}" for index in range(0x10, 0x16))
_VARIABLES = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _RULE: "var(--rule)",
    _CLEAN: "var(--clean)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(_SERIES, start=1)},
}
_WIDTH = 9.2  # inches; only the proportion to the type size counts, since the page scales the figure
_DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (8, 2)))


def robust_accuracy(run: RunView) -> str:
    """Clean and robust accuracy under each attack, with whiskers."""
    lines = [(view.key, view.summary, _colour(number)) for number, view in enumerate(run.attacks) if view.results]
    if run.together is not None:
        lines.insert(0, ("all together", run.together, _INK))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for height, (_, summary, colour) in enumerate(lines):
            _whisker(axes, height + 0.0, summary.sacc, _CLEAN, hollow=True)
            _whisker(axes, height + 0.0, summary.racc, colour)
        axes.set_yticks(range(len(lines)), [name for name, _, _ in lines])
        axes.set_ylim(len(lines) - 0.4, -0.6)
        axes.tick_params(axis="y", labelcolor=_INK, labelsize=10)
        _percent_axis(axes, "x")
        axes.set_xlabel("accuracy: clean (hollow) and under attack (filled)")
        axes.grid(axis="x", color=_RULE)
        axes.spines["left"].set_visible(False)

    told = "; ".join(f"{name}: {_told(summary.sacc)} to {_told(summary.racc)}" for name, summary, _ in lines)
    return _svg("robust-accuracy", f"Accuracy before and under attack. {told}", draw, 0.75 + 0.42 * len(lines))


def query_budget(run: RunView) -> str:
    """Robust accuracy against the number of queries an attacker may spend on one example."""
    views = [(number, view) for number, view in enumerate(run.attacks) if view.results]
    height = max(3.1, 0.7 + 0.19 * len(views))  # a line for every name

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        longest = max(max(view.curve.budgets) for _, view in views)
        ends: list[tuple[float, str, str]] = []
        for number, view in views:
            curve, colour = view.curve, _colour(number)
            x = [*curve.budgets, max(longest * 1.02, 1)]
            bands = [[*values, values[-1]] for values in (curve.racc, curve.low, curve.high)]
            if len(views) <= len(_SERIES):  # more bands than colours tell nothing
                axes.fill_between(x, bands[1], bands[2], step="post", color=colour, alpha=0.13, linewidth=0)
            axes.step(x, bands[0], where="post", color=colour, linewidth=1.8, linestyle=_DASHES[number % len(_DASHES)])
            ends.append((bands[0][-1], view.key, colour))
        gap = 0.18 / (height - 0.7)
        for place, (_, name, colour) in zip(_spread([end[0] for end in ends], gap), ends, strict=True):
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
        _percent_axis(axes, "y")
        axes.grid(axis="y", color=_RULE)
        axes.set_xlabel("maximum queries per example")
        axes.set_ylabel("robust accuracy")
        axes.spines["left"].set_visible(False)

    return _svg("query-budget", "Robust accuracy against the query budget", draw, height)


def words_changed(run: RunView) -> str:
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
            colour = _colour(number)
            axes.hist(view.shares, bins=list(edges), color=colour, alpha=0.85, rwidth=0.88)
            mean = float(np.mean(view.shares))
            axes.axvline(mean, color=_INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_title(f"{view.key} · mean {100 * mean:.1f} %", loc="left", fontsize=10, color=_INK, pad=8)
            _percent_axis(axes, "x", upto=float(edges[-1]))
            axes.grid(axis="y", color=_RULE)
            axes.spines["left"].set_visible(False)
            axes.locator_params(axis="y", integer=True, nbins=5 if columns < 4 else 3)
            axes.locator_params(axis="x", nbins=6 if columns < 4 else 4)
            if place > len(views) - columns:
                axes.set_xlabel("words changed")
            if (place - 1) % columns == 0:
                axes.set_ylabel("successes")

    return _svg(
        "words-changed",
        "Share of words changed in successful attacks",
        draw,
        (2.3 if columns < 4 else 1.7) * -(-len(views) // columns),
    )


def detection(view: AttackView) -> str:
    """Scores of the attacked class before and after the attack, beside those of the other classes."""
    found = view.detection or {}
    label = found.get("label")
    if not isinstance(label, int):
        return ""
    after = [result.score_after or result.score_before for result in view.results]
    groups = [
        ("other classes", [float(score) for score in found.get("negative_scores") or ()], _CLEAN),
        ("before the attack", _scores([result.score_before for result in view.results], label), _colour(1)),
        ("after the attack", _scores(after, label), _colour(0)),
    ]
    groups = [group for group in groups if group[1]]
    threshold = found.get("threshold")

    def draw(figure: Figure) -> None:
        first: Axes | None = None
        for place, (name, scores, colour) in enumerate(groups, start=1):
            axes = figure.add_subplot(len(groups), 1, place, sharex=first)
            first = first or axes
            weights = np.full(len(scores), 1 / len(scores))
            axes.hist(scores, bins=list(np.linspace(0, 1, 41)), weights=weights, color=colour, alpha=0.85, rwidth=0.9)
            if isinstance(threshold, int | float):
                axes.axvline(min(float(threshold), 1.0), color=_INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_yticks([])
            axes.set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8, color=_INK)
            _percent_axis(axes, "x")
            axes.spines["left"].set_visible(False)
            if place < len(groups):
                axes.tick_params(labelbottom=False)
        axes.set_xlabel(f"score of {view.label(label)}; the dashed line is the threshold")

    return _svg(f"detection-{view.key}", "Scores before and after the attack", draw, 0.6 + 0.85 * len(groups))


def _scores(found: Sequence[Sequence[float]], label: int) -> list[float]:
    return [float(scores[label]) for scores in found if scores]


def training(log: Sequence[Mapping[str, Any]]) -> str:
    """Loss terms by step, and development accuracy."""
    from isthmus.report.training.curves import read_curves

    curves = read_curves(log)
    if not curves.terms:
        return ""

    def draw(figure: Figure) -> None:
        columns = 2 if curves.accuracy else 1
        axes = figure.add_subplot(1, columns, 1)
        for number, (name, (steps, values)) in enumerate(curves.terms.items()):
            axes.plot(steps, values, color=_colour(number), linewidth=1.6, label=name)
        axes.set_title("training loss", loc="left", fontsize=10, color=_INK, pad=8)
        axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
        if len(curves.terms) > 1:
            axes.legend(frameon=False, labelcolor=_INK, fontsize=9)
        _step_axis(axes)
        if curves.accuracy:
            right = figure.add_subplot(1, columns, 2)
            steps, values = curves.accuracy
            right.plot(steps, values, color=_colour(0), linewidth=1.2, marker="o", markersize=5)
            best = curves.judged_from + int(np.argmax(values[curves.judged_from :]))
            right.annotate(
                f"{100 * values[best]:.1f} %", (steps[best], values[best]), xytext=(0, 8), textcoords="offset points",
                ha="center", color=_INK, fontsize=9,
            )  # fmt: skip
            right.set_title(f"development {curves.metric}", loc="left", fontsize=10, color=_INK, pad=8)
            _percent_axis(right, "y")
            _step_axis(right)

    return _svg("training", f"Training loss and development {curves.metric}", draw, 2.5)


def _step_axis(axes: Axes) -> None:
    axes.set_xlabel("optimiser step")
    axes.grid(axis="y", color=_RULE)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(left=0)


def _whisker(axes: Axes, height: float, interval: Any, colour: str, hollow: bool = False) -> None:
    axes.plot([interval.low, interval.high], [height, height], color=colour, linewidth=2.2, solid_capstyle="round")
    axes.plot(
        [interval.estimate], [height], "o", color=colour, markersize=8,
        markerfacecolor="#010207" if hollow else colour, markeredgewidth=1.8,
    )  # fmt: skip


def _percent_axis(axes: Axes, which: str, upto: float = 1.0) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    if upto == 1.0:
        axis.set_ticks([0, 0.25, 0.5, 0.75, 1.0])
        (axes.set_xlim if which == "x" else axes.set_ylim)(-0.015, 1.03)
    axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")


def _spread(heights: Sequence[float], gap: float = 0.075) -> list[float]:
    """Heights moved apart so that labels do not overlap, and not above the top."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    placed = list(heights)
    for before, index in itertools.pairwise(order):
        placed[index] = max(placed[index], placed[before] + gap)
    top = 1.0 + gap / 2
    for index in reversed(order):
        placed[index] = min(placed[index], top)
        top = placed[index] - gap
    return placed


def _colour(number: int) -> str:
    return _SERIES[number % len(_SERIES)]


def _told(interval: Any) -> str:
    return f"{interval.estimate:.1%} ({interval.low:.1%} to {interval.high:.1%})"


def style(name: str) -> dict[Any, Any]:
    """Matplotlib settings for the figure called `name`."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # the same page for the same run, and no two figures share an id
        "font.family": "sans-serif",
        "font.size": 9.5,
        "text.color": _INK,
        "text.parse_math": False,  # a class may be called $pam
        "axes.labelcolor": _MUTED,
        "axes.edgecolor": _RULE,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.labelpad": 7,
        "xtick.color": _MUTED,
        "ytick.color": _MUTED,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "grid.linewidth": 0.8,
    }


def _svg(name: str, description: str, draw: Callable[[Figure], None], height: float) -> str:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report", "the report") from None
    with mpl.rc_context(style(name)):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _dress(buffer.getvalue(), description)


def _dress(svg: str, description: str) -> str:
    """The bare SVG in the page's colours and font, with a description for screen readers."""
    from html import escape

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for colour, variable in {**_VARIABLES, "#010207": "var(--paper)"}.items():
        body = body.replace(colour, variable)
    body = re.sub(r"font: (\d+(?:\.\d+)?)px [^;\"]*", r"font-size: \1px", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    # Class names and texts come from elsewhere: none may turn the page's reading direction, or be no XML.
    body = visible(body, everything=True)
    label = escape(visible(description, everything=True), quote=True)
    return body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()
