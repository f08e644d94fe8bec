"""Estimates of information against what is known exactly."""

import math

import pytest
import torch

from isthmus.core.statistics import Interval
from isthmus.information.features import Features
from isthmus.information.fitted_estimators import (
    Critics,
    Fitting,
    bootstrap_spread,
    fit_club,
    fit_critics,
    fit_nce,
    label_entropy,
    nce_interval,
    nce_values,
    pair_once,
)
from isthmus.information.mutual_information import (
    entropy_rate,
    gaussian_entropy,
    mean_spread,
    mixture_information,
    pairwise_bounds,
    rate,
)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=stream(seed))


def correlated(n: int, width: int, rho: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = normal(n, width, seed=seed)
    return x, rho * x + math.sqrt(1 - rho**2) * normal(n, width, seed=seed + 1000)


def information(width: int, rho: float) -> float:
    return -width / 2 * math.log(1 - rho**2)


def pairs(n: int, width: int, rho: float, seed: int = 0) -> Features:
    """One token per text, correlated with the text's vector."""
    z, t = correlated(n, width, rho, seed)
    zeros = torch.zeros(n, dtype=torch.int64)
    return Features(zeros, t, t, torch.arange(n), z, zeros)


# ---------------------------------------------------------------------- CLUB


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_a_fitted_club_comes_to_its_closed_form_and_bounds_the_information(rho):
    width = 3
    x, t = correlated(6000, width, rho)
    club = fit_club(x, t, torch.arange(len(x)), 0, Fitting(epochs=30), width=32)
    fresh = correlated(6000, width, rho, seed=7)
    value = float(club.values(*fresh).mean())
    assert value == pytest.approx(width * rho**2 / (1 - rho**2), rel=0.12)
    assert value > information(width, rho)
    # It fits: a token of fresh data is as likely as it can be, up to what the sample cannot tell.
    best = -width / 2 * (math.log(2 * math.pi * (1 - rho**2)) + 1)
    assert float(club.likelihoods(*fresh).mean()) == pytest.approx(best, abs=0.05)


def test_club_over_all_pairs_is_club_over_all_pairs():
    x, t = correlated(60, 2, 0.6)
    club = fit_club(x, t, torch.arange(60), 0, Fitting(epochs=2), width=8)
    slow = [
        float(club.likelihoods(x[i : i + 1], t[i : i + 1]) - club.likelihoods(x[i : i + 1].expand(60, -1), t).mean())
        for i in range(60)
    ]
    assert torch.allclose(club.values(x, t), torch.tensor(slow), atol=1e-3)


def test_independent_variables_share_nothing():
    x, t = normal(4000, 3), normal(4000, 3, seed=5)
    club = fit_club(x, t, torch.arange(4000), 0, Fitting(epochs=20), width=16)
    assert abs(float(club.values(normal(4000, 3, seed=8), normal(4000, 3, seed=9)).mean())) < 0.03


# ---------------------------------------------------------------------- InfoNCE


@pytest.mark.parametrize("scale", [0.1, 10.0, 1e4])
def test_no_row_exceeds_the_logarithm_of_the_chunk(scale):
    assert float(nce_values(scale * normal(17, 17)).max()) <= math.log(17) + 1e-4


@pytest.mark.parametrize("rho", [0.5, 0.9])
def test_with_the_best_critic_it_stays_below_the_information(rho):
    """The best critic is log p(t|z) / p(t); InfoNCE is then at most I, and close to it for a large chunk."""
    width, chunk = 2, 128
    values = []
    for seed in range(40):
        z, t = correlated(chunk, width, rho, seed)
        square = (t.unsqueeze(0) - rho * z.unsqueeze(1)).square().sum(-1) / (1 - rho**2)
        scores = -0.5 * square + 0.5 * t.square().sum(-1) - width / 2 * math.log(1 - rho**2)
        values.append(float(nce_values(scores).mean()))
    mean = sum(values) / len(values)
    error = torch.tensor(values).std().item() / math.sqrt(len(values))
    assert mean <= information(width, rho) + 3 * error
    assert mean >= 0.6 * information(width, rho)


def test_a_fitted_critic_finds_what_there_is_and_not_more():
    width, rho = 3, 0.8
    nce = fit_nce(pairs(500, width, rho), 0, Fitting(epochs=4, learning_rate=4e-3), chunk=32)
    fresh = pairs(2000, width, rho, seed=5)
    everything = torch.ones(2000, dtype=torch.bool)
    values = nce.values(fresh, everything, 0, rounds=2)
    mean = float(values[~values.isnan()].mean())
    assert 0.5 * information(width, rho) < mean <= min(information(width, rho), math.log(32)) + 0.05
    nothing = Features(fresh.ids, fresh.words, normal(2000, width, seed=77), fresh.owner, fresh.sentences, fresh.labels)
    empty = nce.values(nothing, everything, 0, rounds=2)
    assert float(empty[~empty.isnan()].mean()) < 0.05
    assert nce.bound(fresh) == math.log(32)


def by_gaussian_critics(rho: float, fits: int, texts: int, seed: int) -> Interval:
    """InfoNCE by critics log p(t|z) / p(t) whose correlation is fitted, each on pairs of its own."""
    z, t = correlated(384, 1, rho, seed)
    values = []
    for number in range(fits):
        a, b = correlated(texts, 1, rho, seed=10_000 + 100 * seed + number)
        fitted = float((a * b).sum() / (a * a).sum())
        square = (t.T - fitted * z).square() / (1 - fitted**2)
        scores = -0.5 * square + 0.5 * t.T.square()
        values.append(torch.cat([nce_values(scores[at : at + 128, at : at + 128]) for at in range(0, 384, 128)]))
    return nce_interval(torch.stack(values).double().numpy(), math.log(128))


@pytest.mark.parametrize(("fits", "texts"), [(3, 400), (3, 60), (5, 200)])
def test_the_interval_covers_the_information_of_gaussians(fits, texts):
    truth = information(1, 0.6)
    found = [by_gaussian_critics(0.6, fits, texts, seed) for seed in range(200)]
    assert sum(each.low <= truth <= each.high for each in found) >= 185
    lengths = torch.tensor([each.high - each.low for each in found])
    assert float(lengths.median()) < 0.7 * truth  # It says something.


def test_critics_that_are_fitted_come_near_the_information_of_gaussians():
    train, fresh = pairs(1200, 1, 0.6), pairs(400, 1, 0.6, seed=500)
    critics = Critics(tuple(fit_critics(train, 0, Fitting(epochs=2, learning_rate=1e-2), chunk=32, fits=3)), 1200)
    found = nce_interval(critics.values(fresh, torch.ones(400) > 0, 0, rounds=2).numpy(), critics.bound(fresh))
    assert 0 < found.low < information(1, 0.6) < found.high
    assert critics.note == (
        "InfoNCE: the mean of 3 critics, each fitted on 1,200 training texts; the interval counts texts and fits."
    )


def test_the_interval_grows_with_the_spread_between_fits():
    texts = normal(1, 200).double()
    near = torch.cat([texts + shift for shift in (-0.01, 0.0, 0.01)]).numpy()
    far = torch.cat([texts + shift for shift in (-0.3, 0.0, 0.3)]).numpy()
    narrow, wide, one = nce_interval(near), nce_interval(far), nce_interval(texts.numpy())
    assert narrow.estimate == pytest.approx(wide.estimate)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert narrow.high - narrow.low > one.high - one.low  # One fit says nothing of others.
    # Fits 0.3 apart: Student's t with two degrees of freedom alone gives 4.3 * 0.3 / sqrt(3).
    assert (wide.high - wide.low) / 2 > 4.3 * 0.3 / math.sqrt(3)
    assert nce_interval(far, bound=wide.estimate + 0.1).high == pytest.approx(wide.estimate + 0.1)


def test_fits_differ_and_are_the_same_again():
    train, fresh = pairs(60, 1, 0.8), pairs(40, 1, 0.8, seed=9)
    both = [
        Critics(tuple(fit_critics(train, 0, Fitting(epochs=1), 8, 2)), 60).values(fresh, torch.ones(40) > 0, 0)
        for _ in range(2)
    ]
    assert torch.equal(both[0].nan_to_num(), both[1].nan_to_num())
    assert not torch.equal(both[0][0].nan_to_num(), both[0][1].nan_to_num())


def test_texts_without_a_turn_are_left_out():
    values = torch.tensor([[1.0, 2.0, math.nan], [2.0, 3.0, math.nan]]).numpy()
    assert nce_interval(values).estimate == 2.0


def test_a_chunk_holds_one_chosen_token_of_each_text():
    owner = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4])
    n, m = 5, len(owner)
    features = Features(torch.arange(m), normal(m, 2), normal(m, 2), owner, normal(n, 2), torch.zeros(n))
    chosen = torch.tensor([True, False, True, False, False, True, True, True, False, True, True])
    seen: set[int] = set()
    for seed in range(50):
        for rows, tokens in pair_once(features, chosen, 2, stream(seed)):
            assert len(rows) == 2
            assert rows.tolist() == owner[tokens].tolist()
            assert len(set(rows.tolist())) == 2
            assert bool(chosen[tokens].all())
            seen |= set(tokens.tolist())
    assert seen == set(torch.nonzero(chosen).flatten().tolist())  # text 1 has none, and never a turn
    assert list(pair_once(features, torch.zeros(m, dtype=torch.bool), 2, stream())) == []


