"""InfoBERT, VIB and VUB: bounds, identities and closed forms."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients

from isthmus import defences
from isthmus.arithmetic.randomness import Stream
from isthmus.defences import Batch
from isthmus.defences.parts.anchors import find_anchored, most_anchors, ranks
from isthmus.defences.parts.perturbation import ascend, keep_within, start
from isthmus.defences.vub import label_entropy
from isthmus.information.fitted_gaussian import AuxiliaryGaussian
from isthmus.information.mutual_information import (
    Chunks,
    Critic,
    club,
    info_nce,
    info_nce_within,
    mean_spread,
    rate,
    sample_spread,
)
from isthmus.models.bottleneck import GaussianBottleneck


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------- estimates


def test_the_spread_is_the_trace_of_the_covariance_and_the_mean_over_all_pairs() -> None:
    tokens, mask = torch.randn(3, 7, 5, generator=stream()), torch.ones(3, 7)
    mask[1, 4:] = 0
    rows = tokens[mask.bool()]
    pairs = 0.5 * torch.cdist(rows, rows).square().mean()
    trace = torch.cov(rows.T, correction=0).trace()
    assert torch.allclose(mean_spread(tokens, mask), trace, rtol=1e-5)
    assert torch.allclose(mean_spread(tokens, mask), pairs, rtol=1e-5)


def test_one_partner_for_each_is_unbiased_and_never_padding() -> None:
    tokens, mask = torch.randn(2, 6, 4, generator=stream()), torch.ones(2, 6)
    mask[0, 3:] = 0
    tokens[0, 3:] = 1e6  # a single look at padding would show
    draws = torch.stack([sample_spread(tokens, mask, stream(seed)) for seed in range(3000)])
    error = float(draws.std()) / math.sqrt(len(draws))
    assert float(draws.mean()) == pytest.approx(float(mean_spread(tokens, mask)), abs=4 * error)


@pytest.mark.parametrize("correlation", [0.3, 0.8])
def test_club_with_the_true_density_has_its_closed_form(correlation: float) -> None:
    size, width = 2000, 3
    x = torch.randn(size, width, generator=stream(), dtype=torch.float64)
    noise = torch.randn(size, width, generator=stream(1), dtype=torch.float64)
    t = correlation * x + math.sqrt(1 - correlation**2) * noise
    log_variance = torch.full_like(x, math.log(1 - correlation**2))
    value = float(club(t, correlation * x, log_variance))
    expected = width * correlation**2 / (1 - correlation**2)
    information = -width / 2 * math.log(1 - correlation**2)
    assert expected == pytest.approx(width * (math.exp(2 * information / width) - 1))
    assert value == pytest.approx(expected, rel=0.1)
    assert value >= information


def test_info_nce_never_exceeds_the_logarithm_of_its_chunk() -> None:
    torch.manual_seed(0)
    for scale in (0.1, 10.0, 1000.0):
        critic = Critic(4, 4, width=16)
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.mul_(scale)
        local, whole = torch.randn(6, 9, 4), torch.randn(6, 4)
        chosen = torch.rand(6, 9) < 0.4
        for size in (1, 3, 8):
            value = info_nce(critic, local, whole, chosen, Chunks(chosen.sum(), int(chosen.sum()), size), stream())
            assert float(value) <= math.log(size) + 1e-4
        within = info_nce_within(critic, local, whole, chosen, ~chosen)
        assert float(within) <= math.log(10) + 1e-4


def test_info_nce_is_the_formula_written_out() -> None:
    torch.manual_seed(0)
    critic = Critic(3, 5, width=8)
    local, whole = torch.randn(2, 4, 3), torch.randn(2, 5)
    chosen = torch.tensor([[True, False, True, False], [False, True, False, False]])
    pairs = [(local[b, k], whole[b]) for b in range(2) for k in range(4) if chosen[b, k]]
    matrix = torch.stack([torch.stack([critic(t, z) for t, _ in pairs]) for _, z in pairs])
    expected = (matrix.diagonal() - matrix.logsumexp(dim=1)).mean() + math.log(3)
    # A bound larger than what is chosen leaves padding in the chunk, which must not count.
    for most in (3, 8):
        chunks = Chunks(chosen.sum(), most, 8)
        assert torch.allclose(info_nce(critic, local, whole, chosen, chunks, stream()), expected, atol=1e-6)
    anchor, others = critic(local[0, 0], whole[0]), torch.stack([critic(local[0, k], whole[0]) for k in (1, 3)])
    one = torch.tensor([[True, False, False, False], [False] * 4])
    negatives = torch.tensor([[False, True, False, True], [False] * 4])
    value = anchor - torch.cat([anchor[None], others]).logsumexp(0) + math.log(3)
    assert torch.allclose(info_nce_within(critic, local, whole, one, negatives), value, atol=1e-6)


def test_with_the_best_critic_info_nce_stays_under_the_information() -> None:
    correlation, size = 0.9, 64
    x = torch.randn(200, size, 1, generator=stream(), dtype=torch.float64)
    noise = torch.randn(200, size, 1, generator=stream(1), dtype=torch.float64)
    t = correlation * x + math.sqrt(1 - correlation**2) * noise
    gap = (t.transpose(1, 2) - correlation * x).square() / (1 - correlation**2)
    scores = -0.5 * gap  # log p(t_j | x_i) up to what does not depend on i and j
    value = float((scores.diagonal(dim1=1, dim2=2) - scores.logsumexp(dim=2)).mean()) + math.log(size)
    assert value <= -0.5 * math.log(1 - correlation**2) + 0.02


def test_an_auxiliary_density_learns_and_its_estimate_has_a_gradient() -> None:
    torch.manual_seed(0)
    network = AuxiliaryGaussian(12, 12, learning_rate=1e-2)
    x = torch.randn(1, 256, 12)
    t = (0.8 * x + 0.6 * torch.randn(1, 256, 12)).requires_grad_()
    with torch.no_grad():
        values = [float(network(x, t, torch.ones(1, 256), stream(step))) for step in range(200)]
    assert abs(values[0]) < 2 < 5 < sum(values[-20:]) / 20  # the information is 6.1 nats, the bound 21.3
    network(x, t, torch.ones(1, 256), stream()).backward()
    assert t.grad is not None
    assert t.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in network.parameters())


# ---------------------------------------------------------------------- anchors


@pytest.mark.parametrize(("lowest", "highest"), [(0.5, 0.9), (0.75, 0.95), (0.0, 1.0), (0.7, 0.8)])
def test_anchors_are_counted_as_the_method_says(lowest: float, highest: float) -> None:
    lengths = torch.arange(1, 41)
    mask = (torch.arange(40)[None] < lengths[:, None]).long()
    gradient = torch.randn(40, 40, 6, generator=stream())
    chosen = find_anchored(gradient, mask, lowest, highest)
    assert not (chosen & ~mask.bool()).any()
    for n, row in zip(lengths.tolist(), chosen, strict=True):
        expected = math.ceil(highest * n - 1e-9) - math.ceil(lowest * n - 1e-9)
        assert int(row.sum()) == max(1, expected)
        assert int(row.sum()) <= most_anchors(40, lowest, highest)
    assert torch.equal(chosen, find_anchored(1e-6 * gradient, mask, lowest, highest))
    norms = gradient.norm(dim=-1)
    for row in range(10, 40):
        assert torch.equal(ranks(gradient, mask)[row, : row + 1].argsort(), norms[row, : row + 1].argsort())


def prepared(defence: Any, dropout: float = 0.2, seed: int = 0) -> tuple[Any, Batch]:
    model = toys.classifier(seed, dropout=dropout).train()
    defence.prepare(model, toys.dataset("train", 32, 0))
    return model, batch_of(model)


def test_anchors_of_short_sentences_are_defined() -> None:
    """Where no rank lies in the band the one at floor(c_l n) is taken: of one to three tokens exactly one."""
    gradient = torch.arange(1.0, 5.0).view(1, 4, 1).expand(4, 4, 2) * torch.tensor([1.0, 2.0, 3.0, 4.0]).view(4, 1, 1)
    lengths = torch.tensor([1, 2, 3, 0])
    mask = (torch.arange(4)[None] < lengths[:, None]).long()
    chosen = find_anchored(gradient, mask, 0.7, 0.8)
    assert [row.nonzero().flatten().tolist() for row in chosen] == [[0], [1], [2], []]  # norms ascend: rank = place
    wide = find_anchored(gradient, mask, 0.5, 0.9)
    assert [row.nonzero().flatten().tolist() for row in wide] == [[0], [1], [2], []]


@pytest.mark.parametrize("mode", ["released", "paper"])
def test_sentences_without_words_train(mode: Any) -> None:
    """Texts of a word or none have one anchor, and in the paper's mode perhaps nothing to hold it against."""
    defence = defences.InfoBERT(alpha=0.5, beta=0.5, mode=mode, adversary="freelb", steps=2)
    model = toys.classifier(dropout=0.0).train()
    defence.prepare(model, toys.dataset("train", 8, 0))
    batch = Batch(model.encode([{"text": text} for text in ("", "film", "a film")]), torch.tensor([0, 1, 0]), seed=1)
    found = gradients(defence, model, batch)
    assert all(torch.isfinite(value).all() for value in found.values())
    alone = Batch(model.encode([{"text": ""}]), torch.tensor([0]), seed=1)
    assert all(torch.isfinite(value).all() for value in gradients(defence, model, alone).values())


