"""Entropy from counts, against what is known exactly and against figures of the authors' code."""

import math
from fractions import Fraction

import numpy as np
import pytest

from isthmus.core.errors import UsageError
from isthmus.information.entropy import (
    approximation,
    count_symbols,
    jackknife_interval,
    jvhw_entropy,
    miller_madow_entropy,
    mle_entropy,
    unique_share,
    wu_yang_entropy,
)


def draws(symbols: int, n: int, seed: int) -> np.ndarray:
    counts = np.bincount(np.random.default_rng(seed).integers(symbols, size=n), minlength=symbols)
    return counts[counts > 0]


def bits(estimate, symbols: int, n: int, times: int = 20) -> tuple[float, float]:
    found = [estimate(draws(symbols, n, seed)) / math.log(2) for seed in range(times)]
    return float(np.mean(found)), float(np.std(found))


def test_symbols_are_counted():
    assert count_symbols(["a", "b", "a", (1, 2), "a"]).tolist() == [1, 1, 3]
    assert unique_share([1, 1, 3]) == pytest.approx(0.4)


@pytest.mark.parametrize("symbols", [1, 2, 7, 100])
def test_equal_counts_have_the_logarithm_of_their_number(symbols):
    assert mle_entropy([5] * symbols) == pytest.approx(math.log(symbols), abs=1e-12)
    corrected = math.log(symbols) + (symbols - 1) / (2 * 5 * symbols)
    assert miller_madow_entropy([5] * symbols) == pytest.approx(corrected)


def test_the_mle_is_too_low_in_expectation():
    mean, deviation = bits(mle_entropy, 50, 100, times=100)
    assert mean + 3 * deviation / 10 < math.log2(50)


def test_symbols_that_were_never_seen_change_nothing():
    counts = [3, 0, 1, 0, 7, 1]
    for estimate in (mle_entropy, miller_madow_entropy, jvhw_entropy, unique_share):
        assert estimate(counts) == estimate([3, 1, 7, 1])


@pytest.mark.parametrize(
    ("symbols", "n", "mean", "deviation", "plain"), [(1000, 1000, 9.96, 0.08, 9.14), (10000, 2000, 13.34, 0.15, 10.78)]
)
def test_jvhw_agrees_with_the_means_of_the_released_code(symbols, n, mean, deviation, plain):
    found, spread = bits(jvhw_entropy, symbols, n)
    assert found == pytest.approx(mean, abs=deviation / 2)
    assert spread < 1.5 * deviation
    assert bits(mle_entropy, symbols, n)[0] == pytest.approx(plain, abs=0.03)


def test_jvhw_without_rare_symbols_is_the_corrected_plug_in():
    counts = [20, 30, 50]
    assert jvhw_entropy(counts) == pytest.approx(mle_entropy(counts) + 3 / (2 * 100))
    few = [1, 1, 2]  # Fewer draws than the order of the polynomial.
    assert jvhw_entropy(few) == pytest.approx(mle_entropy(few) + 3 / (2 * 4))


def test_no_symbol_takes_entropy_away():
    """One symbol in nearly every draw: without the clamp per symbol its 1/2n apart, the polynomial may go below 0."""
    for n in (50, 1000, 10**6):
        assert jvhw_entropy([n, 1]) >= 0
        assert jvhw_entropy([n]) == pytest.approx(0.5 / n)


@pytest.mark.parametrize(("symbols", "n", "near"), [(1000, 1000, 0.12), (10000, 2000, 0.4)])
def test_wu_yang_comes_near_the_truth_where_the_mle_does_not(symbols, n, near):
    found, _ = bits(lambda counts: wu_yang_entropy(counts, symbols), symbols, n)
    truth = math.log2(symbols)
    assert abs(found - truth) < near < abs(bits(miller_madow_entropy, symbols, n)[0] - truth)


def test_wu_yang_wants_an_alphabet_that_holds_the_symbols():
    with pytest.raises(UsageError, match="3 symbols occur, which is more than an alphabet of 2"):
        wu_yang_entropy([1, 1, 1], 2)
    assert wu_yang_entropy([4], 1) == 0.0


def test_the_polynomial_of_order_three():
    wanted = (0.0243506, 2.2379852, -4.0212481, 1.7832629)
    assert [float(value) for value in approximation(3)] == pytest.approx(wanted, abs=5e-8)


@pytest.mark.parametrize("order", [1, 3, 9, 22])
def test_the_error_alternates_at_its_largest(order):
    """The best approximation is the one whose largest error occurs order + 2 times with alternating signs."""
    coefficients = approximation(order)
    angles = np.linspace(0, math.pi, 300 * (order + 2))
    x = np.sin(angles / 2) ** 2
    values = []
    for point in x[:: 1 if order < 5 else 5]:
        value = Fraction(0)
        for coefficient in reversed(coefficients):
            value = value * Fraction(float(point)) + coefficient
        values.append(float(value) + (float(point) * math.log(point) if point else 0.0))
    errors = np.array(values)
    largest = np.abs(errors).max()
    assert largest == pytest.approx(float(coefficients[0]), rel=1e-6)  # At 0 the error is the constant term.
    peaks = [part[np.argmax(np.abs(part))] for part in np.split(errors, np.flatnonzero(np.diff(np.sign(errors))) + 1)]
    assert len(peaks) == order + 2
    assert np.abs(peaks).min() > 0.99 * largest


@pytest.mark.parametrize("counts", [[], [0, 0], [1.5, 2.0], [-1, 3], [[1, 2]]])
def test_what_is_no_list_of_counts_is_refused(counts):
    with pytest.raises(UsageError, match=r"counts|counted"):
        mle_entropy(counts)


def test_the_jackknife_leaves_every_draw_out_once():
    counts = np.array([1, 1, 3, 7])
    without = []
    for symbol, count in enumerate(counts):
        fewer = counts.copy()
        fewer[symbol] -= 1
        without += [mle_entropy(fewer)] * int(count)
    half = 1.959964 * math.sqrt(11 / 12 * ((np.array(without) - np.mean(without)) ** 2).sum())
    found = jackknife_interval(mle_entropy, counts)
    assert found.estimate == mle_entropy(counts)
    assert found.high - found.estimate == pytest.approx(half, rel=1e-6)
    assert jackknife_interval(mle_entropy, [1]).high == 0.0


@pytest.mark.parametrize("estimate", [miller_madow_entropy, jvhw_entropy])
def test_the_interval_of_the_jackknife_covers_where_the_bias_is_small(estimate):
    found = [jackknife_interval(estimate, draws(100, 600, seed)) for seed in range(12)]
    assert sum(math.log(100) in each for each in found) >= 11
    assert np.mean([each.high - each.low for each in found]) < 0.12
