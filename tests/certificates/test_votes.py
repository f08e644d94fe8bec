"""What votes prove: closed forms of Cohen's radius, and the coverage of the bound by simulation."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from isthmus.certificates._votes import (
    Ballot,
    check_draws,
    count_draws_needed,
    groups,
    leaving,
    lower_bound,
    radius,
    smallest_n,
    upper_bound,
)
from isthmus.certificates.gaussian import Gaussian, paper_radius
from isthmus.certificates.synonym import Synonym, substitutions
from isthmus.core.errors import UsageError


@pytest.mark.parametrize(("n", "most"), [(100_000, 3.811), (1_000, 2.463), (100, 1.500)])
def test_the_largest_radius_that_n_draws_can_show(n, most):
    assert radius(lower_bound(n, n, 0.001), 1.0) == pytest.approx(most, abs=6e-4)
    assert radius(lower_bound(n, n, 0.001), 0.25) == pytest.approx(most / 4, abs=2e-4)


@pytest.mark.parametrize("p", [0.03, 0.5, 0.9, 0.999])
def test_the_bound_covers_the_truth_as_often_as_it_says(p):
    n, alpha, tries = 200, 0.05, 20_000
    votes = np.random.default_rng(0).binomial(n, p, size=tries)
    bounds = {int(k): lower_bound(int(k), n, alpha) for k in np.unique(votes)}
    misses = sum(bounds[int(k)] > p for k in votes)
    assert misses / tries <= alpha + 4 * math.sqrt(alpha * (1 - alpha) / tries)
    highs = {int(k): upper_bound(int(k), n, alpha) for k in np.unique(votes)}
    assert sum(highs[int(k)] < p for k in votes) / tries <= alpha + 4 * math.sqrt(alpha * (1 - alpha) / tries)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0])
def test_the_radius_of_a_linear_classifier_is_its_distance_for_every_sigma(sigma):
    distance = 0.3
    p = NormalDist().cdf(distance / sigma)
    assert radius(p, sigma) == pytest.approx(distance)
    if sigma < 1:
        assert paper_radius(sigma, p) > distance


def test_the_printed_radius_is_wrong_by_the_counterexamples():
    assert paper_radius(0.5, NormalDist().cdf(0.3 / 0.5)) == pytest.approx(1.2)
    # An identity layer, noise of deviation 1 before and after it: the sum of both noises has deviation √2.
    p = NormalDist().cdf(0.3 / math.sqrt(2))
    assert paper_radius(1.0, p, (1.0,)) == pytest.approx(0.424, abs=5e-4)


@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.001, 1e-9])
def test_the_smallest_n_is_the_smallest(alpha):
    n = smallest_n(alpha)
    assert lower_bound(n, n, alpha) > 0.5
    assert n == 1 or lower_bound(n - 1, n - 1, alpha) <= 0.5


@pytest.mark.parametrize("kind", [Gaussian, Synonym])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 0.0}, "strictly between 0 and 1, not 0.0"),
        ({"alpha": 1.5}, "strictly between 0 and 1, not 1.5"),
        ({"n": 9}, "the smallest n that could certify is 10"),
        ({"n": 0}, "the smallest n that could certify is 10"),
        ({"n0": 0}, "at least 1, not 0"),
    ],
    ids=["alpha-0", "alpha-1.5", "n-9", "n-0", "n0-0"],
)
def test_what_can_certify_nothing_is_refused(kind, given, message):
    with pytest.raises(UsageError, match=message):
        kind(**given)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_gaussian_certificate_without_noise_is_refused(sigma):
    with pytest.raises(UsageError, match="without noise there is no ball"):
        Gaussian(sigma=sigma)


@pytest.mark.parametrize("p", [0.500001, 0.7, 1.0])
def test_full_overlap_certifies_whenever_p_exceeds_one_half(p):
    assert substitutions(p, [1.0] * 30) == math.inf
    assert substitutions(p, []) == math.inf


def test_only_the_smallest_overlaps_are_multiplied():
    overlaps = [0.9, 1.0, 0.8, 0.95]
    # 0.8, 0.72, 0.684: p - 1 + product must exceed 1/2.
    assert substitutions(0.5, overlaps) == -1
    assert substitutions(0.69, overlaps) == 0
    assert substitutions(0.75, overlaps) == 1
    assert substitutions(0.80, overlaps) == 2
    assert substitutions(0.82, overlaps) == math.inf
    check_draws(0.5, 1, smallest_n(0.5))


def test_draws_of_other_examples_and_numbers_are_other_draws():
    keys = np.concatenate([Ballot("", key, 100).keys() for key in (1, 2, 3)])
    assert len(np.unique(keys)) == 300
    assert (Ballot("", 1, 10).keys() == Ballot("", 1, 100).keys()[:10]).all()
    assert [list(group) for group in groups([3, 3, 3, 9, 1], 6)] == [[0, 1], [2], [3], [4]]
    assert groups([], 5) == []


def test_a_vote_of_finitely_many_draws_may_leave_the_certified_class():
    """Fifteen draws of a class with a share of 0.55 err a third of the time; by counting every outcome."""
    by_hand = sum(math.comb(15, k) * 0.55**k * 0.45 ** (15 - k) for k in range(8))
    assert leaving(0.55, 15) == pytest.approx(by_hand)
    assert leaving(0.55, 15) == pytest.approx(0.3465, abs=5e-5)
    votes = np.random.default_rng(0).binomial(9, 0.7, size=200_000)
    assert leaving(0.7, 9) == pytest.approx(float((votes <= 4).mean()), abs=0.004)
    assert leaving(0.6, 2) == pytest.approx(1 - 0.36), "a tie may go to another class"
    assert leaving(1.0, 1) == 0


@pytest.mark.parametrize("share", [0.501, 0.55, 0.7, 0.95, 1.0])
def test_the_draws_that_make_leaving_rare(share):
    found = count_draws_needed(share, most=2_000_001)
    assert found is not None
    assert found % 2 == 1
    assert leaving(share, found) <= 0.01
    assert found == 1 or leaving(share, found - 2) > 0.01
    assert count_draws_needed(0.5001, most=100_001) is None
