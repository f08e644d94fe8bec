"""Intervals that count seeds and texts: closed forms, what they reduce to, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student

from interval_coverage import Study, coverage
from isthmus.core.crossed import crossed_difference, crossed_rate
from isthmus.core.errors import UsageError
from isthmus.core.statistics import holm, wilson


def drawn(seeds: int, texts: int, rate: float, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).random((seeds, texts)) < rate).astype(float)


def test_one_seed_is_students_interval_over_texts_in_wilsons_form() -> None:
    right = drawn(1, 400, 0.7)
    found, exact = crossed_rate(right), wilson(int(right.sum()), 400)
    assert found.estimate == exact.estimate
    assert found.low == pytest.approx(exact.low, abs=1e-3)
    assert found.high == pytest.approx(exact.high, abs=1e-3)


def test_equal_seeds_are_worth_one() -> None:
    row = drawn(1, 300, 0.4)
    once, thrice = crossed_rate(row), crossed_rate(np.repeat(row, 3, axis=0))
    assert thrice.low == pytest.approx(once.low, abs=1e-12)
    assert thrice.high == pytest.approx(once.high, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_nothing_and_everything_right_still_have_an_interval(value: float) -> None:
    found = crossed_rate(np.full((3, 200), value))
    exact = wilson(int(200 * value), 200)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
    assert found.high - found.low > 0.015


def test_where_only_seeds_differ_it_is_students_t_over_seeds() -> None:
    # Every text of a seed alike: nothing varies but the seed, so that the difference is a sample of three numbers.
    values = np.repeat(np.array([[1.0], [1.0], [0.0]]), 50, axis=1)
    found = crossed_difference(values, np.zeros((3, 50)))
    expected = ttest_1samp([1.0, 1.0, 0.0], 0.0)
    half = student.ppf(0.975, 2) * np.std([1, 1, 0], ddof=1) / math.sqrt(3)
    assert found.difference.low == pytest.approx(max(-1.0, 2 / 3 - half))
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6)


def test_seeds_that_scatter_widen_the_interval_and_texts_alone_do_not_notice() -> None:
    calm = np.vstack([drawn(1, 500, 0.6, seed) for seed in range(3)])
    wild = np.vstack([drawn(1, 500, rate, seed) for seed, rate in enumerate((0.4, 0.6, 0.8))])
    width = [found.high - found.low for found in (crossed_rate(calm), crossed_rate(wild))]
    assert width[1] > 5 * width[0]


def test_one_seed_is_tested_by_mcnemar() -> None:
    a = np.array([[1.0] * 30 + [0.0] * 10 + [1.0] * 60])
    b = np.array([[0.0] * 30 + [1.0] * 10 + [1.0] * 60])
    found = crossed_difference(a, b)
    assert found.p_value == pytest.approx(binomtest(10, 40).pvalue)
    assert found.difference.estimate == pytest.approx(0.2)
    assert (found.seeds, found.texts) == (1, 100)


@pytest.mark.parametrize("gain", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_the_interval_holds_zero_exactly_where_p_is_above_its_level(gain: float) -> None:
    a, b = drawn(3, 400, 0.5, 1), drawn(3, 400, 0.5 + gain, 2)
    found = crossed_difference(b, a)
    assert (0.0 in found.difference) == (found.p_value > 0.05)
    edge = crossed_difference(b, a, level=1 - found.p_value) if 0.001 < found.p_value < 1 else None
    if edge is not None:
        assert min(abs(edge.difference.low), abs(edge.difference.high)) == pytest.approx(0.0, abs=1e-6)


def test_swapping_the_sides_swaps_the_sign() -> None:
    a, b = drawn(3, 100, 0.5, 1), drawn(3, 100, 0.7, 2)
    there, back = crossed_difference(a, b), crossed_difference(b, a)
    assert there.difference.low == pytest.approx(-back.difference.high)
    assert there.p_value == back.p_value
    assert there.detectable == back.detectable


def test_models_that_agree_everywhere_may_still_differ_a_little() -> None:
    same = drawn(3, 200, 0.8)
    found = crossed_difference(same, same)
    assert found.p_value == 1.0
    assert found.difference.estimate == 0
    assert found.difference.high == pytest.approx(1.96 * math.sqrt(2) / 202, abs=1e-4)
    assert found.detectable > found.difference.high


def test_a_difference_of_the_detectable_size_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(0)
    texts, share = 1000, 0.2  # of texts on which the two disagree
    probe = rng.choice([-1.0, 0.0, 1.0], p=[share / 2, 1 - share, share / 2], size=(1, texts))
    detectable = crossed_difference(np.clip(probe, 0, 1), np.clip(-probe, 0, 1)).detectable
    assert detectable == pytest.approx((1.96 + 0.842) * math.sqrt(share / texts), rel=0.1)
    up, down = (share + detectable) / 2, (share - detectable) / 2
    wins = rng.multinomial(texts, [up, down, 1 - share], size=400)
    found = 0
    for won, lost, _ in wins:
        a = np.zeros((1, texts))
        b = np.zeros((1, texts))
        a[0, :won], b[0, won : won + lost] = 1, 1
        found += 0.0 not in crossed_difference(a, b).difference
    assert 0.74 < found / 400 < 0.86


@pytest.mark.parametrize(
    "study",
    [Study(3, 200, 0.4, 0.0), Study(3, 500, 0.88, 0.15, gain=0.3), Study(5, 200, 0.05, 0.4)],
    ids=["texts decide", "both", "seeds decide"],
)
def test_simulated_studies_are_covered(study: Study) -> None:
    found = coverage(study, 250)
    # Three standard deviations of 250 studies that cover 95 %.
    assert found["rate: crossed"][0] > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 250)
    assert found["difference: crossed"][0] > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 250)


def test_the_simulation_tells_a_bad_interval_from_a_good_one() -> None:
    found = coverage(Study(3, 500, 0.4, 0.4), 60)
    assert found["rate: all answers as independent (Wilson)"][0] < 0.6
    assert found["difference: bootstrap over texts"][0] < 0.6


def test_what_is_no_study_is_refused() -> None:
    with pytest.raises(UsageError, match="matrix"):
        crossed_rate([1.0, 0.0])
    with pytest.raises(UsageError, match="zeros and ones"):
        crossed_rate([[0.5, 1.0]])
    with pytest.raises(UsageError, match="same seeds and texts"):
        crossed_difference(np.ones((3, 4)), np.ones((2, 4)))
    with pytest.raises(UsageError, match="level"):
        crossed_rate(np.ones((3, 4)), level=1.0)
    assert math.isnan(crossed_rate(np.ones((3, 0))).estimate)


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([0.02]) == [0.02]
    assert holm([]) == []
    with pytest.raises(UsageError, match="between 0 and 1"):
        holm([1.5])
