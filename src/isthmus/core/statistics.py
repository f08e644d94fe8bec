"""Intervals and tests: every figure that isthmus reports has one of these.

Wilson            centre ± half = (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
Clopper-Pearson   low = Beta⁻¹(α/2; k, n-k+1),  high = Beta⁻¹(1-α/2; k+1, n-k)
quantile          order statistics x_(l), x_(u) with P(Binomial(n, q) < l) ≤ α/2 and P(Binomial(n, q) ≥ u) ≤ α/2
paired bootstrap  percentiles of mean(a* - b*) over resampled pairs
cluster bootstrap percentiles of Σ total* / Σ size* over resampled groups
McNemar           2 · P(Binomial(b+c, ½) ≤ min(b, c)), exact
Holm              p_(i) becomes the largest (m - j + 1) p_(j) with j ≤ i, at most 1
AUC               P(positive > negative) + ½ P(positive = negative)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isthmus.core.errors import UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.types import Doubles


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval that covers the truth with probability `level`."""

    estimate: float
    low: float
    high: float
    level: float = 0.95

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def to_dict(self) -> dict[str, float]:
        """A JSON-ready dictionary."""
        return {"estimate": self.estimate, "low": self.low, "high": self.high, "level": self.level}

    def to_json(self) -> dict[str, float | None]:
        """For a record: six decimals, null for NaN, and no level, which is always 0.95."""
        return {name: json_number(getattr(self, name)) for name in ("estimate", "low", "high")}

    @classmethod
    def from_json(cls, value: Any) -> Interval:
        """Read what `to_json` wrote; NaN between 0 and 1 where a record holds no interval."""
        if not isinstance(value, Mapping):
            return cls(math.nan, 0.0, 1.0)
        return cls(*(read_number(value.get(name)) for name in ("estimate", "low", "high")))


@dataclass(frozen=True, slots=True)
class McNemar:
    """Exact McNemar test: numbers of examples that only the first (`b`) or only the second (`c`) got right, p-value."""

    b: int
    c: int
    p_value: float


def json_number(value: float, decimals: int = 6) -> float | None:
    """A figure as records hold it: rounded, null where there is no number."""
    return None if math.isnan(value) else round(float(value), decimals)


def read_number(value: Any) -> float:
    """Read what `json_number` wrote; NaN for null."""
    return math.nan if value is None else float(value)