def test_adversarial_training_is_the_loop_of_the_released_code() -> None:
    """Two backward passes a step, anchors and climb from the gradient the first leaves behind, no other state."""
    defence = defences.InfoBERT(
        alpha=0.3, beta=0.2, adversary="freelb", steps=3, step_size=0.3, max_norm=0.4, init_magnitude=0.2, scale="paper"
    )
    model, batch = prepared(defence)
    found = gradients(defence, model, batch)
    model.zero_grad()
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
    like = model.embed(ids).detach()
    delta = start(like, mask.unsqueeze(-1).float(), 0.2, batch.stream("infobert"))
    for step in range(3):
        delta = delta.detach().requires_grad_()
        torch.manual_seed(3)
        output = model(**batch.inputs, inputs_embeds=model.embed(ids) + delta, hidden=True)
        local, whole = output.hidden[0], output.hidden[-1][:, 0]
        narrow = sample_spread(local, mask, batch.stream(f"infobert bottleneck {step}"))
        task = torch.nn.functional.cross_entropy(output.logits, batch.labels)
        ((task + 0.2 * narrow) / 3).backward(retain_graph=True)
        assert delta.grad is not None
        first = delta.grad.clone()
        chosen = find_anchored(first, mask, 0.5, 0.9)
        bound = info_nce(
            model.companions["critic"], local, whole, chosen, Chunks(chosen.sum(), int(chosen.sum()), 6),
            batch.stream(f"infobert anchored {step}"),
        )  # fmt: skip
        (-0.3 * bound / 3).backward()
        delta = keep_within(ascend(delta.detach(), first, 0.3), 0.4)
    expected = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    assert close(found, expected, 2e-6)


