"""Statistics of the benchmarks, where what they have to be is known."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

import train_cost
from agreement.compare import Row, compare
from isthmus.core.statistics import wilson
from proof.tables import mcnemar_of, over_pairs, over_seeds, paired_change, paired_ratio, rank_sum, spread, with_bounds


def rows(succeeded: int, failed: int, skipped: int = 0, **more: Any) -> list[Row]:
    outcomes = ["succeeded"] * succeeded + ["failed"] * failed + ["skipped"] * skipped
    plain = {"perturbed": "a film", "queries": 10, "rows": 8, **more}
    return [{"text": str(place), "outcome": outcome, **plain} for place, outcome in enumerate(outcomes)]


def test_one_seed_has_wilsons_interval_and_newcombes_difference() -> None:
    found = compare("toy", [rows(40, 50, 10)], [rows(30, 60, 10, queries=5, rows=16)])
    assert found is not None
    assert (found.n, found.seeds, found.attacked) == (100, 1, 90)
    assert (found.ours, found.theirs) == (wilson(40, 90), wilson(30, 90))
    gap, ours, theirs = 10 / 90, found.ours, found.theirs
    assert found.difference.estimate == pytest.approx(gap)
    low = math.sqrt((40 / 90 - ours.low) ** 2 + (theirs.high - 30 / 90) ** 2)
    high = math.sqrt((ours.high - 40 / 90) ** 2 + (30 / 90 - theirs.low) ** 2)
    assert (found.difference.low, found.difference.high) == pytest.approx((gap - low, gap + high))
    assert (found.same_outcome, found.same_text, found.errors) == (80, 90, 0)
    assert (found.query_ratio, found.row_ratio) == (2.0, 0.5)
    assert len(found.differing) == 10
    holds = found.verdict(random=False)
    assert list(holds.values()) == [False, False, False]
    same = compare("toy", [rows(40, 50, 10)], [rows(40, 50, 10)])
    assert same is not None
    assert all(same.verdict(random=False).values())


def test_several_seeds_have_students_interval_and_welchs_difference() -> None:
    ours, theirs = [10, 14, 12, 20], [9, 9, 16, 11]
    found = compare("toy", [rows(k, 40 - k) for k in ours], [rows(k, 40 - k) for k in theirs])
    assert found is not None
    first, second = np.array(ours) / 40, np.array(theirs) / 40
    student = stats.t.interval(0.95, 3, loc=first.mean(), scale=stats.sem(first))
    assert (found.ours.low, found.ours.high) == pytest.approx(student)
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx((welch.low, welch.high))
    assert found.verdict(random=True) == {"success within the 95 % interval": True}


def test_sides_are_compared_on_what_both_have_and_on_the_same_texts() -> None:
    assert compare("toy", [[]], [rows(1, 1)]) is None
    found = compare("toy", [rows(3, 3)], [rows(3, 1)])
    assert found is not None
    assert found.n == 4
    with pytest.raises(SystemExit, match="different texts"):
        compare("toy", [rows(1, 1)], [rows(1, 1, text="another")])


@pytest.mark.parametrize("n", [6, 7, 12, 25, 100])
def test_the_interval_of_a_median_covers_with_its_probability_and_no_shorter_one_does(n: int) -> None:
    low, high = train_cost.interval([float(place) for place in range(n)])
    assert low == n - 1 - high
    # The median lies under order statistic k (from 0) if more than n - k - 1 values lie above it.
    assert 1 - 2 * stats.binom.cdf(low, n, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(low + 1, n, 0.5) < 0.95


def test_figures_over_seeds_are_students() -> None:
    values = [0.04, 0.05, 0.09]
    half = stats.sem(values) * stats.t.ppf(0.975, 2)
    assert over_seeds(values) == f"{100 * np.mean(values):.1f} ± {100 * half:.1f}"
    assert spread(values) == f"{100 * np.mean(values):.1f} ({100 * np.std(values, ddof=1):.1f})"
    assert (over_seeds([None]), spread([0.5])) == ("-", "50.0")
    assert with_bounds(wilson(0, 0)) == "-"
    assert with_bounds(wilson(5, 10)) == "50.0 (23.7-76.3)"


def test_seeds_that_lie_apart_have_the_smallest_p_there_is() -> None:
    assert rank_sum([1, 2, 3, 4], [5, 6, 7, 8]) == pytest.approx(2 / math.comb(8, 4))


def held(*names: str) -> dict[str, bool]:
    return {name: name in names for name in "abcdef"}


def test_pairs_are_taken_on_shared_examples_with_seeds_averaged_first() -> None:
    pairs = [(held("a", "b"), held("a")), (held("a"), held())]
    wanted = [[1, 0.5], [0.5, 0], [0, 0], [0, 0], [0, 0], [0, 0]]
    assert over_pairs(pairs).tolist() == wanted
    # The second seed sees fewer examples: the others are averages of one.
    pairs[1] = ({"a": True}, {"a": False, "z": True})
    assert over_pairs(pairs).tolist() == [[1, 0.5], [1, 0], *[[0, 0]] * 4]
    assert over_pairs([]).shape == (0, 2)


def test_changes_and_ratios_of_pairs() -> None:
    everything, nothing = held(*"abcdef"), held()
    assert paired_change([(everything, nothing)]) == "+100.0 (+100.0 to +100.0)"
    assert paired_change([]) is None
    assert paired_ratio([(everything, everything)]) == "1.00 (1.00-1.00)"
    assert paired_ratio([(everything, nothing)]) is None
    found = paired_ratio([(held("a", "b", "c", "d"), held("a", "b"))])
    assert found is not None
    told = re.fullmatch(r"2\.00 \((.*)-(.*)\)", found)
    assert told is not None
    assert float(told[1]) == 1.0  # Not every resample has c or d; none has more of theirs than of ours.


def test_mcnemar_counts_what_only_one_side_held() -> None:
    assert mcnemar_of(held(*"abcde"), held()) == f"{2 * 0.5**5:.3g}"
    assert mcnemar_of(held("a", "b"), held("a", "b")) == "1"
