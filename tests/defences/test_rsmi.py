"""RSMI's training step: whose gradient, which words, and what is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients

from isthmus.core.errors import TrainingError, UsageError
from isthmus.core.types import QuestionAnswering
from isthmus.defences import RSMI, Batch, Standard
from isthmus.inference.two_step import TwoStep
from isthmus.inference.two_step_victim import TwoStepVictim
from isthmus.models import Classifier, load_victim, masking
from isthmus.models.victims import wrap
from isthmus.training import TrainingSettings, train

DATA = toys.dataset("train", 8, 0)


def prepared(defence: RSMI, dropout: float = 0.0) -> Classifier:
    model = toys.classifier(dropout=dropout).train()
    defence.prepare(model, DATA)
    return model


def own_gradients(model, batch: Batch) -> torch.Tensor:
    """Each text's gradient, from a batch of its own."""
    embeddings = model.embed(batch.inputs["input_ids"]).detach().requires_grad_()
    rows = []
    for row in range(len(batch)):
        one = slice(row, row + 1)
        output = model(batch.inputs["input_ids"][one], batch.inputs["attention_mask"][one], None, embeddings[one])
        loss = torch.nn.functional.cross_entropy(output.logits, batch.labels[one])
        rows.append(torch.autograd.grad(loss, embeddings)[0][one])
    return torch.cat(rows)


def read_by(model, defence: RSMI, batch: Batch) -> list[torch.Tensor]:
    """The embeddings of every pass of a step."""
    seen = []
    handle = model.backbone.model.bert.embeddings.LayerNorm.register_forward_pre_hook(
        lambda _module, given: seen.append(given[0].detach())
    )
    list(defence.losses(model, batch))
    handle.remove()
    return seen


@pytest.mark.parametrize(
    ("mode", "scale", "size"),
    [("paper", 0.5, 0.5), ("released", 0.5, 0.5 / 6), ("paper", None, 1 / 16), ("released", None, 1 / 6)],
)
def test_the_step_in_the_embeddings_is_each_texts_own_gradient(mode, scale, size):
    defence = RSMI(sigma=0.0, masked=0, beta=2.0, scale=scale, mode=mode)
    model = prepared(defence)
    batch = batch_of(model)
    plain, moved = read_by(model, defence, batch)
    expected = 2.0 * size * own_gradients(model, batch)
    # Against the largest shift: a step of another size must not pass for rounding.
    assert (moved - plain - expected).abs().max() < 1e-4 * expected.abs().max() + 1e-7


def test_the_default_step_is_the_released_one_of_sixteen_texts():
    default, released = RSMI(sigma=0.0, masked=0), RSMI(sigma=0.0, masked=0, mode="released")
    model = prepared(default)
    batch = batch_of(model, 16)
    assert torch.equal(read_by(model, default, batch)[1], read_by(model, released, batch)[1])


def test_the_words_of_largest_gradient_are_masked_and_no_others():
    defence = RSMI(sigma=0.0, masked=2, beta=0.0)
    model = prepared(defence)
    batch = batch_of(model)
    plain, moved = read_by(model, defence, batch)
    ids = batch.inputs["input_ids"]
    norms = own_gradients(model, batch).norm(dim=-1).masked_fill(ids < 4, -1.0)
    expected = torch.zeros_like(ids, dtype=torch.bool).scatter(1, norms.topk(2).indices, True)
    changed = (plain - moved).abs().sum(dim=-1) > 0
    assert torch.equal(changed, expected)
    mask = model.embed(torch.tensor(model.tokenizer.mask_token_id)).detach()
    shift = mask - model.embed(ids).detach()
    assert torch.allclose((moved - plain)[changed], shift[changed], atol=1e-6)


def test_more_masks_than_words_mask_every_word():
    defence = RSMI(sigma=0.0, masked=30, candidates=30, beta=0.0)
    model = prepared(defence)
    batch = batch_of(model)
    ids = batch.inputs["input_ids"]
    plain, moved = read_by(model, defence, batch)
    assert torch.equal((plain - moved).abs().sum(dim=-1) > 0, ids > 4)


def test_random_masks_come_from_the_batchs_own_stream():
    defence = RSMI(sigma=0.0, masking="random", beta=0.0)
    model = prepared(defence)
    batch = batch_of(model)
    (first,) = read_by(model, defence, batch)
    torch.manual_seed(99)
    (again,) = read_by(model, defence, batch)
    batch.seed += 1
    (other,) = read_by(model, defence, batch)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_gradient_is_taken_without_dropout_and_with_noise():
    defence = RSMI(sigma=0.5, masked=0, beta=1.0)
    model = prepared(defence, dropout=0.5)
    batch = batch_of(model)
    before = model.slots.noise.stream.count
    plain, _ = read_by(model, defence, batch)
    again, _ = read_by(model, defence, batch)
    assert torch.equal(plain, again)  # the first pass of the step, before LayerNorm and dropout
    assert model.slots.noise.stream.count == before + 2 * 2 * len(model.slots.noise.layers)
    assert model.training
    encoder: Any = model.backbone.model
    assert encoder.dropout.training