def test_each_regulariser_stands_alone() -> None:
    model, batch = prepared(defences.InfoBERT())
    for parameters, names in (
        ({"alpha": 0.0}, ["cross_entropy", "bottleneck"]),
        ({"beta": 0.0}, ["cross_entropy", "anchored"]),
        ({}, ["cross_entropy", "bottleneck", "anchored"]),
    ):
        (terms,) = list(defences.InfoBERT(**parameters).losses(model, batch))
        assert list(terms.values) == names
    bottleneck = gradients(defences.InfoBERT(alpha=0.0, beta=0.5), model, batch)
    plain = gradients(defences.Standard(), model, batch)
    upper = [name for name in bottleneck if "encoder.layer" in name or "pooler" in name]
    assert upper
    # The embedding block's output is all that the bottleneck sees: the encoder learns from the task alone.
    assert close({name: bottleneck[name] for name in upper}, {name: plain[name] for name in upper})
    assert not close(bottleneck, plain)


def test_the_papers_anchors_are_those_of_the_task_at_the_clean_text() -> None:
    """Whether they take a pass of their own (with an adversary) or not: another bottleneck, the same anchors."""
    defence = defences.InfoBERT(alpha=0.3, beta=5.0, mode="paper")
    model, batch = prepared(defence, dropout=0.0)
    clean = defence._clean_anchors(model, batch)
    delta = torch.zeros(*batch.inputs["input_ids"].shape, 16, requires_grad=True)
    logits = model(**batch.inputs, inputs_embeds=model.embed(batch.inputs["input_ids"]) + delta).logits
    (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, batch.labels), delta)
    assert torch.equal(clean, find_anchored(gradient, batch.inputs["attention_mask"], 0.5, 0.9))
    still = {"step_size": 0.0, "init_magnitude": 0.0, "steps": 1}
    one_pass = gradients(defence, model, batch)
    own_pass = gradients(dataclasses.replace(defence, adversary="freelb", **still), model, batch)
    assert close(one_pass, own_pass)


@pytest.mark.parametrize("adversary", ["none", "freelb"])
def test_one_backward_pass_equals_two(adversary: Any) -> None:
    """The released code differentiates cross-entropy and bottleneck first, and the anchored term by itself."""
    defence = defences.InfoBERT(alpha=0.3, beta=0.2, adversary=adversary, steps=2, step_size=0.3)
    model, batch = prepared(defence)
    found = gradients(defence, model, batch)
    model.zero_grad()
    torch.manual_seed(3)
    for terms in defence.losses(model, batch):
        (terms.values["cross_entropy"] + terms.values["bottleneck"]).backward(retain_graph=True)
        terms.values["anchored"].backward()
    twice = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    assert close(found, twice)
    assert any("critic" in name for name in found)


