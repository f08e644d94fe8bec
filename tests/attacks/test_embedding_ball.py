"""Gradient ascent on embeddings against models whose distance to the boundary is known."""

from __future__ import annotations

import math
from typing import Any

import certify_toys
import numpy as np
import pytest
import torch
import training_toys
from torch import Tensor

from isthmus.arithmetic.randomness import branch, copy_keys
from isthmus.arithmetic.transfer import Inputs, on_device
from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent
from isthmus.attacks.gradient.parts.embedding_ball import movable, predict_moved, random_directions
from isthmus.core.errors import UsageError
from isthmus.core.types import Classification, TokenBatch
from isthmus.inference.two_step import TwoStep
from isthmus.models import Classifier, ClassifierVictim, wrap
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise
from isthmus.models.masking import embedding_gradient

TEXT = "the film was fine and very good"


def linear(classes: int = 2, seed: int = 0) -> Classifier:
    model = certify_toys.linear(seed=seed)
    if classes > 2:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model.task = Classification(tuple("abcdef"[:classes]))
            model.head = torch.nn.Linear(model.pooled_size, classes)
            torch.nn.init.normal_(model.head.weight)
    return model.requires_grad_(False)


def rows(model: Classifier, *texts: str, key: int = 5) -> Inputs:
    ids = np.array([model.tokenizer(text)["input_ids"] for text in texts])
    keys = np.arange(key, key + len(ids), dtype=np.uint64)
    (inputs,) = on_device([TokenBatch(ids, keys=keys)], model.device)
    return inputs


def opened(model: Classifier) -> ClassifierVictim:
    victim = wrap(model, device="cpu")
    assert isinstance(victim, ClassifierVictim)
    return victim


def distance(model: Classifier, text: str) -> tuple[int, float]:
    """Class of a text, and min_c |f_c - f_y| / ‖w_c - w_y‖ in the space of the flattened sequence."""
    ids = torch.tensor(model.tokenizer(text)["input_ids"])
    weight, logits = model.head.weight.double(), model(ids.unsqueeze(0)).logits[0].double()
    label = int(logits.argmax())
    lengths = [
        float((logits[label] - logits[c]) / (weight[label] - weight[c]).norm()) / len(ids) ** 0.5
        for c in range(len(logits))
        if c != label
    ]
    return label, min(lengths)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_linear_model_is_turned_as_soon_as_the_ball_reaches_the_boundary_and_never_before(classes, seed):
    model = linear(classes, seed)
    victim, inputs = ClassifierVictim(model), rows(model, TEXT)
    label, away = distance(model, TEXT)
    ascent, target = EmbeddingAscent(steps=4, restarts=classes - 1), torch.tensor([label])
    for share, turned in ((0.5, False), (0.999, False), (1.001, True), (2.0, True)):
        found = ascent(victim, inputs, target, torch.tensor([share * away]))
        assert bool(found.fooled[0] > 0) == turned
        assert float(found.offset.double().norm()) <= share * away
        assert bool((predict_moved(victim, inputs, found.offset, 1) != label).all()) == turned
        assert not found.blind.any()


def test_one_step_is_the_closed_form():
    model = linear()
    label, away = distance(model, TEXT)
    inputs = rows(model, TEXT)
    found = EmbeddingAscent(steps=1, step=1.0, restarts=1)(
        ClassifierVictim(model), inputs, torch.tensor([label]), torch.tensor([away])
    )
    direction = model.head.weight[1 - label] - model.head.weight[label]
    exact = direction / direction.norm() * away / inputs.ids.shape[1] ** 0.5
    assert torch.allclose(found.offset[0], exact.expand_as(found.offset[0]), rtol=1e-4)


def test_balls_of_one_batch_have_radii_of_their_own_and_special_tokens_may_stay():
    model = training_toys.classifier(dropout=0.0)
    inputs = rows(model, "fine film", "dull plot", "cold scene")
    radius = torch.tensor([0.1, 1.0, 0.0])
    for tokens in ("all", "words"):
        found = EmbeddingAscent(steps=3, restarts=3, tokens=tokens)(
            wrap(model), inputs, torch.tensor([0, 1, 1]), radius
        )
        lengths = found.offset.double().flatten(1).norm(dim=1)
        assert (lengths <= radius).all()
        assert lengths[:2] == pytest.approx(radius[:2].numpy(), rel=1e-3)
        moved = (found.offset[:2] != 0).any(dim=-1)
        assert moved[:, 1:-1].all()
        assert moved[:, [0, -1]].all() == (tokens == "all")