# ---------------------------------------------------------------------- rates of a linear Gaussian code


@pytest.mark.parametrize(("a", "s"), [(1.0, 1.0), (2.0, 0.5), (0.3, 2.0)])
def test_rate_and_mixtures_of_a_linear_gaussian_code(a, s):
    """T = aX + N(0, s²), X ~ N(0, 1): I = ½ ln(1 + a²/s²), R = ½(a² + s² - 1 - ln s²) = I + KL(p(t) ‖ N(0, 1))."""
    n = 2000
    x, noise = normal(n, 1).double(), normal(n, 1, seed=1).double()
    mean, deviation = a * x, torch.full((n, 1), s, dtype=torch.float64)
    truth = 0.5 * math.log(1 + a**2 / s**2)
    wanted = 0.5 * (a**2 + s**2 - 1 - math.log(s**2))
    total = a**2 + s**2
    assert wanted == pytest.approx(truth + 0.5 * (total - 1 - math.log(total)))
    rates = rate(mean, deviation)
    assert float(rates.mean()) == pytest.approx(wanted, abs=4 * float(rates.std()) / math.sqrt(n))
    code = mean + deviation * noise
    among, others = (mixture_information(code, mean, deviation, leave_out=out) for out in (False, True))
    error = 4 * float(among.std()) / math.sqrt(n) + 0.01
    assert float(among.mean()) == pytest.approx(truth, abs=error)
    assert float(among.mean()) < float(others.mean())
    for size in (4, 16):
        assert float(mixture_information(code[:size], mean[:size], deviation[:size]).max()) <= math.log(size) + 1e-9


