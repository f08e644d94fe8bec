import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from isthmus.core.errors import UsageError
from isthmus.core.statistics import (
    Interval,
    auc,
    bootstrap_mean,
    bootstrap_pearson,
    bootstrap_ratio,
    clopper_pearson,
    clopper_pearson_lower,
    fisher_pearson,
    mcnemar,
    paired_bootstrap,
    quantile,
    threshold_at_fpr,
    wilson,
)

counts = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts, st.sampled_from([0.8, 0.95, 0.999]))
def test_intervals_equal_scipy(count, level):
    k, n = count
    test = stats.binomtest(k, n)
    for ours, reference in (
        (wilson, test.proportion_ci(level, method="wilson")),
        (clopper_pearson, test.proportion_ci(level, method="exact")),
    ):
        found = ours(k, n, level)
        assert found.low == pytest.approx(reference.low, abs=1e-9)
        assert found.high == pytest.approx(reference.high, abs=1e-9)
        assert 0 <= found.low <= found.estimate <= found.high <= 1


@given(counts, st.sampled_from([0.001, 0.05]))
def test_one_sided_bound_equals_scipy(count, alpha):
    k, n = count
    reference = stats.binomtest(k, n, alternative="greater").proportion_ci(1 - alpha, method="exact").low
    assert clopper_pearson_lower(k, n, alpha) == pytest.approx(reference, abs=1e-9)


def test_smoothing_closed_form():
    assert clopper_pearson_lower(100, 100, 0.001) == pytest.approx(0.001 ** (1 / 100))


@pytest.mark.parametrize("truth", [0.02, 0.3, 0.5, 0.9])
def test_exact_interval_covers(truth):
    n = 60
    probabilities = stats.binom.pmf(np.arange(n + 1), n, truth)
    covered = [truth in clopper_pearson(k, n) for k in range(n + 1)]
    assert probabilities @ np.asarray(covered) >= 0.95
    average = np.mean(
        [
            stats.binom.pmf(np.arange(n + 1), n, p) @ [p in wilson(k, n) for k in range(n + 1)]
            for p in np.linspace(0.05, 0.95, 37)
        ]
    )
    assert average == pytest.approx(0.95, abs=0.01)


def test_no_examples_say_nothing():
    assert math.isnan(wilson(0, 0).estimate)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)
    assert (clopper_pearson(0, 0).low, clopper_pearson(0, 0).high) == (0, 1)
    assert math.isnan(bootstrap_mean([]).estimate)


def test_bootstrap_covers_in_simulation():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        a = rng.random(150) < 0.7
        b = a ^ (rng.random(150) < 0.1)  # mean(a - b) = 0.7 * 0.1 - 0.3 * 0.1
        hits += 0.04 in paired_bootstrap(a, b, seed=trial, draws=600)
    assert 0.90 <= hits / 300 <= 0.985


def test_bootstrap_agrees_with_the_normal_limit_on_both_paths():
    rng = np.random.default_rng(1)
    for values in (rng.normal(size=400), (rng.random(400) < 0.3).astype(float)):
        found = bootstrap_mean(values, seed=3, draws=20_000)
        half = 1.96 * values.std() / 20
        assert found.estimate == pytest.approx(values.mean())
        assert found.low == pytest.approx(values.mean() - half, abs=0.06 * half)
        assert found.high == pytest.approx(values.mean() + half, abs=0.06 * half)


def test_groups_of_one_are_the_plain_bootstrap_and_equal_rows_of_a_group_count_once():
    values = np.random.default_rng(4).normal(size=300)
    plain, single = bootstrap_mean(values, seed=1), bootstrap_ratio(values, np.ones(300), seed=1)
    assert single.estimate == pytest.approx(plain.estimate)
    assert (single.low, single.high) == (pytest.approx(plain.low, abs=5e-3), pytest.approx(plain.high, abs=5e-3))
    # Four copies of every row tell no more than one: the interval must not shrink.
    copied = bootstrap_ratio(4 * values, np.full(300, 4.0), seed=1)
    assert (copied.low, copied.high) == (pytest.approx(single.low), pytest.approx(single.high))
    assert bootstrap_ratio([3.0, 0.0], [3, 1]).estimate == 0.75
    assert math.isnan(bootstrap_ratio([], []).estimate)
    with pytest.raises(UsageError, match="a total and a size"):
        bootstrap_ratio([1.0], [0])


def test_bootstrap_repeats_and_is_paired():
    a = np.random.default_rng(2).normal(size=200)
    shifted = paired_bootstrap(a, a + 1, seed=5)
    assert (shifted.estimate, shifted.low, shifted.high) == pytest.approx((-1, -1, -1))
    assert shifted.level == 0.95
    assert bootstrap_mean(a, seed=5) == bootstrap_mean(a, seed=5)
    assert bootstrap_mean(a, seed=5) != bootstrap_mean(a, seed=6)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_mcnemar_equals_the_binomial_test(pairs):
    a, b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    found = mcnemar(a, b)
    assert found.b == sum(x and not y for x, y in pairs)
    assert found.c == sum(y and not x for x, y in pairs)
    expected = stats.binomtest(found.b, found.b + found.c, 0.5).pvalue if found.b + found.c else 1.0
    assert found.p_value == pytest.approx(expected)


