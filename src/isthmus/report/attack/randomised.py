"""Randomised models: how often successes repeat, and the effect of averaging over draws.

A text that fools the model on one draw may not on the next, so each has a probability of success, estimated on draws
that the attack never saw; so has every clean text one of being correct (RSMI's Figure 4). If robust accuracy
falls as scores are averaged over more draws, it was not robustness: the noise only misled the attack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.statistics import Interval
from isthmus.report import figures
from isthmus.report.attack.view import AttackView
from isthmus.report.view import RunView
from isthmus.summaries.attack import FreshSummary, clean_probabilities, holding_probabilities

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def describe_judgement(view: AttackView) -> str:
    """How successes repeat on fresh draws, and how often the model abstains; empty if neither applies."""
    summary, parts = view.summary, []
    if summary.fresh is not None:
        fresh = summary.fresh
        if not math.isnan(fresh.expected_sacc.estimate):
            parts.append(
                f"on a fresh draw this randomised model is correct on {_percent(fresh.expected_sacc)} of clean examples"
            )
        parts.append(_claims(fresh))
    if summary.abstained:
        parts.append(
            f"it abstained on {summary.abstained} of {summary.n}, {summary.abstained_before} clean and "
            f"{summary.abstained_after} after the attack; these count neither as correct nor as fooled"
        )
    return f"{view.key}: {'; '.join(parts)}." if parts else ""


def _claims(fresh: FreshSummary) -> str:
    expected = f"expected accuracy under attack is {_percent(fresh.expected_racc)}"
    if not fresh.claimed:
        return f"no example seemed to fool this randomised model, and {expected}"
    chance = fresh.success_probability
    return (
        f"of {fresh.claimed} examples that seemed to fool this randomised model, {fresh.held} did so on more than half "
        f"of the fresh draws; such an example fools it with probability {chance.estimate:.2f} ({chance.low:.2f}–"
        f"{chance.high:.2f}); {expected}"
    )


def _percent(rate: Interval) -> str:
    return f"{100 * rate.estimate:.1f} % ({100 * rate.low:.1f}–{100 * rate.high:.1f})"


def section(run: RunView, markup: Any) -> dict[str, Any] | None:
    """The section of the page; None if the model is not randomised."""
    views = [view for view in run.attacks if view.results]
    sentences = [line for line in map(describe_judgement, views) if line]
    if not sentences and not sweeps(views):
        return None
    return {"sentences": sentences, "stability": markup(stability(views)), "sweep": markup(draw_sweep(views))}


def stability(views: Sequence[AttackView]) -> str:
    """How often the model is correct on clean texts and on apparent successes; one panel per attack."""
    shown = [(number, view) for number, view in enumerate(views) if any(_sides(view))]
    if not shown:
        return ""
    columns = min(3, len(shown))

    def draw(figure: Figure) -> None:
        first: Axes | None = None
        lines = -(-len(shown) // columns)
        for place, (number, view) in enumerate(shown, start=1):
            axes = figure.add_subplot(lines, columns, place, sharex=first, sharey=first)
            first = first or axes
            _two_histograms(axes, *_sides(view), figures.series_colour(number))
            axes.axvline(0.5, color=figures.INK, linewidth=1, linestyle=(0, (2, 2)))
            axes.set_title(view.key, loc="left", fontsize=10, color=figures.INK, pad=8)
            figures.percent_axis(axes, "x")
            figures.percent_axis(axes, "y")
            axes.set_xlabel("share of fresh draws that are correct")
            axes.spines["left"].set_visible(False)
            if (place - 1) % columns == 0:
                axes.set_ylabel("examples")

    height = 2.4 * -(-len(shown) // columns)
    told = "; ".join(f"{view.key}: {_describe_shares(*_sides(view))}" for _, view in shown)
    return figures.inline_svg("stability", f"How often the model is correct on fresh draws. {told}", draw, height)


def _sides(view: AttackView) -> tuple[list[float], list[float]]:
    """Probabilities of a correct prediction: for clean texts, and for apparent successes."""
    return clean_probabilities(view.results), holding_probabilities(view.results)


def _two_histograms(axes: Axes, clean: list[float], attacked: list[float], colour: str) -> None:
    """Two histograms, each normalised by its own texts: there are many more clean ones."""
    edges = list(np.linspace(0, 1, 11))
    if attacked:
        weights = np.full(len(attacked), 1 / len(attacked))
        axes.hist(
            attacked,
            edges,
            weights=weights,
            color=colour,
            alpha=0.85,
            rwidth=0.88,
            label=f"adversarial, {len(attacked)}",
        )
    if clean:
        weights = np.full(len(clean), 1 / len(clean))
        axes.hist(
            clean,
            edges,
            weights=weights,
            histtype="step",
            color=figures.CLEAN,
            linewidth=1.8,
            label=f"clean, {len(clean)}",
        )
    axes.legend(frameon=False, labelcolor=figures.INK, fontsize=9, loc="upper left")


def _describe_shares(clean: list[float], attacked: list[float]) -> str:
    sides = (("clean", clean), ("adversarial", attacked))
    return ", ".join(f"{name} mean {np.mean(shares):.2f} of {len(shares)} examples" for name, shares in sides if shares)


def draw_sweep(views: Sequence[AttackView]) -> str:
    """Robust accuracy against the number of draws averaged."""
    lines = sweeps(views)
    if not lines:
        return ""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        counts = sorted({draws for line in lines.values() for draws in line})
        for number, (name, line) in enumerate(lines.items()):
            places = [counts.index(draws) + 0.06 * number for draws in line]
            each = [line[draws].summary.racc for draws in line]
            colour = figures.series_colour(number)
            axes.plot(places, [racc.estimate for racc in each], "o-", color=colour, linewidth=1.6, label=name)
            for place, racc in zip(places, each, strict=True):
                axes.plot([place, place], [racc.low, racc.high], color=colour, linewidth=2, solid_capstyle="round")
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        figures.percent_axis(axes, "y")
        axes.grid(axis="y", color=figures.RULE)
        axes.set_xlabel("draws averaged for the scores that the attack sees")
        axes.set_ylabel("robust accuracy")
        axes.legend(frameon=False, labelcolor=figures.INK, fontsize=9)
        axes.spines["left"].set_visible(False)

    return figures.inline_svg("draws", "Robust accuracy against the number of draws", draw, 3.0)


def sweeps(views: Sequence[AttackView]) -> dict[str, dict[int, AttackView]]:
    """Attacks that differ only in the number of draws, by that number; empty if there is only one."""
    groups: dict[str, dict[int, AttackView]] = {}
    for view in views:
        victim = view.settings.get("victim")
        options = dict(victim) if isinstance(victim, Mapping) else {}
        draws = options.pop("draws", 1)
        rest = {key: value for key, value in view.settings.items() if key != "victim"}
        if isinstance(draws, int):
            name = view.attack + "".join(f" {key}={value}" for key, value in sorted(options.items()))
            groups.setdefault(f"{name}\n{rest}", {})[draws] = view
    return {name.split("\n")[0]: dict(sorted(line.items())) for name, line in groups.items() if len(line) > 1}