def test_noise_alone_needs_no_gradient_and_draws_nothing_of_anybody_else():
    defence = RSMI(sigma=1e-6, masked=0, beta=0.0)
    noisy, plain = prepared(defence, dropout=0.3), toys.classifier(dropout=0.3).train()
    batch = batch_of(plain)
    assert len(read_by(noisy, defence, batch)) == 1
    assert close(gradients(defence, noisy, batch), gradients(Standard(), plain, batch), 1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": -1.0}, "sigma"),
        ({"beta": float("nan")}, "beta"),
        ({"scale": -0.5}, "scale"),
        ({"every": -1}, "every"),
        ({"every": 2, "layers": (0,)}, "not both"),
        ({"masked": 6}, "candidates"),
        ({"k0": 0}, "k0"),
        ({"level": 1.5}, "level"),
        ({"accept_rule": "min_count", "min_count": 6}, "min_count"),
        ({"mode": "code"}, "mode"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        RSMI(**settings)


def test_blocks_are_chosen_by_rule_or_by_number():
    def blocks(**settings) -> tuple[int, ...]:
        return prepared(RSMI(**settings)).slots.noise.layers

    assert blocks() == (0, 1)
    assert blocks(every=2) == (0,)
    assert blocks(layers=(1,)) == (1,)
    with pytest.raises(UsageError, match="blocks 0 to 1"):
        blocks(layers=(2,))


def test_the_trained_model_answers_as_the_settings_say():
    settings = {"masked": 3, "candidates": 4, "masking": "random", "k0": 7, "k1": 9, "aggregate": "vote"}
    rule = {"accept_rule": "min_count", "level": 0.9, "min_count": 6}
    inference = prepared(RSMI(**settings, **rule)).deployment
    assert isinstance(inference, TwoStep)
    assert {name: getattr(inference, name) for name in settings | rule} == settings | rule
    assert inference.find_accepted().tolist() == [False] * 6 + [True] * 2


def test_questions_are_refused():
    model = toys.classifier()
    model.task = QuestionAnswering()
    with pytest.raises(UsageError, match="classes"):
        RSMI().prepare(model, DATA)


def test_a_gradient_that_is_no_number_stops_training_with_the_step():
    model = toys.classifier()
    with torch.no_grad():
        model.table.weight[10:] = torch.inf
    settings = TrainingSettings(precision="fp32", epochs=1, batch_size=8)
    with pytest.raises(TrainingError, match="cross_entropy became nan at step 1"):
        train(toys.splits(16, 8), model, RSMI(), settings=settings, device="cpu")


def test_what_is_deployed_is_what_the_folder_gives(tmp_path):
    defence = RSMI(sigma=0.2, masked=1, k0=3, k1=7, aggregate="vote")
    settings = TrainingSettings(precision="fp32", epochs=1, batch_size=8, learning_rate=1e-2)
    model = train(toys.splits(32, 8), toys.classifier(), defence, settings=settings, folder=tmp_path, device="cpu")
    deployed = wrap(model, device="cpu")
    assert isinstance(deployed, TwoStepVictim)
    texts, keys = [example.texts for example in DATA], np.arange(len(DATA), dtype=np.uint64)
    scores = deployed.scores(texts, keys)
    loaded = load_victim(tmp_path, device="cpu")
    assert isinstance(loaded, TwoStepVictim)
    assert np.array_equal(loaded.scores(texts, keys), scores)
    assert loaded.settings == defence.inference()


def test_switched_off_it_leaves_the_model_alone():
    defence = RSMI(sigma=0.0, masked=0, beta=0.0)
    model = prepared(defence)
    assert model.is_stock
    assert model.deployment is None


def test_words_are_found_in_word_level_networks_too():

    texts = [example.texts["text"] for example in DATA]
    options = {"vectors": None, "width": 8, "hidden": 6}
    for name in ("lstm", "cnn"):
        model = Classifier.create(name, ("bad", "good"), texts=texts, options=options).train()
        defence = RSMI(masked=3)
        defence.prepare(model, DATA)
        batch = batch_of(model)
        (terms,) = list(defence.losses(model, batch))
        terms.total().backward()
        assert float(terms.total()) > 0
        words = masking.mask_of_words(model, batch.inputs["input_ids"], batch.inputs["attention_mask"])
        assert words.sum() > 3 * len(batch)