class Blind(torch.nn.Module):
    """Logits that do not depend on what is read."""

    def forward(self, pooled: Tensor) -> Tensor:
        return torch.cat([pooled[:, :1] * 0.0 + 1.0, pooled[:, :1] * 0.0], dim=1)


def test_without_a_gradient_it_says_so_and_stays_in_the_ball():
    model: Any = linear()
    model.head = Blind()
    found = EmbeddingAscent(restarts=2)(
        ClassifierVictim(model), rows(model, TEXT), torch.tensor([0]), torch.tensor([0.5])
    )
    assert found.blind.all()
    assert not found.fooled.any()
    assert torch.isfinite(found.offset).all()


def noisy(sigma: float = 0.5) -> Classifier:
    return training_toys.classifier(dropout=0.0).fill(noise=GaussianNoise(sigma, [EMBEDDINGS, 0]))


def test_gradients_are_averaged_over_draws():
    model = noisy()
    victim, inputs, target = ClassifierVictim(model), rows(model, "the plot was dull"), torch.tensor([0])
    ascent = EmbeddingAscent(steps=1, step=1.0, restarts=1, draws=7)
    found = ascent(victim, inputs, target, torch.tensor([1e6]))
    keys = copy_keys(branch(inputs.keys[:1], "ascent", 0, 0), 7)
    embeddings = model.embed(inputs.ids[:1]).detach()
    total = torch.zeros_like(embeddings)
    for key in keys:
        with model.use_keys(key.view(1)):
            total += embedding_gradient(
                model, inputs.ids[:1], None, None, target, rival=1 - target, replaced=embeddings
            ).values
    cosine = torch.cosine_similarity(found.offset.flatten(), total.flatten(), dim=0)
    assert float(cosine) == pytest.approx(1.0, abs=1e-4)
    single = EmbeddingAscent(steps=1, step=1.0, restarts=1, draws=1)(victim, inputs, target, torch.tensor([1e6]))
    assert float(torch.cosine_similarity(single.offset.flatten(), total.flatten(), dim=0)) < 0.99


@pytest.mark.parametrize("masking", ["gradient", "random", "none"])
def test_the_gradient_goes_straight_through_masks_to_every_word(masking):
    model = training_toys.classifier(dropout=0.0, seed=2).fill(noise=GaussianNoise(0.2, [0]))
    model.deployment = TwoStep(masked=2, candidates=2, masking=masking, k0=3, k1=4)
    victim, inputs = opened(model), rows(model, "fine film")
    inputs = inputs._replace(embeddings=model.embed(inputs.ids).detach())
    gradient = victim.margin_gradient(
        inputs, torch.zeros(len(inputs.ids), dtype=torch.int64), torch.ones(len(inputs.ids), dtype=torch.int64)
    )
    assert (gradient.values.norm(dim=-1) > 0).all(), "both words are masked, and get a gradient even so"


def test_two_step_inference_reads_what_it_is_given():
    """The words' own embeddings give the words' own scores, and far others do not."""
    model = training_toys.classifier(dropout=0.0, seed=2).fill(noise=GaussianNoise(0.2, [0]))
    for masking in ("gradient", "random", "none"):
        model.deployment = TwoStep(masked=1, masking=masking, k0=3, k1=4)
        victim, inputs = opened(model), rows(model, "the plot was dull", "the film was fine")
        ids, keys = inputs.ids[:2].numpy(), inputs.keys[:2].numpy().view(np.uint64)
        usual = victim.launch([TokenBatch(ids, keys=keys)])()
        embeddings = model.embed(inputs.ids).detach()
        assert victim.scores_at(inputs._replace(embeddings=embeddings)) == pytest.approx(usual, abs=1e-6)
        assert np.abs(victim.scores_at(inputs._replace(embeddings=3 * embeddings)) - usual).max() > 1e-3


def test_an_attack_depends_neither_on_company_nor_on_the_time():
    model = noisy()
    texts = ["the plot was dull", "the film was fine", "this actor was cold"]
    victim, ascent = ClassifierVictim(model), EmbeddingAscent(steps=3, restarts=3, draws=3)
    together = rows(model, *texts)
    whole = ascent(victim, together, torch.tensor([0, 1, 0]), torch.full((3,), 0.4))
    for row in range(3):
        alone = ascent(
            victim, rows(model, texts[row], key=5 + row), torch.tensor([0, 1, 0])[row : row + 1], torch.tensor([0.4])
        )
        assert torch.equal(alone.offset[0], whole.offset[row])
    judged = predict_moved(victim, together, whole.offset, 40)
    assert np.array_equal(judged, predict_moved(victim, together, whole.offset, 40))
    assert judged.shape == (3, 40)
    assert 0 < judged.mean() < 1, "its answers are drawn"


