"""Attacks on the embeddings of texts, where the distance to the boundary is known."""

from __future__ import annotations

import certify_toys
import pytest
import torch
from torch import Tensor

from isthmus.arithmetic.transfer import Inputs
from isthmus.attacks import BIM, CW, FGSM, PGD, Auto, DeepFool, EmbeddingTarget, GradientAttack
from isthmus.attacks.gradient.parts.embedding_ascent import EmbeddingAscent
from isthmus.core.types import Classification
from isthmus.models import Classifier, ClassifierVictim
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise

TEXTS = ("the film was fine and very good", "a good film", "bad")


def linear(classes: int = 2) -> Classifier:
    """Sum of the word embeddings, then a linear head: its distance is known."""
    model = certify_toys.linear(seed=0)
    if classes > 2:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model.task = Classification(tuple("abcdef"[:classes]))
            model.head = torch.nn.Linear(model.pooled_size, classes)
            torch.nn.init.normal_(model.head.weight)
    return model


def target_of(model: Classifier, *texts: str) -> tuple[EmbeddingTarget, Tensor]:
    target = EmbeddingTarget(model, model.encode([{"text": text} for text in texts]))
    with torch.no_grad():
        labels = model(**target.tokens).logits.argmax(dim=1)
    return target, labels


def distances(model: Classifier, target: EmbeddingTarget, labels: Tensor) -> Tensor:
    """min_c |f_c - f_y| / ‖w_c - w_y‖ in the space of a text's own tokens."""
    with torch.no_grad():
        logits = model(**target.tokens).logits.double()
    assert model.head is not None
    weight = model.head.weight.detach().double()
    gaps = logits.gather(1, labels.unsqueeze(1)) - logits
    lengths = (weight[labels].unsqueeze(1) - weight.unsqueeze(0)).norm(dim=2) * target.movable.sum(dim=1).sqrt()
    return (gaps / lengths).scatter(1, labels.unsqueeze(1), torch.inf).amin(dim=1)


@pytest.mark.parametrize("classes", [2, 4])
def test_deepfool_and_cw_find_the_distance_of_texts_of_any_length(classes: int) -> None:
    model = linear(classes)
    target, labels = target_of(model, *TEXTS)
    away = distances(model, target, labels)
    attacks: list[GradientAttack] = [DeepFool()]
    if classes == 2:  # Where three classes meet Adam takes many more steps.
        attacks.append(CW(c=1.0, searches=4, steps=100, learning_rate=0.03))
    for attack in attacks:
        found = attack.run(target, target.inputs, labels, bounds=None, movable=target.movable)
        assert found.success.all()
        assert float((found.l2 / away).min()) >= 1 - 1e-5
        assert float((found.l2 / away).max()) <= 1.021


@pytest.mark.parametrize("attack", [FGSM, BIM, PGD, Auto])
def test_a_linear_model_falls_as_soon_as_the_ball_reaches_the_boundary(attack: type[GradientAttack]) -> None:
    model = linear()
    target, labels = target_of(model, TEXTS[0])
    away = float(distances(model, target, labels))
    more = {PGD: {"random_start": False}, Auto: {"steps": 30}}.get(attack, {})
    for share, fooled in ((0.99, False), (1.01, True)):
        made = attack(epsilon=share * away, norm="l2", **more)  # type: ignore[call-arg]
        found = made.run(target, target.inputs, labels, bounds=None, movable=target.movable)
        assert bool(found.success) is fooled
        assert float(found.l2) <= share * away


def test_padding_is_never_moved_and_special_tokens_need_not_be() -> None:
    model = linear()
    tokens = model.encode([{"text": text} for text in TEXTS])
    target, labels = target_of(model, *TEXTS)
    found = PGD(epsilon=1.0, norm="l2").run(target, target.inputs, labels, bounds=None, movable=target.movable)
    moved = (found.adversarial != target.inputs).any(dim=2)
    assert moved.any()
    assert not moved[tokens["attention_mask"] == 0].any()
    words = EmbeddingTarget(model, tokens, words_only=True)
    assert (words.movable <= target.movable).all()
    assert not words.movable.squeeze(2)[model.special_mask(tokens["input_ids"])].any()


def test_two_classes_are_climbed_as_the_measure_embedding_pgd_climbs_them() -> None:
    model = linear()
    target, labels = target_of(model, TEXTS[0])
    radius = 0.8 * float(distances(model, target, labels))
    tokens = {name: value for name, value in target.tokens.items() if name == "input_ids"}
    inputs = Inputs(1, tokens["input_ids"], None, None, torch.zeros(1, dtype=torch.int64))
    model.requires_grad_(False)
    ascent = EmbeddingAscent(steps=5, restarts=1)(ClassifierVictim(model), inputs, labels, torch.tensor([radius]))
    bim = BIM(epsilon=radius, norm="l2", steps=5, stop=False)
    found = bim.run(target, target.inputs, labels, bounds=None, movable=target.movable)
    assert torch.allclose(found.adversarial - target.inputs, ascent.offset, atol=1e-6 * radius, rtol=1e-4)


@pytest.mark.parametrize("attack", [PGD(epsilon=1.0, norm="l2"), DeepFool(), CW(c=1.0, searches=3, steps=50)])
def test_a_noisy_text_model_is_attacked_over_shared_draws(attack: GradientAttack) -> None:
    model = linear()
    model.fill(noise=GaussianNoise(0.02, (EMBEDDINGS,)))
    assert model.stochastic
    target, labels = target_of(model, TEXTS[0])
    first, again = (
        attack.run(target, target.inputs, labels, bounds=None, movable=target.movable, draws=6, fresh=40)
        for _ in range(2)
    )
    assert torch.equal(first.adversarial, again.adversarial)
    assert float(first.fooled) > 0.2  # At the boundary itself half of fresh draws say so.
