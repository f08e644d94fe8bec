"""How far two sides agree.

deterministic   examples that end alike, of those attacked by either side; the difference of the success rates
random          success rate s_j per seed j; difference of the two means with Welch's interval,
                    d ± t(0.975, ν) √(v₁/m₁ + v₂/m₂),  v the variance over the m seeds
queries         ratio of the averages over attacked examples, counted as TextAttack does (hits of its cache included),
                and of the rows really forwarded
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.core.statistics import Interval, wilson

Row = dict[str, Any]
LEAST_AGREEMENT, MOST_POINTS, MOST_QUERIES = 0.95, 0.02, 0.05


@dataclass
class Comparison:
    """One attack on one data set: isthmus (`ours`) and TextAttack (`theirs`)."""

    attack: str
    n: int
    seeds: int
    attacked: int
    same_outcome: int
    same_text: int
    same_letters: int
    """Texts that are equal but for capitals: an uncased victim scores such candidates alike, and they tie."""
    ours: Interval
    theirs: Interval
    difference: Interval
    our_queries: float
    their_queries: float
    our_rows: float
    their_rows: float
    errors: int = 0
    differing: list[tuple[Row, Row]] = field(default_factory=list, repr=False)
    """Examples that ended with another outcome or another text."""

    @property
    def agreement(self) -> Interval:
        return wilson(self.same_outcome, self.attacked)

    @property
    def query_ratio(self) -> float:
        return self.our_queries / self.their_queries if self.their_queries else math.nan

    @property
    def row_ratio(self) -> float:
        return self.our_rows / self.their_rows if self.their_rows else math.nan

    def verdict(self, random: bool) -> dict[str, bool]:
        """Each promise, and whether it holds."""
        if random:
            return {"success within the 95 % interval": 0.0 in self.difference}
        return {
            f"outcome agrees for {LEAST_AGREEMENT:.0%}": self.same_outcome >= LEAST_AGREEMENT * self.attacked,
            f"success within {100 * MOST_POINTS:.0f} points": abs(self.difference.estimate) <= MOST_POINTS + 1e-12,
            f"queries within {MOST_QUERIES:.0%}": abs(self.query_ratio - 1) <= MOST_QUERIES,
        }


def compare(attack: str, ours: Sequence[Sequence[Row]], theirs: Sequence[Sequence[Row]]) -> Comparison | None:
    """Seed by seed, on the examples that both sides have; None where they have none in common."""
    common = [min(len(mine), len(other)) for mine, other in zip(ours, theirs, strict=False)]
    n = min((count for count in common if count), default=0)
    if not n:
        return None
    seeds = [index for index, count in enumerate(common) if count >= n]
    pairs = [[*zip(ours[seed][:n], theirs[seed][:n], strict=True)] for seed in seeds]
    for mine, other in (pair for seed in pairs for pair in seed):
        if mine["text"] != other["text"]:
            raise SystemExit(f"{attack}: the sides attacked different texts: {mine['text']!r}, {other['text']!r}")
    fought = [pair for seed in pairs for pair in seed if any(row["outcome"] != "skipped" for row in pair)]
    alike = [mine["outcome"] == other["outcome"] for mine, other in fought]
    our_counts, their_counts = ([_success(pair[side] for pair in seed) for seed in pairs] for side in (0, 1))
    return Comparison(
        attack,
        n,
        len(seeds),
        len(fought),
        sum(alike),
        sum(first["perturbed"] == second["perturbed"] for first, second in fought),
        sum(first["perturbed"].lower() == second["perturbed"].lower() for first, second in fought),
        _rate(our_counts),
        _rate(their_counts),
        _difference(our_counts, their_counts),
        our_queries=_mean(mine["queries"] for mine, _ in fought),
        their_queries=_mean(other["queries"] for _, other in fought),
        our_rows=_mean(mine["rows"] for mine, _ in fought),
        their_rows=_mean(other["rows"] for _, other in fought),
        errors=sum(first["outcome"] in ("error", "timed_out") for first, _ in fought),
        differing=[pair for pair in fought if any(pair[0][key] != pair[1][key] for key in ("outcome", "perturbed"))],
    )


def _success(rows: Any) -> tuple[int, int]:
    """Succeeded, and attacked."""
    kinds = [row["outcome"] for row in rows]
    return kinds.count("succeeded"), len(kinds) - kinds.count("skipped")


def _mean(values: Any) -> float:
    found = list(values)
    return float(np.mean(found)) if found else math.nan


def _rates(counts: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array([hits / tried if tried else math.nan for hits, tried in counts])


def _rate(counts: Sequence[tuple[int, int]]) -> Interval:
    """Wilson's interval of one seed (over examples); of several, Student's over seeds (for these examples)."""
    if len(counts) == 1:
        return wilson(*counts[0])
    rates = _rates(counts)
    half = _student(len(rates) - 1) * float(rates.std(ddof=1)) / math.sqrt(len(rates))
    return Interval(float(rates.mean()), float(rates.mean()) - half, float(rates.mean()) + half)


def _difference(ours: Sequence[tuple[int, int]], theirs: Sequence[tuple[int, int]]) -> Interval:
    """Ours minus theirs: Welch over seeds; of one seed Newcombe's interval from the two of Wilson."""
    first, second = _rate(ours), _rate(theirs)
    gap = first.estimate - second.estimate
    if len(ours) == 1:
        low = gap - math.hypot(first.estimate - first.low, second.high - second.estimate)
        high = gap + math.hypot(first.high - first.estimate, second.estimate - second.low)
        return Interval(gap, low, high)
    parts = [float(_rates(counts).var(ddof=1)) / len(counts) for counts in (ours, theirs)]
    total = sum(parts)
    freedom = total**2 / sum(part**2 / (len(ours) - 1) for part in parts) if total else 1.0
    half = _student(freedom) * math.sqrt(total)
    return Interval(gap, gap - half, gap + half)


def _student(freedom: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
