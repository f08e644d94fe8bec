"""Figures over seeds as cells of a Markdown table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from isthmus.attacks.result import AttackResult
from isthmus.core.statistics import Interval, bootstrap_mean, mcnemar
from isthmus.runs.folder import AttackFile

Held = Mapping[str, bool]
"""Which of the attacked examples a model still got right, by id."""


def over_seeds(values: Sequence[float | None], scale: float = 100.0, digits: int = 1) -> str:
    """Mean and 95 % interval of the mean over seeds (Student's t); the plain value where there is one seed.

    Seeds that agree say nothing about other seeds, so that no interval of length zero is printed.
    """
    known = np.array([value for value in values if value is not None], dtype=np.float64) * scale
    if not len(known):
        return "-"
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
    if np.ptp(known) == 0:
        return f"{known[0]:.{digits}f} ({len(known)} seeds agree)"
    from scipy.stats import t

    half = float(t.ppf(0.975, len(known) - 1)) * known.std(ddof=1) / math.sqrt(len(known))
    return f"{known.mean():.{digits}f} ± {half:.{digits}f}"


def spread(values: Sequence[float | None], scale: float = 100.0, digits: int = 1) -> str:
    """Mean and standard deviation over seeds, as papers print them."""
    known = np.array([value for value in values if value is not None], dtype=np.float64) * scale
    if not len(known):
        return "-"
    deviation = f" ({known.std(ddof=1):.{digits}f})" if len(known) > 1 else ""
    return f"{known.mean():.{digits}f}{deviation}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def rank_sum(first: Sequence[float], second: Sequence[float]) -> float:
    """p of the two-sided Wilcoxon rank-sum test that two sets of seeds come from one distribution."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(first, second, alternative="two-sided").pvalue)


def with_bounds(interval: Interval, scale: float = 100.0, digits: int = 1) -> str:
    """A figure of one seed with its own interval."""
    if math.isnan(interval.estimate):
        return "-"
    low, high = scale * interval.low, scale * interval.high
    return f"{scale * interval.estimate:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def held(file: AttackFile) -> dict[str, bool]:
    """Which examples of an attack the model still got right."""
    return held_by(file.results())


def held_by(results: Iterable[AttackResult]) -> dict[str, bool]:
    """The same of its results."""
    return {result.id: result.outcome == "failed" for result in results}


def over_pairs(pairs: Iterable[tuple[Held, Held]]) -> np.ndarray[Any, Any]:
    """Shares of the seeds in which both sides held each example that both saw [examples, 2].

    Seeds are averaged first, so that whoever resamples examples does not take one under several seeds for several.
    """
    shares: dict[str, list[tuple[bool, bool]]] = {}
    for ours, theirs in pairs:
        for key in ours.keys() & theirs.keys():
            shares.setdefault(key, []).append((ours[key], theirs[key]))
    return np.array([np.mean(values, axis=0) for _, values in sorted(shares.items())]).reshape(-1, 2)


def paired_change(pairs: Iterable[tuple[Held, Held]]) -> str | None:
    """Change in points from the second to the first of each pair, a pair for each seed, on the examples both saw."""
    shares = over_pairs(pairs)
    if not len(shares):
        return None
    mean = bootstrap_mean(shares[:, 0] - shares[:, 1])
    return f"{100 * mean.estimate:+.1f} ({100 * mean.low:+.1f} to {100 * mean.high:+.1f})"


def paired_ratio(pairs: Iterable[tuple[Held, Held]], draws: int = 10_000) -> str | None:
    """What the first holds over what the second holds, with the percentiles of a bootstrap over examples."""
    shares = over_pairs(pairs)
    if not shares[:, 1:].sum():
        return None
    chosen = np.random.default_rng(0).integers(len(shares), size=(draws, len(shares)))
    ours, theirs = shares[chosen].sum(axis=1).T
    ratios = np.divide(ours, theirs, out=np.full(draws, np.inf), where=theirs > 0)
    low, high = np.quantile(ratios, (0.025, 0.975), method="lower")
    return f"{shares[:, 0].sum() / shares[:, 1].sum():.2f} ({low:.2f}-{high:.2f})"


def lost_share(ours: Held, without: Held, base: Held, draws: int = 10_000) -> str:
    """How much of what the first holds over the base is lost without something, %, with a bootstrap over examples."""
    shared = sorted(ours.keys() & without.keys() & base.keys())
    table = np.array([[ours[key], without[key], base[key]] for key in shared], dtype=np.float64).reshape(-1, 3)
    gain, lost = table[:, 0] - table[:, 2], table[:, 0] - table[:, 1]
    if gain.sum() <= 0:
        return "-"
    chosen = np.random.default_rng(0).integers(len(table), size=(draws, len(table)))
    gains, losses = gain[chosen].sum(axis=1), lost[chosen].sum(axis=1)
    low, high = np.quantile(losses[gains > 0] / gains[gains > 0], (0.025, 0.975))
    return f"{100 * lost.sum() / gain.sum():.0f} ({100 * low:.0f} to {100 * high:.0f})"


def mcnemar_of(ours: Held, theirs: Held) -> str:
    """p of McNemar's test on the examples that both saw."""
    shared = sorted(ours.keys() & theirs.keys())
    return f"{mcnemar([ours[key] for key in shared], [theirs[key] for key in shared]).p_value:.3g}"
