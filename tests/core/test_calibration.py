"""Calibration against closed forms, and the coverage of its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.calibration import (
    Binning,
    brier_scores,
    calibration,
    cross_entropies,
    expected_calibration_error,
)
from isthmus.core.errors import UnknownName, UsageError

BINNINGS: tuple[Binning, ...] = ("width", "mass")


@pytest.mark.parametrize("binning", BINNINGS)
def test_a_constant_confidence_is_off_by_the_difference(binning: Binning) -> None:
    right = np.arange(100) < 70
    found = calibration(np.full(100, 0.9), right, binning=binning)
    assert found.ece.estimate == pytest.approx(0.2)
    assert found.mce.estimate == pytest.approx(0.2)
    assert found.ece.low < 0.2 < found.ece.high
    filled = [each for each in found.bins if each.count]
    assert [(each.count, each.right) for each in filled] == [(100, 70)]
    assert filled[0].gap == pytest.approx(-0.2)


def test_bins_are_those_of_guo_et_al() -> None:
    # (0.2, 0.4] holds 0.4 and not 0.2: two bins, gaps 0.8 and 0.3 of one and two examples.
    confidence, right = [0.2, 0.3, 0.4], [1, 0, 1]
    found = calibration(confidence, right, bins=5)
    assert [each.count for each in found.bins] == [1, 2, 0, 0, 0]
    assert found.ece.estimate == pytest.approx((0.8 + abs(1 - 0.7)) / 3)
    assert found.mce.estimate == pytest.approx(0.8)
    assert math.isnan(found.bins[-1].confidence)


def test_equal_masses_hold_equal_numbers() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.beta(8, 2, 300)
    found = calibration(confidence, rng.random(300) < confidence, bins=10, binning="mass")
    assert {each.count for each in found.bins} == {30, 31, 29} & {each.count for each in found.bins}
    assert sum(each.count for each in found.bins) == 300
    assert all(each.low <= each.confidence <= each.high for each in found.bins)


def test_equal_confidences_never_part() -> None:
    confidence = np.repeat([0.6, 0.7, 0.9], [50, 5, 45])
    found = calibration(confidence, np.ones(100), bins=10, binning="mass")
    assert len(found.bins) <= 3
    assert found.ece.estimate == pytest.approx(1 - confidence.mean())


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.integers(1, 20))
def test_laws(rows: list[tuple[float, bool]], bins: int) -> None:
    confidence, right = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    for binning in BINNINGS:
        found = calibration(confidence, right, bins=bins, binning=binning, draws=20)
        plain = expected_calibration_error(confidence, right, bins=bins, binning=binning)
        assert found.ece.estimate == pytest.approx(plain)
        # |mean gap| <= ECE <= MCE, and one bin has the mean gap itself.
        assert abs(right.mean() - confidence.mean()) <= found.ece.estimate + 1e-12
        assert found.ece.estimate <= found.mce.estimate + 1e-12
        for interval in (found.ece, found.mce):
            assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    alone = expected_calibration_error(confidence, right, bins=1)
    assert alone == pytest.approx(abs(right.mean() - confidence.mean()))


def sample(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    confidence = rng.uniform(0.5, 1, n) if kind != "constant" else np.full(n, 0.9)
    truth = {"perfect": confidence, "constant": confidence - 0.2, "partly": confidence - 0.06 * (confidence > 0.8)}
    return confidence, rng.random(n) < truth[kind]


@pytest.mark.parametrize(("kind", "truth"), [("perfect", 0.0), ("constant", 0.2), ("partly", 0.024)])
def test_the_interval_covers_the_truth(kind: str, truth: float) -> None:
    """95 % is promised; with 120 samples 88 % is 3.5 standard errors away."""
    rng = np.random.default_rng(7)
    covered = [truth in calibration(*sample(kind, 300, rng), draws=200).ece for _ in range(120)]
    assert np.mean(covered) > 0.88


def test_the_plain_estimate_is_biased_and_percentiles_would_miss_the_truth() -> None:
    rng = np.random.default_rng(1)
    found = [calibration(*sample("perfect", 300, rng), draws=100) for _ in range(40)]
    mean, bias = np.mean([each.ece.estimate for each in found]), np.mean([each.bias for each in found])
    assert mean > 0.02
    assert bias == pytest.approx(mean, rel=0.15)  # of a calibrated model all of it is luck
    assert all(each.ece.low == 0 for each in found[:30] if each.ece.estimate < mean)


def test_a_larger_sample_is_less_biased() -> None:
    rng = np.random.default_rng(2)
    small, large = (calibration(*sample("perfect", n, rng), draws=50) for n in (200, 20_000))
    assert large.ece.estimate < small.ece.estimate / 4
    assert large.bias < small.bias / 4


def test_the_same_seed_gives_the_same_interval() -> None:
    rng = np.random.default_rng(3)
    rows = sample("partly", 200, rng)
    assert calibration(*rows, seed=4) == calibration(*rows, seed=4)
    assert calibration(*rows, seed=4).ece != calibration(*rows, seed=5).ece


def test_the_interval_of_the_maximum_holds_for_all_bins() -> None:
    rng = np.random.default_rng(5)
    covered = [calibration(*sample("perfect", 300, rng), draws=2).mce.low == 0 for _ in range(60)]
    assert np.mean(covered) > 0.9
    sure = calibration(np.full(1000, 0.99), np.arange(1000) < 500, draws=2)
    assert sure.mce.low > 0.4


def test_scores_of_rows() -> None:
    scores, labels = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], [0, 1, 0]
    assert brier_scores(scores, labels) == pytest.approx([0.0, 0.5, 2.0])
    entropies = cross_entropies(scores, labels)
    assert entropies[:2] == pytest.approx([0.0, math.log(2)])
    assert np.isfinite(entropies[2])
    assert entropies[2] > 20


def test_nothing_gives_no_number() -> None:
    found = calibration([], [])
    assert found.n == 0
    assert math.isnan(found.ece.estimate)
    assert math.isnan(expected_calibration_error([], []))


@pytest.mark.parametrize(
    ("confidence", "right", "options", "kind", "said"),
    [
        ([0.5], [1, 0], {}, UsageError, "one confidence and one answer"),
        ([1.5], [1], {}, UsageError, "between 0 and 1"),
        ([math.nan], [1], {}, UsageError, "between 0 and 1"),
        ([0.5], [2], {}, UsageError, "right"),
        ([0.5], [1], {"bins": 0}, UsageError, "at least one bin"),
        ([0.5], [1], {"binning": "masses"}, UnknownName, "mass"),
    ],
    ids=["lengths", "range", "nan", "answers", "bins", "binning"],
)
def test_wrong_values(confidence: list[float], right: list[int], options: dict, kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        calibration(confidence, right, **options)