def test_without_regularisers_it_is_freelb() -> None:
    model, batch = prepared(defences.InfoBERT(alpha=0, beta=0, adversary="freelb"))
    same = Batch(batch.inputs, batch.labels, seed=batch.seed)
    free = gradients(defences.FreeLB(init_magnitude=0.0), model, same)
    info = gradients(defences.InfoBERT(alpha=0, beta=0, adversary="freelb", init_magnitude=0.0), model, batch)
    assert close(free, info)
    pgd = defences.PGD(init_magnitude=0.0, steps=2, clean=0.0)
    info = gradients(defences.InfoBERT(alpha=0, beta=0, adversary="pgd", init_magnitude=0.0, steps=2), model, batch)
    assert close(gradients(pgd, model, same), info)


@pytest.mark.parametrize(
    "parameters",
    [
        {"alpha": 0.0},
        {"beta": 0.0},
        {"mode": "paper"},
        {"mode": "paper", "adversary": "freelb"},
        {"adversary": "pgd"},
        {"features": "global"},
        {"p_t_given_x": "auxiliary", "adversary": "freelb"},
    ],
)
def test_every_variant_has_finite_gradients_where_it_should(parameters: dict[str, Any]) -> None:
    model, batch = prepared(defences.InfoBERT(**parameters))
    found = gradients(defences.InfoBERT(**parameters), model, batch)
    assert all(torch.isfinite(value).all() for value in found.values())
    assert ("companions.critic.first.weight" in found) == (parameters.get("alpha") != 0.0)
    assert not any("auxiliary" in name for name in found)


# ---------------------------------------------------------------------- bottlenecks


def test_the_rate_is_the_divergence_from_the_prior() -> None:
    mean, deviation = torch.randn(5, 4), torch.rand(5, 4) + 0.1
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, deviation), normal(0.0, 1.0)).sum(-1)
    assert torch.allclose(rate(mean, deviation), expected, atol=1e-5)
    assert float(rate(torch.zeros(1, 4), torch.ones(1, 4))) == 0
    assert (rate(mean, deviation) > 0).all()
    assert float(rate(torch.full((1, 1), 0.01), torch.ones(1, 1))) > 0
    assert float(rate(torch.zeros(1, 1), torch.full((1, 1), 1.01))) > 0
    assert torch.autograd.gradcheck(rate, (mean.double().requires_grad_(), deviation.double().requires_grad_()))


def rewind(model: Any) -> Any:
    """Let every stream of the model draw from its beginning again."""
    for module in model.modules():
        if isinstance(module, Stream):
            module.count = 0
    return model


def values_of(defence: Any, model: Any, batch: Batch) -> dict[str, float]:
    torch.manual_seed(0)
    rewind(model)
    (terms,) = list(defence.losses(model, batch))
    return {name: float(value) for name, value in terms.values.items()}


@pytest.mark.parametrize("cap", ["example", "batch"])
def test_vub_lies_between_vib_and_vib_less_the_entropy_of_the_labels(cap: Any) -> None:
    vub = defences.VUB(beta=0.1, cap=cap)
    model, batch = prepared(vub)
    with_entropy, without = values_of(vub, model, batch), values_of(defences.VIB(beta=0.1), model, batch)
    term = with_entropy.pop("entropy")
    assert with_entropy == without
    assert -math.log(2) - 1e-6 <= term <= 0
    rewind(model)
    torch.manual_seed(0)
    p = model(**batch.inputs).logits.softmax(-1)
    smaller = (-(p * p.log()).sum(-1)).clamp(max=math.log(2)).mean()
    assert term == pytest.approx(
        -float(smaller.detach()), abs=1e-6
    )  # balanced labels: both caps are above all entropies


def test_the_two_caps_differ_where_some_predictions_are_surer_than_the_labels() -> None:
    model, batch = prepared(defences.VUB(beta=0.0), dropout=0.0)
    with torch.no_grad():
        model.head.weight.mul_(8)
    each = entropies(model, batch)
    cap = float(each.median())
    assert float(each.min()) < cap < float(each.max())
    model.companions["labels"].value.fill_(cap)
    by_example = values_of(defences.VUB(beta=0.0), model, batch)["entropy"]
    by_batch = values_of(defences.VUB(beta=0.0, cap="batch"), model, batch)["entropy"]
    assert by_example == pytest.approx(-float(each.clamp(max=cap).mean()), abs=1e-6)
    assert by_batch == pytest.approx(-min(float(each.mean()), cap), abs=1e-6)
    assert by_batch < by_example


