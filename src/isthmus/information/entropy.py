"""Entropy of a discrete distribution from counts of its symbols, in nats.

    MLE             Σ φ(p̂),  φ(p) = -p ln p                        too low by about (S-1)/2n, and never above ln n
    Miller-Madow    MLE + (S-1)/2n                                 S symbols seen; unseen ones still count nothing
    JVHW            Σ w φ̂(p̂) + (1-w) P(p̂)                          rare symbols by a polynomial, frequent ones corrected
    Wu-Yang         Σ g(N)  for N ≤ 1.6 ln k,  else φ̂              the same idea for an alphabet of known size k

φ̂(p) = φ(p) + 1/2n. P is the unbiased estimate of the polynomial that comes closest to φ on [0, T], a sum of falling
factorials of the count. Its coefficients are found by the algorithm of Remez when they are first needed.

References:
    Jiao, Venkat, Han and Weissman (2015), Minimax Estimation of Functionals of Discrete Distributions,
    https://arxiv.org/abs/1406.6956; Wu and Yang (2016), Minimax Rates of Entropy Estimation on Large Alphabets via Best
    Polynomial Approximation, https://arxiv.org/abs/1407.0381; Miller (1955), Note on the Bias of Information Estimates.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isthmus.core.errors import UsageError
from isthmus.core.statistics import Interval

Counts = NDArray[np.int64]

SATURATED = 0.9
"""Above this share of symbols that occur once, no estimator can tell the entropy from ln n."""


def count_symbols(symbols: Sequence[object]) -> Counts:
    """Number of occurrences of each distinct symbol."""
    return np.array(sorted(Counter(symbols).values()), dtype=np.int64)


def unique_share(counts: ArrayLike) -> float:
    """Share of the draws whose symbol occurs once; above `SATURATED` no estimate can be told from ln n."""
    found = _check_counts(counts)
    return float((found == 1).sum() / found.sum())


def mle_entropy(counts: ArrayLike) -> float:
    """Entropy of the observed frequencies; below the truth in expectation."""
    found = _check_counts(counts)
    shares = found / found.sum()
    return float(-(shares * np.log(shares)).sum())


def miller_madow_entropy(counts: ArrayLike) -> float:
    """The MLE with a first-order correction of its bias; still too low if most symbols are unseen."""
    found = _check_counts(counts)
    return mle_entropy(found) + (len(found) - 1) / (2 * int(found.sum()))


def jvhw_entropy(counts: ArrayLike) -> float:
    """The minimax estimate of Jiao et al. with the constants of their released code.

    Its bias is of the order S / (n ln n), against S / n of the MLE. Without a symbol that occurs once, or with fewer
    draws than the order of the polynomial, it is the MLE plus 1/2n for every symbol seen.
    """
    found = _check_counts(counts)
    n, once = int(found.sum()), int((found == 1).sum())
    order = min(4 + math.ceil(1.2 * math.log(n)), 22)
    frequencies, times = np.unique(found, return_counts=True)
    if once == 0 or n < order:
        values = [max(0.0, _correct_term(int(count), n)) for count in frequencies]
    else:
        threshold = 4 * _jvhw_range(n, once) * math.log(n) / n
        values = [_jvhw_term(int(count), n, threshold, order) for count in frequencies]
    return float(math.fsum(value * int(many) for value, many in zip(values, times, strict=True)))


def wu_yang_entropy(counts: ArrayLike, alphabet: int) -> float:
    """The minimax estimate of Wu and Yang for an alphabet of at most `alphabet` symbols.

    An alphabet that is far too large makes it too high: unseen symbols add to it.
    """
    found = _check_counts(counts)
    if alphabet < len(found):
        raise UsageError(f"{len(found)} symbols occur, which is more than an alphabet of {alphabet}")
    n, size = int(found.sum()), math.log(alphabet)
    degree, most = math.floor(1.6 * size), math.floor(1.6 * size)
    if degree < 1:
        return miller_madow_entropy(found)
    frequencies, times = np.unique(found, return_counts=True)
    terms = [
        int(many) * (_correct_term(int(count), n) if count > most else _wu_yang_term(int(count), n, 3.5 * size, degree))
        for count, many in zip(frequencies, times, strict=True)
    ]
    terms.append((alphabet - len(found)) * _wu_yang_term(0, n, 3.5 * size, degree))
    return max(0.0, math.fsum(terms))


def _check_counts(counts: ArrayLike) -> Counts:
    found = np.asarray(counts)
    if found.ndim != 1 or not len(found) or not np.issubdtype(found.dtype, np.integer) or (found < 0).any():
        raise UsageError(f"counts are a list of whole numbers that are not negative, not {counts!r}")
    found = found[found > 0].astype(np.int64)
    if not len(found):
        raise UsageError("no symbol was counted: an entropy needs at least one draw")
    return found


def _correct_term(count: int, n: int) -> float:
    """-p ln p with a first-order correction of its bias."""
    share = count / n
    return -share * math.log(share) + 0.5 / n


def _jvhw_range(n: int, once: int) -> float:
    """c₁: the range of the polynomial; the authors fitted it to the share of symbols that occur once."""
    u = math.log(n / once)
    if n >= 200 and u <= 1.5:
        found = -0.530556484842359 * u**2 + 1.09787328176926 * u + 0.184831781602259
    else:
        found = 0.3303 * u + 0.4679
    return max(found, 1 / (1.9 * math.log(n)))  # The threshold must lie above 1/n.


def _jvhw_term(count: int, n: int, threshold: float, order: int) -> float:
    """The contribution of a symbol seen `count` times: polynomial below half the threshold, plug-in above it."""
    share = count / n
    weight = min(max(2 * share / threshold - 1, 0.0), 1.0)
    if weight == 1.0:
        return max(0.0, _correct_term(count, n))
    # In fractions: the terms are up to 1e11 times their sum.
    coefficients, width, power, total = approximation(order), Fraction(threshold), Fraction(threshold), Fraction(0)
    for number, coefficient in enumerate(coefficients):
        total += coefficient * power
        if number >= n:
            break
        power *= Fraction(count - number, n - number) / width
    polynomial = float(total) - share * math.log(threshold)
    return max(0.0, weight * _correct_term(count, n) + (1 - weight) * polynomial)


def _wu_yang_term(count: int, n: int, ratio: float, degree: int) -> float:
    """The contribution of a symbol seen `count` times, if the number of draws were Poisson."""
    width, power, total = Fraction(ratio), Fraction(ratio), Fraction(0)
    for number, coefficient in enumerate(approximation(degree)):
        total += coefficient * power
        power *= Fraction(count - number) / width
    return (float(total) - count * math.log(ratio / n)) / n


@functools.cache
def approximation(order: int) -> tuple[Fraction, ...]:
    """Coefficients of 1, x, …, x^order of the polynomial that comes closest to -x ln x everywhere on [0, 1]."""
    if order < 1:
        raise UsageError(f"a polynomial of order {order} approximates nothing: at least 1")
    best = remez(order)
    # Exact from here on: the sum of Chebyshev polynomials is well conditioned, the powers of x are not.
    shifted = [[Fraction(1)], [Fraction(-1), Fraction(2)]]
    for _ in range(order - 1):
        last, before = shifted[-1], shifted[-2]
        after = [Fraction(0)] * (len(last) + 1)
        for power, value in enumerate(last):
            after[power] -= 2 * value
            after[power + 1] += 4 * value
        for power, value in enumerate(before):
            after[power] -= value
        shifted.append(after)
    total = [Fraction(0)] * (order + 1)
    for weight, polynomial in zip(best, shifted, strict=False):
        for power, value in enumerate(polynomial):
            total[power] += Fraction(float(weight)) * value
    return tuple(total)


def remez(order: int, rounds: int = 40) -> NDArray[np.float64]:
    """Weights of the Chebyshev polynomials T_k(2x - 1) whose sum comes closest to -x ln x on [0, 1].

    The error of the best one alternates at order + 2 points. Each round solves for equal errors at the present points
    and moves them to where the error is largest. Points are angles, x = (1 - cos a) / 2, since they crowd towards 0.
    """
    points = np.linspace(0, math.pi, order + 2)
    grid = np.linspace(0, math.pi, 400 * (order + 2) + 1)
    signs = (-1.0) ** np.arange(order + 2)
    weights: NDArray[np.float64] = np.zeros(order + 1)
    for _ in range(rounds):
        # order + 2 equations for order + 1 weights and the error: Σ_k w_k T_k(x_i) ± level = -x_i ln x_i.
        solved = np.linalg.solve(np.column_stack([_basis(points, order), signs]), _entropy_of_angle(points))
        weights, level = np.asarray(solved[:-1], dtype=np.float64), abs(float(solved[-1]))
        errors = _entropy_of_angle(grid) - _basis(grid, order) @ weights
        cuts = np.flatnonzero(np.diff(np.sign(errors))) + 1  # between two cuts the error has one sign, and one peak
        pieces = np.split(np.arange(len(grid)), cuts)
        peaks = [piece[np.argmax(np.abs(errors[piece]))] for piece in pieces]
        if len(peaks) != order + 2:
            raise RuntimeError(f"the error of order {order} changes its sign {len(peaks) - 1} times")
        points = np.array([_peak(grid, errors, int(at)) for at in peaks])
        if np.abs(errors[peaks]).max() - level < 1e-13:
            break
    return weights


def _basis(angles: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """T_k(2x - 1) = cos(k (π - a)) at every angle."""
    return np.asarray(np.cos(np.outer(math.pi - angles, np.arange(order + 1))), dtype=np.float64)


def _entropy_of_angle(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.sin(angles / 2) ** 2
    return np.asarray(-x * np.log(np.where(x > 0, x, 1.0)), dtype=np.float64)


def _peak(grid: NDArray[np.float64], errors: NDArray[np.float64], at: int) -> float:
    """The top of the parabola through a grid point and its neighbours."""
    if at in (0, len(grid) - 1):
        return float(grid[at])
    low, here, high = errors[at - 1 : at + 2]
    bend = low - 2 * here + high
    shift = 0.0 if bend == 0 else 0.5 * float((low - high) / bend)
    return float(grid[at] + max(-1.0, min(1.0, shift)) * (grid[1] - grid[0]))


def jackknife_interval(estimate: Callable[[Counts], float], counts: ArrayLike, level: float = 0.95) -> Interval:
    """An estimate with its jackknife interval, leaving out one draw at a time; the interval excludes its bias.

    Draws whose symbols occur equally often leave the same counts behind, so that few of them have to be computed.
    """
    found = np.sort(_check_counts(counts))
    value, n = estimate(found), int(found.sum())
    if n < 2:
        return Interval(value, value, value, level)
    frequencies, first, times = np.unique(found, return_index=True, return_counts=True)
    without = []
    for at in first:
        fewer = found.copy()
        fewer[at] -= 1
        without.append(estimate(fewer[fewer > 0]))
    draws = frequencies * times  # How many draws each stands for.
    mean = float(np.average(without, weights=draws))
    variance = (n - 1) / n * float(draws @ (np.array(without) - mean) ** 2)
    half = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(variance)
    return Interval(value, max(0.0, value - half), value + half, level)
