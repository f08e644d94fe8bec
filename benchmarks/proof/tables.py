"""Figures over seeds as cells of a Markdown table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from isthmus.core.statistics import bootstrap_mean
from isthmus.runs.folder import AttackFile

Held = Mapping[str, bool]
"""Which of the attacked examples a model still got right, by id."""


def over_seeds(values: Sequence[float | None], scale: float = 100.0, digits: int = 1) -> str:
    """Mean and 95 % interval of the mean over seeds (Student's t); the plain value where there is one seed."""
    known = np.array([value for value in values if value is not None], dtype=np.float64) * scale
    if not len(known):
        return "-"
    if len(known) == 1:
        return f"{known[0]:.{digits}f}"
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


def held(file: AttackFile) -> dict[str, bool]:
    """Which examples of an attack the model still got right."""
    return {row["id"]: row["outcome"] == "failed" for row in file.rows()}


def paired_change(pairs: Iterable[tuple[Held, Held]]) -> str | None:
    """Change in points from the second to the first of each pair, a pair for each seed, on the examples both saw.

    Seeds are averaged first and examples are resampled: one example under several seeds is not several examples.
    """
    changes: dict[str, list[float]] = {}
    for ours, theirs in pairs:
        for key in ours.keys() & theirs.keys():
            changes.setdefault(key, []).append(float(ours[key]) - float(theirs[key]))
    if not changes:
        return None
    mean = bootstrap_mean([sum(values) / len(values) for _, values in sorted(changes.items())])
    return f"{100 * mean.estimate:+.1f} ({100 * mean.low:+.1f} to {100 * mean.high:+.1f})"