def test_the_mixture_is_its_definition():
    mean, deviation = normal(5, 3).double(), 0.3 + normal(5, 3, seed=1).double().abs()
    code = normal(5, 3, seed=2).double()
    density = torch.distributions.Normal(mean.unsqueeze(0), deviation.unsqueeze(0))
    scores = density.log_prob(code.unsqueeze(1)).sum(-1)
    wanted = scores.diagonal() - (scores.logsumexp(1) - math.log(5))
    assert torch.allclose(mixture_information(code, mean, deviation), wanted)
    off = scores.masked_fill(torch.eye(5, dtype=torch.bool), -math.inf)
    wanted = scores.diagonal() - (off.logsumexp(1) - math.log(4))
    assert torch.allclose(mixture_information(code, mean, deviation, leave_out=True), wanted)


@pytest.mark.parametrize("size", [1, 8, 200])
@pytest.mark.parametrize(("a", "s"), [(1.0, 1.0), (2.0, 0.5), (0.3, 2.0)])
def test_mixtures_stay_below_the_logarithm_of_the_batch_and_the_information(a, s, size):
    """Many small batches: the mean over them is at most min(log B, I), up to the noise of that mean."""
    values = []
    for seed in range(2000 // size):
        x, noise = normal(size, 1, seed=2 * seed).double(), normal(size, 1, seed=2 * seed + 1).double()
        mean, deviation = a * x, torch.full((size, 1), s, dtype=torch.float64)
        values.append(float(mixture_information(mean + s * noise, mean, deviation).mean()))
    found = torch.tensor(values)
    error = 4 * float(found.std()) / math.sqrt(len(values)) if size > 1 else 0.0
    assert float(found.mean()) <= min(math.log(size), 0.5 * math.log(1 + a**2 / s**2)) + error + 1e-12


@pytest.mark.parametrize("apart", [0.2, 1.0, 3.0])
def test_pairwise_bounds_of_two_gaussians_are_their_closed_forms_and_enclose_the_truth(apart):
    """N(±a, s²), each with probability ½: KL = 2a²/s², Bhattacharyya distance a²/2s²."""
    s = 0.7
    a = apart * s
    mean = torch.tensor([[a], [-a]], dtype=torch.float64)
    low, high = (bound.mean() for bound in pairwise_bounds(mean, torch.full((2, 1), s, dtype=torch.float64)))
    assert float(high) == pytest.approx(math.log(2) - math.log1p(math.exp(-2 * apart**2)))
    assert float(low) == pytest.approx(math.log(2) - math.log1p(math.exp(-(apart**2) / 2)))
    z = torch.linspace(-a - 9 * s, a + 9 * s, 40001, dtype=torch.float64)
    first, second = (torch.distributions.Normal(side, s).log_prob(z) for side in (a, -a))
    mixture = torch.logaddexp(first, second) - math.log(2)
    truth = float(torch.trapezoid(first.exp() * (first - mixture), z))
    assert float(low) < truth < float(high) < math.log(2)


def test_pairwise_bounds_are_their_definition():
    mean, deviation = normal(6, 3).double(), 0.3 + normal(6, 3, seed=1).double().abs()
    densities = torch.distributions.Normal(mean.unsqueeze(1), deviation.unsqueeze(1))
    others = torch.distributions.Normal(mean.unsqueeze(0), deviation.unsqueeze(0))
    divergence = torch.distributions.kl_divergence(densities, others).sum(-1)
    z = torch.linspace(-12, 12, 24001, dtype=torch.float64).view(-1, 1, 1, 1)
    overlap = torch.trapezoid((0.5 * (densities.log_prob(z) + others.log_prob(z))).exp(), z.flatten(), dim=0)
    low, high = pairwise_bounds(mean, deviation, rows=40)  # In parts, as where there are many.
    assert torch.allclose(high, math.log(6) - (-divergence).logsumexp(1))
    assert torch.allclose(low, math.log(6) - overlap.log().sum(-1).logsumexp(1), atol=1e-6)


def test_the_entropy_of_a_gaussian_is_that_of_torch():
    deviation = 0.1 + normal(4, 6).abs()
    wanted = torch.distributions.Normal(torch.zeros_like(deviation), deviation).entropy().sum(-1)
    assert torch.allclose(gaussian_entropy(deviation), wanted, atol=1e-5)
    assert torch.allclose(entropy_rate(deviation), -deviation.log().sum(-1), atol=1e-5)
    assert float(entropy_rate(torch.ones(1, 6))) == pytest.approx(0, abs=1e-6)


# ---------------------------------------------------------------------- spread and entropies


def test_the_spread_and_its_interval():
    counts = torch.tensor([3, 1, 4, 2] * 30)
    owner = torch.repeat_interleave(torch.arange(120), counts)
    t = 2.0 * normal(len(owner), 5)
    features = Features(owner, t, t, owner, normal(120, 2), torch.zeros(120))
    found = bootstrap_spread(features, 0)
    assert found.estimate == pytest.approx(float(mean_spread(t, torch.ones(len(t)))), rel=1e-5)
    assert found.estimate == pytest.approx(float(torch.cov(t.T, correction=0).trace()), rel=1e-5)
    assert 20 in found  # tr cov of N(0, 4 I) in five dimensions
    assert found.low < found.estimate < found.high
    assert found.high - found.low < 6


def test_entropy_of_counts():
    assert label_entropy(torch.tensor([0, 1, 2, 3])) == pytest.approx(math.log(4))
    assert label_entropy(torch.tensor([5, 5])) == 0.0