def entropies(model: Any, batch: Batch) -> torch.Tensor:
    torch.manual_seed(0)
    p = rewind(model)(**batch.inputs).logits.detach().softmax(-1)
    return -(p * p.log()).sum(-1)


def test_without_rate_and_draws_vub_is_the_confidence_penalty() -> None:
    defence = defences.VUB(beta=0.0, deterministic=True)
    model, batch = prepared(defence)
    assert model.slots.bottleneck is None
    penalty = gradients(defences.ConfidencePenalty(gamma=1.0), model, batch)
    assert toys.same_bits(gradients(defence, model, batch), penalty)
    model.companions["labels"].value.fill_(0.0)  # labels all alike: nothing is rewarded
    assert close(gradients(defence, model, batch), gradients(defences.Standard(), model, batch))


def test_a_bottleneck_comes_with_the_layers_of_the_released_code() -> None:
    model, _ = prepared(defences.VIB())
    slot = model.slots.bottleneck
    assert (slot.first.out_features, slot.second.out_features, slot.latent_size) == (16, 16, 8)
    assert model.head.in_features == 8
    for layer in (slot.first, slot.second, model.head):
        assert not layer.bias.any()
        bound = math.sqrt(6 / (layer.in_features + layer.out_features))
        assert 0.7 * bound < float(layer.weight.detach().abs().max()) <= bound


def test_where_the_cap_binds_the_entropy_has_no_gradient() -> None:
    vub = defences.VUB(beta=0.0)
    model, batch = prepared(vub, dropout=0.0)
    model.companions["labels"].value.fill_(1e-3)  # labels almost all alike
    capped = gradients(vub, rewind(model), batch)
    plain = gradients(defences.VUB(beta=0.0, entropy_weight=0.0), rewind(model), batch)
    assert close(capped, plain)
    model.companions["labels"].value.fill_(math.log(2))
    assert not close(gradients(vub, rewind(model), batch), plain)


def test_label_entropy() -> None:
    assert label_entropy(np.array([0, 1, 2, 3])) == pytest.approx(math.log(4))
    assert label_entropy(np.zeros(5, np.int64)) == 0


def test_a_bottleneck_draws_in_training_and_gives_the_mean_afterwards() -> None:
    slot = GaussianBottleneck(8, shift=0.57)
    pooled = torch.randn(3, 8)
    assert not torch.equal(slot.train()(pooled).sample, slot.train()(pooled).sample)
    latent = slot.eval()(pooled)
    assert torch.equal(latent.sample, latent.mean)
    assert float(latent.mean.detach().min()) >= 0  # the last relu
    assert float(latent.deviation.detach().min()) >= math.log1p(math.exp(0.57)) - 1e-5
    assert not slot.stochastic
    slot.inference = "sample"
    assert slot.stochastic
    assert not torch.equal(slot(pooled).sample, slot(pooled).sample)
    free = GaussianBottleneck(8, last_relu=False)
    assert float(free.eval()(pooled).mean.detach().min()) < 0


@pytest.mark.parametrize(("adversary", "plain"), [("freelb", defences.FreeLB), ("pgd", defences.PGD)])
def test_a_bottleneck_without_a_price_under_an_adversary_is_that_adversary(adversary: Any, plain: Any) -> None:
    """Composition by arguments: the same climb, with the bottleneck's draws shared by all its passes."""
    settings: dict[str, Any] = {"steps": 2, "step_size": 0.3, "init_magnitude": 0.0}
    both = defences.VUB(beta=0.0, entropy_weight=0.0, adversary=adversary, **settings)
    model, batch = prepared(both)
    whole = {"clean": 0.0} if plain is defences.PGD else {}
    expected = gradients(plain(**settings, **whole), rewind(model), batch)
    assert close(gradients(both, rewind(model), batch), expected)


@pytest.mark.parametrize("adversary", ["freelb", "pgd"])
def test_a_bottleneck_goes_with_an_adversary(adversary: Any) -> None:
    vub = defences.VUB(adversary=adversary, steps=2)
    model, batch = prepared(vub)
    found = gradients(vub, model, batch)
    assert all(torch.isfinite(value).all() for value in found.values())
    assert "slots.bottleneck.second.weight" in found
