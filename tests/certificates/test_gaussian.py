"""The Gaussian certificate on models whose robust radius is known."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import certify_toys as toys
import numpy as np
import pytest
import torch
import training_toys
from torch import Tensor

from isthmus.arithmetic.randomness import draw_normal
from isthmus.arithmetic.transfer import on_device
from isthmus.attacks.parts.protection import Protection
from isthmus.certificates import Gaussian
from isthmus.certificates._gaussian_noise import NoisyReader
from isthmus.certificates._votes import answer_challenge, lower_bound, radius
from isthmus.certificates.base import Challenge, Probe
from isthmus.core.errors import UsageError
from isthmus.core.types import Example, TokenBatch
from isthmus.models import Classifier, ClassifierVictim, Noise, WordMask, wrap
from isthmus.models.backbones import Encoded
from isthmus.models.masking import embedding_gradient
from isthmus.models.words import word_tokenizer

QUICK = {"n0": 50, "n": 2000, "alpha": 0.001}


def certified(model: Classifier, examples: list[Example], **parameters: object) -> list:
    return list(Gaussian(**{**QUICK, **parameters})(model, examples, seed=3))


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0])
def test_a_linear_model_is_certified_up_to_its_distance_and_never_beyond(sigma):
    model, n, seen = toys.linear(), 4000, 0
    for result, example in zip(
        certified(model, toys.examples(), sigma=sigma, n0=1000, n=n), toys.examples(), strict=True
    ):
        distance = toys.distance(model, example.texts["text"])
        p = NormalDist().cdf(abs(distance) / sigma)
        unlucky = max(0, math.floor(n * p - 4 * math.sqrt(n * p * (1 - p))))
        assert radius(lower_bound(unlucky, n, 0.001), sigma) <= result.strength <= abs(distance)
        if result.strength >= 0:
            assert result.prediction == int(distance > 0)
            seen += result.strength > 0.8 * abs(distance)
    assert seen, "some are certified nearly up to the hyperplane"


class Keeps(WordMask):
    """Takes away the words whose noisy embedding is small: a mask that is computed from the noisy input."""

    def config(self):
        return {}

    def forward(
        self, embeddings: Tensor, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor
    ) -> Tensor:
        small = (embeddings.norm(dim=-1) < 1.0) & ~special_mask
        return embeddings.masked_fill(small.unsqueeze(-1), 0.0)


class Inner(Noise):
    """Noise after the first block."""

    layers = (0,)
    stochastic = True
    sigma = 0.3

    def config(self):
        return {}

    def forward(self, layer: int, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        return hidden + self.sigma * self.stream.normal(hidden, tag=layer)


@pytest.mark.parametrize("slots", [{}, {"noise": Inner}, {"word_mask": Keeps}, {"noise": Inner, "word_mask": Keeps}],
                         ids=["plain", "noise", "mask", "both"])  # fmt: skip
def test_results_depend_neither_on_company_nor_on_order(slots):
    model = training_toys.classifier(dropout=0.0).fill(**{name: kind() for name, kind in slots.items()})
    examples = [Example(f"test:{n}", {"text": text}, 1) for n, text in enumerate(
        ["fine film", "the plot was dull and cold", "a lovely scene", "very very warm", "weak"])]  # fmt: skip
    together = {r.id: r.to_row() for r in certified(model, examples, sigma=0.3, n=60)}
    alone = {r.id: r.to_row() for e in reversed(examples) for r in certified(model, [e], sigma=0.3, n=60)}
    assert together == alone
    assert len({tuple(row["selection"]) for row in together.values()}) > 1


def test_noise_inside_the_model_is_drawn_anew_for_every_draw():
    model = training_toys.classifier(dropout=0.0, seed=1).fill(noise=Inner())
    (example,) = [Example("test:0", {"text": "the plot was dull"}, 1)]
    (quiet,) = certified(training_toys.classifier(dropout=0.0, seed=1), [example], sigma=1e-6, n=100)
    assert max(quiet.details["selection"]) == 50, "without noise of its own it always answers the same"
    noise: Any = model.slots.noise
    noise.sigma = 3.0
    (loud,) = certified(model, [example], sigma=1e-6, n=100)
    assert max(loud.details["selection"]) < 50


def test_swaps_are_inside_the_ball_exactly_if_their_distance_is():
    model, table, example = toys.linear(), toys.table(), toys.examples(["the film was fine"])[0]
    reader = NoisyReader(wrap(model), 0.5)
    vocabulary = model.tokenizer.get_vocab()

    def apart(a: str, b: str) -> float:
        weight = model.table.weight.detach()
        return float((weight[vocabulary[a]] - weight[vocabulary[b]]).norm())

    swaps = {("film", "movie"), ("fine", "good"), ("fine", "decent")}
    for reach in (0.1, apart("film", "movie") + 1e-4, 2.5, 100.0):
        found = reader.swaps_inside(example, table, Protection(), reach)
        assert found["swaps"] == 3
        assert found["swaps_inside"] == sum(apart(*swap) <= reach for swap in swaps)
        worst = sorted([apart("film", "movie"), max(apart("fine", "good"), apart("fine", "decent"))], reverse=True)
        sums = [math.hypot(*worst[: k + 1]) for k in range(2)]
        assert found["words_inside"] == sum(total <= reach for total in sums)
    whole = reader.distance(example.texts, {"text": "the movie was good"})
    assert whole == pytest.approx(math.hypot(apart("film", "movie"), apart("fine", "good")), rel=1e-5)
    assert reader.distance(example.texts, {"text": "the movie was very good"}) is None
    protected = reader.swaps_inside(example, table, Protection(pattern=".*"), 100.0)
    assert protected == {"swaps": 0, "swaps_inside": 0, "words_inside": 0, "substitutable": 0}


def test_a_text_inside_the_ball_cannot_refute_and_one_far_outside_can():
    model = toys.linear()
    sides = {text: toys.distance(model, text) for text in toys.TEXTS}
    right = max(sides, key=sides.get)
    wrong = min(sides, key=sides.get)
    assert sides[right] > 0 > sides[wrong]
    certificate, victim = Gaussian(sigma=0.05, **QUICK), wrap(model)
    (result,) = certificate(model, [Example("test:0", {"text": right}, 1)])
    assert result.outcome == "certified"
    answers = certificate.challenge(
        victim, [Challenge("a", {"text": right}, 1), Challenge("b", {"text": wrong}, 1)], seed=0
    )
    assert [(answer.prediction, answer.refutes) for answer in answers] == [(1, False), (0, True)]


def test_the_printed_radius_has_a_column_of_its_own_name_and_no_other():
    model, example = toys.linear(), toys.examples(["the film was fine"])[0]
    (without,) = certified(model, [example], sigma=0.2)
    (result,) = certified(model, [example], sigma=0.2, paper_radius=True)
    row = result.to_row()
    assert "not a certificate" not in without.to_row()
    assert row["not a certificate"] == pytest.approx(result.strength / 0.2**2)
    assert row["strength"] == without.strength
    assert not [key for key in row if "paper" in key]


def test_a_victim_without_embeddings_is_refused():
    with pytest.raises(UsageError, match="puts noise on word embeddings"):
        Gaussian()(lambda texts: [[0.5, 0.5]] * len(texts), toys.examples())


def test_a_model_that_answers_nan_is_an_error_and_not_a_certificate():
    model = toys.linear()
    with torch.no_grad():
        model.head.bias[0] = math.nan
    assert {result.outcome for result in certified(model, toys.examples()[:2], n=50)} == {"error"}


def test_it_sees_the_same_model_through_a_victim():
    model, examples = toys.linear(), toys.examples()[:2]
    assert certified(model, examples, n=50) == certified(ClassifierVictim(model), examples, n=50)


@pytest.mark.parametrize("masking", ["gradient", "random"])
def test_the_masks_of_two_step_inference_come_from_the_noisy_embeddings(masking):
    from isthmus.inference.two_step import TwoStep

    model = training_toys.classifier(dropout=0.0, seed=2)
    model.deployment = TwoStep(masked=2, masking=masking)
    victim = wrap(model, device="cpu")
    examples = [Example(f"test:{n}", {"text": text}, 1) for n, text in enumerate(
        ["fine film", "the plot was dull and cold", "a lovely scene", "very very warm", "weak"])]  # fmt: skip
    certificate = Gaussian(sigma=0.5, n0=20, n=40)
    together = {result.id: result.to_row() for result in certificate(victim, examples)}
    alone = {result.id: result.to_row() for e in examples for result in certificate(victim, [e])}
    assert together == alone
    assert "2 words masked" in certificate.statement(victim).classifier
    reader = NoisyReader(victim, 0.5)
    (inputs,) = on_device([TokenBatch(np.array([[2, 5, 6, 7, 8, 3]]), keys=np.array([7], np.uint64))], model.device)
    chosen = []
    for scale in (1.0, 3.0):
        noisy = model.embed(inputs.ids).detach() + scale * draw_normal(inputs.keys, (len(inputs.ids), 6, 16), 5)
        masked = reader._mask(inputs, noisy)
        changed = (masked != noisy).any(dim=-1)[0]
        assert int(changed.sum()) == 2
        assert not changed[[0, 5]].any(), "special tokens are never masked"
        assert torch.equal(masked[0, changed], model.table.weight[4].expand(2, -1))
        chosen.append(changed.tolist())
    if masking == "gradient":
        with torch.no_grad():
            gradient = embedding_gradient(model, inputs.ids, replaced=noisy)
        assert set(np.flatnonzero(chosen[1])) == set((gradient.saliency()[0, 1:5].topk(2).indices + 1).tolist())


def test_without_masks_two_step_inference_is_the_plain_model():
    from isthmus.inference.two_step import TwoStep

    model, example = training_toys.classifier(dropout=0.0, seed=2), Example("test:0", {"text": "the plot was dull"}, 1)
    (plain,) = certified(model, [example], sigma=0.3, n=40)
    model.deployment = TwoStep(masking="none")
    (same,) = certified(wrap(model, device="cpu"), [example], sigma=0.3, n=40)
    assert same == plain


def test_a_synonym_of_more_word_pieces_is_never_inside_the_ball(tmp_path):
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    from isthmus.models import from_transformers

    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "film", "movie", "fine", "dec", "##ent", "good"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    config = BertConfig(vocab_size=len(pieces), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=8)  # fmt: skip
    model = from_transformers(BertForSequenceClassification(config), BertTokenizer(str(tmp_path / "vocab.txt")))
    reader, example = NoisyReader(wrap(model, device="cpu"), 0.1), Example("test:0", {"text": "the film fine"}, 1)
    assert reader.distance(example.texts, {"text": "the movie good"}) > 0
    assert reader.distance(example.texts, {"text": "the film decent"}) is None
    found = reader.swaps_inside(example, toys.table(), Protection(), 1e6)
    assert (found["swaps"], found["swaps_inside"], found["words_inside"], found["substitutable"]) == (3, 2, 0, 2)


def test_noise_that_the_model_puts_on_its_embeddings_counts():
    from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise

    model, n = toys.linear().fill(noise=GaussianNoise(0.4, [EMBEDDINGS])), 4000
    certificate = Gaussian(sigma=0.3, n0=500, n=n)
    assert "deviation 0.5" in certificate.statement(wrap(model, device="cpu")).classifier
    near = 0
    for result, example in zip(certificate(model, toys.examples()), toys.examples(), strict=True):
        distance = abs(toys.distance(model, example.texts["text"]))
        p = NormalDist().cdf(distance / 0.5)
        unlucky = max(0, math.floor(n * p - 4 * math.sqrt(n * p * (1 - p))))
        assert radius(lower_bound(unlucky, n, 0.001), 0.5) <= result.strength <= distance
        near += result.strength > 0.8 * distance
    assert near
    assert NoisyReader(wrap(model, device="cpu"), 0.3).inner_noise == ()


class LooksBehindTheMask(toys.LinearBackbone):
    """Masks its first word where that is large, and then answers by the noise that the model put on the mask."""

    def forward(self, ids, embeddings, mask, types, hidden):
        read = self.embedding(ids) if embeddings is None else embeddings
        first, second = read[:, 0, 0], read[:, 1, 0]
        unmasked = -5 + 0.1 * second + 0.2 * torch.relu(first - 2)
        behind = torch.where(first - 1000 < 2, 5.0, -5.0)
        margin = torch.where(first > 500, behind, torch.where(second > 500, -5.0, unmasked))
        return Encoded(torch.stack([torch.zeros_like(margin), margin], 1), None)


def test_noise_on_a_mask_is_not_counted_twice():
    from isthmus.inference.two_step import TwoStep
    from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise

    tokenizer = word_tokenizer(["good fine dull"], 100, 1)
    model = Classifier(LooksBehindTheMask(len(tokenizer), 2), tokenizer, toys.TASK, max_tokens=8, seed=0).eval()
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(2))
        model.head.bias.zero_()
        model.table.weight.zero_()
        model.table.weight[tokenizer.mask_token_id, 0] = 1000
        model.table.weight[tokenizer.get_vocab()["fine"], 0] = 2.3
    model.fill(noise=GaussianNoise(1.0, [EMBEDDINGS]))
    model.deployment = TwoStep(masked=1, candidates=2)
    certificate, victim = Gaussian(sigma=0.05, n0=100, n=4000), wrap(model, device="cpu")
    (result,) = certificate(victim, [Example("test:0", {"text": "good dull"}, 0)])
    other = {"text": "fine dull"}
    (answer,) = certificate.challenge(victim, [Challenge("test:0", other, result.prediction)], 1)
    assert answer.refutes
    reader = NoisyReader(victim, 0.05)
    assert 0 < result.strength < reader.distance({"text": "good dull"}, other)
    assert reader.total_sigma == 0.05
    model.deployment = TwoStep(masking="none")
    assert NoisyReader(wrap(model, device="cpu"), 0.05).total_sigma == pytest.approx(math.hypot(0.05, 1.0))


def test_draws_that_were_not_answered_refute_nothing():
    challenge = Challenge("test:0/1", {"text": "fine"}, 1)
    assert answer_challenge(np.array([900, 100]), challenge, 1000, 0.001).refutes
    assert not answer_challenge(np.array([100, 100]), challenge, 1000, 0.001).refutes


PGD = {"pgd": 4, "pgd_draws": 8}


def probes(examples: list[Example], strengths: list[float], classes: list[int]) -> list[Probe]:
    return [
        Probe(f"{example.id}/{strength:g}", example.texts, prediction, strength)
        for example, strength, prediction in zip(examples, strengths, classes, strict=True)
    ]


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_ascent_never_turns_a_linear_model_inside_its_distance_and_always_beyond(sigma):
    model, examples = toys.linear(), toys.examples()
    # With few draws the luckiest point is kept, which for a text beside the plane need not be the farthest.
    certificate, victim = Gaussian(sigma=sigma, **QUICK, **{**PGD, "pgd_draws": 400}), wrap(model)
    sides = [toys.distance(model, example.texts["text"]) for example in examples]
    classes = [int(side > 0) for side in sides]
    results = list(certificate(model, examples, seed=3))
    inside = certificate.probe(victim, probes(examples, [max(r.strength, 0.0) for r in results], classes), seed=3)
    assert not any(answer.refutes for answer in inside)
    assert all(answer.needs <= max(r.strength, 0.0) for answer, r in zip(inside, results, strict=True))
    # The vote at a distance d beyond the plane is Φ(-d / σ): surely below one half from 0.2 σ on.
    beyond = [abs(side) + 0.2 * sigma for side in sides]
    outside = certificate.probe(victim, probes(examples, beyond, classes), seed=3)
    for answer, own, side, reach in zip(outside, classes, sides, beyond, strict=True):
        assert answer.refutes
        assert answer.prediction == 1 - own
        assert answer.needs == pytest.approx(reach, rel=1e-5)
        p, n = NormalDist().cdf((abs(side) - reach) / sigma), QUICK["n"]
        assert abs(answer.details["votes"] - n * p) < 5 * math.sqrt(n * p * (1 - p))
    assert certificate.own_attack == "embedding_pgd"
    assert Gaussian().own_attack is None


@pytest.mark.parametrize("masking", ["gradient", "random"])
def test_ascent_goes_through_noise_and_masks(masking):
    from isthmus.inference.two_step import TwoStep

    model = training_toys.classifier(dropout=0.0, seed=2)
    model.deployment = TwoStep(masked=2, candidates=2, masking=masking)
    victim = wrap(model, device="cpu")
    examples = [
        Example("test:0", {"text": "the plot was dull and cold"}, 1),
        Example("test:1", {"text": "fine film"}, 1),
    ]
    certificate = Gaussian(sigma=0.2, n0=20, n=60, **PGD)
    results = list(certificate(victim, examples))
    classes = [int(result.prediction) for result in results]
    far = certificate.probe(victim, probes(examples, [30.0, 30.0], classes), seed=0)
    assert [answer.needs for answer in far] == pytest.approx([30.0, 30.0], rel=1e-3)
    assert any(answer.refutes for answer in far)
    alone = [certificate.probe(victim, [probe], seed=0)[0] for probe in probes(examples, [30.0, 30.0], classes)]
    assert alone == far
    reader = NoisyReader(victim, 0.2)
    (inputs,) = on_device([TokenBatch(np.array([[2, 5, 6, 3]]), keys=np.array([7], np.uint64))], model.device)
    rows = len(inputs.ids)
    gradient = reader.margin_gradient(inputs, torch.zeros(rows, dtype=torch.int64), torch.ones(rows, dtype=torch.int64))
    assert (gradient.values[0].norm(dim=-1) > 0).all(), "both words are masked, and get a gradient even so"


@pytest.mark.parametrize(
    ("given", "message"), [({"pgd": -1}, "pgd is the number of steps"), ({"pgd_draws": 0}, "at least 1"),
                           ({"pgd_restarts": 0}, "at least 1")], ids=["steps", "draws", "restarts"])  # fmt: skip
def test_settings_of_the_attack_are_checked(given, message):
    with pytest.raises(UsageError, match=message):
        Gaussian(**given)