scores = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=30)


@given(scores, scores)
def test_auc_equals_mann_whitney(positives, negatives):
    expected = stats.mannwhitneyu(positives, negatives).statistic / (len(positives) * len(negatives))
    assert auc(positives, negatives) == pytest.approx(expected)


@given(scores, st.sampled_from([0.0, 0.01, 0.07, 0.1, 0.5, 0.99, 1.0]), st.sampled_from([np.float32, np.float64]))
def test_threshold_is_the_smallest_that_keeps_the_rate(negatives, fpr, precision):
    array = np.asarray(negatives, dtype=precision)
    threshold = threshold_at_fpr(array, fpr)
    assert (array >= threshold).mean() <= fpr + 1e-12
    if threshold > -math.inf:
        lower = np.nextafter(precision(threshold), precision(-np.inf))
        assert (array >= lower).mean() > fpr - 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: wilson(3, 2),
        lambda: wilson(-1, 2),
        lambda: wilson(1, 2, level=1.0),
        lambda: clopper_pearson_lower(1, 2, 0),
        lambda: paired_bootstrap([1, 2], [1]),
        lambda: bootstrap_mean([math.nan]),
        lambda: bootstrap_mean([1.0], draws=0),
        lambda: bootstrap_mean([[1.0]]),
        lambda: mcnemar([True], [True, False]),
        lambda: threshold_at_fpr([], 0.1),
        lambda: threshold_at_fpr([1], 1.1),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(UsageError):
        call()


def test_scipy_stats_stays_out_of_the_way():
    program = (
        "import sys; from isthmus.core.statistics import *; wilson(3, 9); clopper_pearson(3, 9);"
        "mcnemar([True], [False]); bootstrap_mean([1.0]); assert 'scipy.stats' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_interval_of_a_quantile_covers_it_whatever_the_distribution() -> None:
    draw = np.random.default_rng(0)
    for share, n in ((0.5, 50), (0.95, 200), (0.2, 60)):
        truth = -math.log(1 - share)
        found = [quantile(draw.exponential(size=n), share) for _ in range(2000)]
        assert np.mean([truth in interval for interval in found]) >= 0.94
        assert np.median([interval.estimate for interval in found]) == pytest.approx(truth, rel=0.1)


def test_the_bounds_of_a_quantile_are_order_statistics() -> None:
    interval = quantile(list(range(1, 51)), 0.5)
    assert (interval.low, interval.high) == (18, 33)  # the table of the sign test for n = 50
    assert quantile(list(range(50)), 0.95).high == math.inf
    assert quantile(list(range(100)), 0.95).high < math.inf
    assert quantile([3.0], 0.5) == Interval(3.0, -math.inf, math.inf)
    assert math.isnan(quantile([], 0.5).estimate)
    with pytest.raises(UsageError, match="share"):
        quantile([1.0], 1.0)


def test_pearson_is_scipys_and_its_interval_covers():
    stream = np.random.default_rng(0)
    covered = 0
    for trial in range(60):
        a = stream.normal(size=80)
        b = 0.6 * a + 0.8 * stream.normal(size=80)
        found = bootstrap_pearson(a, b, seed=trial, draws=300)
        assert found.estimate == pytest.approx(stats.pearsonr(a, b).statistic)
        covered += found.low <= 0.6 <= found.high
    assert covered >= 51, "0.95 of 60 less four standard deviations"
    assert math.isnan(bootstrap_pearson([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]).estimate)
    with pytest.raises(UsageError, match="equal lengths, not 2 and 3"):
        bootstrap_pearson([1.0, 2.0], [1.0, 2.0, 3.0])


def test_fishers_interval_and_students_p_are_those_of_papers():
    """Of about 28 pairs r = 0.57 at p = .0015 and 0.51 at p = .0054."""
    stream = np.random.default_rng(0)
    for r, p in ((0.57, 0.0015), (0.51, 0.0054)):
        x, noise = stream.normal(size=(2, 28))
        x = (x - x.mean()) / x.std()
        noise -= noise.mean() + x * (noise @ x) / 28
        y = r * x + math.sqrt(1 - r * r) * noise / noise.std()
        found, chance = fisher_pearson(x, y)
        assert found.estimate == pytest.approx(r)
        assert found.low < r < found.high
        assert chance == pytest.approx(p, abs=5e-4)
    assert fisher_pearson(np.arange(5.0), 2 * np.arange(5.0))[0].estimate == pytest.approx(1)
    assert math.isnan(fisher_pearson(np.ones(5), np.arange(5.0))[1])