def wilson(k: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a rate of `k` in `n`; (0, 1) with estimate NaN if n is 0."""
    _check_counts(k, n)
    check_share("level", level)
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, level)
    return wilson_of_rate(k / n, n, level)


def wilson_of_rate(rate: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a rate over `n` examples; `n` need not be a whole number."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = rate + z * z / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At rates 0 and 1 the bound is exactly 0 or 1, which rounding would miss by 1e-17.
    low = 0.0 if rate == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if rate == 1 else min(1.0, (centre + half) / scale)
    return Interval(rate, low, high, level)


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Interval:
    """The two-sided exact interval: covers the truth with probability at least `level`, for every truth."""
    _check_counts(k, n)
    check_share("level", level)
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, level)
    tail = (1 - level) / 2
    return Interval(k / n, _beta_lower(k, n, tail), 1.0 - _beta_lower(n - k, n, tail), level)


def clopper_pearson_lower(k: int, n: int, alpha: float) -> float:
    """The one-sided exact bound: the truth is below it with probability at most `alpha`."""
    _check_counts(k, n)
    check_share("alpha", alpha)
    return _beta_lower(k, n, alpha)


def _beta_lower(k: int, n: int, tail: float) -> float:
    if k == 0:
        return 0.0
    # scipy.special costs a tenth of the import time of scipy.stats and holds the same function.
    from scipy.special import betaincinv

    return float(betaincinv(k, n - k + 1, tail))


def quantile(values: ArrayLike, share: float, level: float = 0.95) -> Interval:
    """The `share`-quantile, with the interval of its order statistics, which holds for every distribution.

    A bound is infinite where the sample is too small for it: the 95 % quantile of 50 values has no upper one.
    """
    from scipy.special import bdtr

    found = np.sort(_vector("values", values))
    check_share("share", share)
    check_share("level", level)
    n = len(found)
    if n == 0:
        return Interval(math.nan, -math.inf, math.inf, level)
    below = np.asarray(bdtr(np.arange(n), n, share))  # P(Binomial <= 0), …, P(Binomial <= n - 1)
    tail = (1 - level) / 2
    lower = int((below <= tail).sum())
    upper = int((1 - below > tail).sum())
    return Interval(
        float(np.quantile(found, share)),
        float(found[lower - 1]) if lower else -math.inf,
        float(found[upper]) if upper < n else math.inf,
        level,
    )


def bootstrap_mean(values: ArrayLike, seed: int = 0, draws: int = 10_000, level: float = 0.95) -> Interval:
    """Percentile bootstrap interval of a mean."""
    sample = _vector("values", values)
    check_share("level", level)
    if draws < 1:
        raise UsageError(f"draws must be at least 1, not {draws}")
    if len(sample) == 0:
        return Interval(math.nan, math.nan, math.nan, level)
    rng = numpy_stream(seed, "bootstrap")
    # A draw only depends on how often each distinct value is picked: for rates that is a handful of values, not n.
    distinct, counts = np.unique(sample, return_counts=True)
    if len(distinct) <= 64:
        means = rng.multinomial(len(sample), counts / len(sample), size=draws) @ distinct / len(sample)
    else:
        rows = max(1, 4_000_000 // len(sample))
        blocks = [min(rows, draws - start) for start in range(0, draws, rows)]
        means = np.concatenate([sample[rng.integers(len(sample), size=(m, len(sample)))].mean(axis=1) for m in blocks])
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(sample.mean()), float(low), float(high), level)


def paired_bootstrap(a: ArrayLike, b: ArrayLike, seed: int = 0, draws: int = 10_000, level: float = 0.95) -> Interval:
    """Percentile bootstrap interval of mean(a - b), where a[i] and b[i] are of the same example."""
    first, second = _vector("a", a), _vector("b", b)
    if len(first) != len(second):
        raise UsageError(f"a paired comparison needs equal lengths, not {len(first)} and {len(second)}")
    return bootstrap_mean(first - second, seed, draws, level)


def bootstrap_ratio(
    totals: ArrayLike, sizes: ArrayLike, seed: int = 0, draws: int = 10_000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap interval of a mean over rows in groups, of which only the groups are independent.

    A group is given by the total of its rows and their number.
    """
    total, size = _vector("totals", totals), _vector("sizes", sizes)
    if len(total) != len(size) or (size <= 0).any():
        raise UsageError("every group needs a total and a size that is greater than 0")
    check_share("level", level)
    if not len(total):
        return Interval(math.nan, math.nan, math.nan, level)
    rng = numpy_stream(seed, "bootstrap")
    rows = max(1, 4_000_000 // len(total))
    ratios = []
    for start in range(0, draws, rows):
        picked = rng.integers(len(total), size=(min(rows, draws - start), len(total)))
        ratios.append(total[picked].sum(axis=1) / size[picked].sum(axis=1))
    low, high = np.quantile(np.concatenate(ratios), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(total.sum() / size.sum()), float(low), float(high), level)


def bootstrap_pearson(a: ArrayLike, b: ArrayLike, seed: int = 0, draws: int = 1_000, level: float = 0.95) -> Interval:
    """Pearson's correlation with its percentile bootstrap interval; NaN if one side does not vary.

    Fisher's interval is for normal variables; counts of words are far from that.
    """
    first, second = _correlated(a, b, level)
    if len(first) < 3 or not (np.ptp(first) and np.ptp(second)):
        return Interval(math.nan, math.nan, math.nan, level)
    rng = numpy_stream(seed, "bootstrap")
    rows = max(1, 1_000_000 // len(first))
    found: list[Doubles] = []
    for start in range(0, draws, rows):
        picked = rng.integers(len(first), size=(min(rows, draws - start), len(first)))
        x, y = (side[picked] - side[picked].mean(axis=1, keepdims=True) for side in (first, second))
        scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
        found.append((x * y).sum(axis=1)[scale > 0] / scale[scale > 0])
    low, high = np.quantile(np.concatenate(found), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(np.corrcoef(first, second)[0, 1]), float(low), float(high), level)


def fisher_pearson(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> tuple[Interval, float]:
    """Pearson's correlation with the interval of Fisher's z, and the two-sided p-value of Student's t.

    If one side does not vary, or there are fewer than three pairs, r and p are NaN and the interval is (-1, 1).
    """
    first, second = _correlated(a, b, level)
    n = len(first)
    if n < 3 or not (np.ptp(first) and np.ptp(second)):
        return Interval(math.nan, -1.0, 1.0, level), math.nan
    r = float(np.clip(np.corrcoef(first, second)[0, 1], -1.0, 1.0))
    if n == 3 or abs(r) == 1:
        low, high = (-1.0, 1.0) if n == 3 else (r, r)
    else:
        half = NormalDist().inv_cdf(0.5 + level / 2) / math.sqrt(n - 3)
        low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    from scipy.special import stdtr

    t = math.inf if abs(r) == 1 else abs(r) * math.sqrt((n - 2) / (1 - r * r))
    return Interval(r, low, high, level), float(2 * stdtr(n - 2, -t))


def _correlated(a: ArrayLike, b: ArrayLike, level: float) -> tuple[Doubles, Doubles]:
    first, second = _vector("a", a), _vector("b", b)
    if len(first) != len(second):
        raise UsageError(f"a correlation needs equal lengths, not {len(first)} and {len(second)}")
    check_share("level", level)
    return first, second


def mcnemar(a_right: Sequence[bool] | NDArray[np.bool_], b_right: Sequence[bool] | NDArray[np.bool_]) -> McNemar:
    """Exact McNemar test of two models on the same examples."""
    first, second = np.asarray(a_right, dtype=bool), np.asarray(b_right, dtype=bool)
    if first.ndim != 1 or first.shape != second.shape:
        raise UsageError(f"a paired test needs two vectors of one length, not shapes {first.shape} and {second.shape}")
    b, c = int((first & ~second).sum()), int((second & ~first).sum())
    return McNemar(b, c, _sign_test(min(b, c), b + c))


def _sign_test(k: int, n: int) -> float:
    if n == 0:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2.0 * float(bdtr(k, n, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several comparisons, corrected for their number by Holm's method.

    Where those at most 0.05 are called differences, the chance of any false one among them is at most 0.05.
    """
    if any(not 0 <= value <= 1 for value in p_values):
        raise UsageError(f"p-values lie between 0 and 1, not {[value for value in p_values if not 0 <= value <= 1]}")
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def auc(positives: ArrayLike, negatives: ArrayLike) -> float:
    """Probability that a positive scores above a negative, ties counted half; NaN if either is empty."""
    up, down = _vector("positives", positives), np.sort(_vector("negatives", negatives))
    if not len(up) or not len(down):
        return math.nan
    below = np.searchsorted(down, up, side="left")
    not_above = np.searchsorted(down, up, side="right")
    return float((below + not_above).sum() / (2 * len(up) * len(down)))


def threshold_at_fpr(negative_scores: ArrayLike, fpr: float) -> float:
    """The smallest threshold t with mean(negative_scores >= t) <= fpr.

    It is the float just above the highest score that must not be flagged, so a score has to exceed that one.
    """
    if not 0 <= fpr <= 1:
        raise UsageError(f"fpr must be between 0 and 1, not {fpr}")
    # In the precision of the scores: rounded to float32, the next float64 would be the score itself.
    precision = np.float32 if np.asarray(negative_scores).dtype == np.float32 else np.float64
    scores = np.sort(_vector("negative_scores", negative_scores).astype(precision))
    if not len(scores):
        raise UsageError("a threshold at a false-positive rate needs at least one negative score")
    # 1e-9 keeps 0.07 * 100 = 7.000000000000001 and its like from costing or gaining a whole example.
    allowed = math.floor(fpr * len(scores) + 1e-9)
    if allowed >= len(scores):
        return -math.inf
    return float(np.nextafter(scores[len(scores) - allowed - 1], precision(math.inf)))


def _vector(name: str, values: ArrayLike) -> Doubles:
    return check_numbers(name, values, 1, "a vector")


def check_numbers(name: str, values: ArrayLike, dimensions: int, shape: str) -> Doubles:
    """Numbers as an array; other dimensions, which `shape` names, and NaN are refused."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions:
        raise UsageError(f"{name} must be {shape}, not of shape {array.shape}")
    if np.isnan(array).any():
        raise UsageError(f"{name} holds NaN")
    return array


def _check_counts(k: int, n: int) -> None:
    if not 0 <= k <= n:
        raise UsageError(f"a rate needs 0 <= k <= n, not k={k}, n={n}")


def check_share(name: str, value: float) -> None:
    """Refuse a level, power or quantile that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise UsageError(f"{name} must lie strictly between 0 and 1, not {value}")