def test_a_larger_ball_is_not_easier_to_withstand_and_ascent_beats_chance():
    model = training_toys.classifier(dropout=0.0, seed=1)
    victim, inputs = (
        ClassifierVictim(model),
        rows(model, "the plot was dull", "the film was fine", "this actor was cold"),
    )
    label = torch.from_numpy(predict_moved(victim, inputs, None, 1)[:, 0])
    held = []
    for size in (0.01, 0.3, 1.0, 3.0, 10.0):
        found = EmbeddingAscent()(victim, inputs, label, torch.full((3,), size))
        held.append(int((found.fooled == 0).sum()))
    assert held[0] == 3
    assert held == sorted(held, reverse=True)
    assert held[-1] == 0
    size = 3.0
    moved = size * random_directions(inputs.keys[:3], found.offset.shape, 1, movable(model, inputs.ids[:3], "all"))
    assert moved.flatten(1).norm(dim=1) == pytest.approx(np.full(3, size), rel=1e-5)
    by_chance = int((torch.from_numpy(predict_moved(victim, inputs, moved, 1)[:, 0]) == label).sum())
    assert by_chance >= held[3]


def test_where_it_begins_is_where_it_is_told():
    model = linear()
    label, away = distance(model, TEXT)
    inputs, target = rows(model, TEXT), torch.tensor([label])
    start = torch.full((1, *model.embed(inputs.ids).shape[1:]), 100.0)
    found = EmbeddingAscent(steps=1, step=1.0, restarts=1)(
        ClassifierVictim(model), inputs, target, torch.tensor([away / 2]), start
    )
    assert float(found.offset.double().norm()) <= away / 2, "what lies outside is brought back"


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"steps": 0}, "steps"), ({"restarts": 0}, "restarts"), ({"draws": -1}, "draws"), ({"tokens": "some"}, "one of"),
     ({"steps": 4, "step": 0.2}, "at least 0.25"), ({"step": math.nan}, "do not reach")],
    ids=["steps", "restarts", "draws", "tokens", "short", "nan"],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        EmbeddingAscent(**settings)


@pytest.mark.parametrize("masking", ["gradient", "random", "none", None])
def test_logits_at_embeddings_have_the_gradient_of_the_margin_and_judge_by_the_whole_procedure(masking):
    """None: a plain classifier with noise."""
    model = training_toys.classifier(dropout=0.0, seed=2).fill(noise=GaussianNoise(0.2, [0]))
    if masking is not None:
        model.deployment = TwoStep(masked=1, candidates=2, masking=masking, k0=3, k1=4)
    victim, inputs = opened(model), rows(model, "the plot was dull", "the film was fine")
    embeddings = model.embed(inputs.ids).detach()
    inputs = inputs._replace(embeddings=embeddings)
    count = len(inputs.ids)
    target, rival = torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64)
    expected = victim.margin_gradient(inputs, target, rival)
    leaf = embeddings.clone().requires_grad_(True)
    logits = victim.logits_at(inputs._replace(embeddings=leaf))[:, 0]
    (gradient,) = torch.autograd.grad((logits[:, 1] - logits[:, 0]).sum(), leaf)
    assert torch.allclose(gradient, expected.values, atol=1e-6)
    assert torch.allclose(logits, expected.logits, atol=1e-6)
    with torch.no_grad():
        judged = victim.logits_at(inputs)[:, 0].softmax(dim=-1)
    assert judged[: inputs.rows].numpy() == pytest.approx(victim.scores_at(inputs), abs=1e-5)


def test_copies_of_a_row_are_drawn_with_keys_of_their_own():
    model = noisy()
    victim, inputs = ClassifierVictim(model), rows(model, "the plot was dull", "the film was fine")
    inputs = inputs._replace(embeddings=model.embed(inputs.ids).detach())
    keys = copy_keys(inputs.keys, 3)
    with torch.no_grad():
        together = victim.logits_at(inputs._replace(keys=keys), copies=3)
        for copy in range(3):
            alone = victim.logits_at(inputs._replace(keys=keys.view(-1, 3)[:, copy].contiguous()))
            assert torch.allclose(alone[:, 0], together[:, copy], atol=1e-6)
    assert not torch.allclose(together[:, 0], together[:, 1])
