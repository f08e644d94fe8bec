"""The noise slot on every encoder, and copies of a row that share what precedes the first noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from isthmus.core.errors import UsageError
from isthmus.models import Classifier, load_model
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise, noise_blocks

ENCODERS = ("bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "albert", "t5")
ALL = (*ENCODERS, "lstm", "cnn")
TEXTS = [
    {"text": "a moving, quiet film"},
    {"text": "the story was very very dull and it was too long!"},
    {"text": ""},
    {"text": "nobody saw it twice"},
]
LABELS = ("negative", "neutral", "positive")
OPTIONS = {"vectors": None, "width": 12, "hidden": 10, "filters": 4}


@pytest.fixture
def classifier(encoder: Callable[[str], Path]) -> Callable[[str], Classifier]:
    def make(name: str) -> Classifier:
        if name in ("lstm", "cnn"):
            texts = [text["text"] for text in TEXTS]
            return Classifier.create(name, LABELS, texts=texts, options=OPTIONS)
        return Classifier.create(encoder(name), LABELS)

    return make


def noisy(model: Classifier, sigma: float = 0.5, layers: tuple[int, ...] | None = None) -> Classifier:
    return model.fill(noise=GaussianNoise(sigma, noise_blocks(model.backbone.depth) if layers is None else layers))


def logits(model: Classifier, keys: torch.Tensor, copies: int = 1) -> torch.Tensor:
    with torch.no_grad(), model.use_keys(keys):
        return model(**model.encode(TEXTS), copies=copies).logits


def test_the_blocks_with_noise():
    assert noise_blocks(12) == noise_blocks(12, 4) == (0, 4, 8)
    assert noise_blocks(12, 3) == (0, 3, 6, 9)
    assert noise_blocks(6) == (0, 2, 4)
    assert noise_blocks(1) == (0,)
    assert noise_blocks(2) == (0, 1)
    with pytest.raises(UsageError, match="at least 1"):
        noise_blocks(6, -1)


@pytest.mark.parametrize("sigma", [-0.1, float("nan"), float("inf")])
def test_a_deviation_that_is_none_is_refused(sigma):
    with pytest.raises(UsageError, match="sigma"):
        GaussianNoise(sigma, (0,))


def test_noise_that_this_encoder_has_no_block_for_is_refused(classifier):
    with pytest.raises(UsageError, match="blocks 0 to 2"):
        noisy(classifier("bert"), layers=(0, 3))


@pytest.mark.parametrize("name", ALL)
def test_without_deviation_it_changes_no_bit_and_draws_nothing(classifier, name):
    model = classifier(name)
    keys = torch.arange(len(TEXTS))
    plain = logits(model, keys)
    assert torch.equal(logits(noisy(model, 0.0), keys), plain)
    assert not model.stochastic
    assert model.slots.noise.stream.count == 0
    assert torch.equal(logits(model, keys, copies=3), plain.repeat_interleave(3, dim=0))


@pytest.mark.parametrize("name", ALL)
def test_copies_are_what_reading_every_copy_from_the_start_gives(classifier, name):
    model = noisy(classifier(name))
    keys = torch.arange(3 * len(TEXTS)) * 7919
    inputs = {name: value.repeat_interleave(3, dim=0) for name, value in model.encode(TEXTS).items()}
    with torch.no_grad(), model.use_keys(keys):
        apart = model(**inputs).logits
    together = logits(model, keys, copies=3)
    assert torch.allclose(together, apart, atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=1e-3)
    assert not model._parts_early


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[3:] * 4], ids=["padded", "of one length"])
def test_rows_may_have_different_numbers_of_copies(classifier, name, texts):
    model = noisy(classifier(name))
    inputs = model.encode(texts)
    if texts is not TEXTS:
        del inputs["attention_mask"]
    for owners in ([0, 3, 3, 1, 3, 1, 0], [2, 1, 0], [3, 2, 1, 0]):
        own = torch.tensor(owners)
        keys = torch.arange(len(own)) * 7919
        with torch.no_grad(), model.use_keys(keys):
            apart = model(**{key: value[own] for key, value in inputs.items()}).logits
            together = model(**inputs, copies=own).logits
        assert torch.allclose(together, apart, atol=1e-5)
    assert not model._parts_early


@pytest.mark.parametrize("name", ["bert", "t5", "deberta-v2"])
def test_as_many_rows_as_tokens_or_as_one_confuse_no_copy(classifier, name):
    model = noisy(classifier(name))
    for rows in (1, 6):  # six rows of six tokens
        inputs = model.encode([TEXTS[3]] * rows)
        assert rows == 1 or inputs["input_ids"].shape == (rows, rows)
        keys = torch.arange(2 * rows)
        with torch.no_grad(), model.use_keys(keys):
            together = model(**inputs, copies=2).logits
            apart = model(**{key: value.repeat_interleave(2, dim=0) for key, value in inputs.items()}).logits
        assert torch.allclose(together, apart, atol=1e-5)


def test_the_first_blocks_are_computed_once_for_all_copies(classifier):
    model = noisy(classifier("bert"), layers=(1,))
    rows: list[int] = []
    for block in model.backbone.blocks():
        block.register_forward_pre_hook(lambda _module, given, **_: rows.append(len(given[0])))
    logits(model, torch.arange(5 * len(TEXTS)), copies=5)
    assert rows == [4, 4, 20]


def test_noise_on_the_embeddings_is_gaussian_and_keyed_by_row(classifier):
    model = noisy(classifier("bert"), sigma=2.0, layers=(EMBEDDINGS,))
    read: list[torch.Tensor] = []
    encoder: Any = model.backbone.model
    encoder.bert.embeddings.register_forward_pre_hook(
        lambda _module, _given, named: read.append(named["inputs_embeds"]), with_kwargs=True
    )
    inputs = {name: value.repeat(50, 1) for name, value in model.encode(TEXTS).items()}
    keys = torch.arange(len(inputs["input_ids"])) + 1000
    with torch.no_grad(), model.use_keys(keys):
        output = model(**inputs)
    noise = (read[0] - model.embed(inputs["input_ids"])) / 2.0
    assert torch.equal(output.embeddings, model.embed(inputs["input_ids"]))
    assert abs(float(noise.mean())) < 0.01
    assert abs(float(noise.std()) - 1) < 0.01
    with torch.no_grad(), model.use_keys(keys[:2]):
        model(**{name: value[:2] for name, value in inputs.items()})
    assert torch.equal(read[1], read[0][:2])


def test_draws_do_not_depend_on_padding(classifier):
    model = noisy(classifier("bert"))
    alone = model.encode(TEXTS[3:])
    with torch.no_grad(), model.use_keys(torch.tensor([3])):
        short = model(**alone).logits
    assert torch.allclose(logits(model, torch.arange(4))[3], short[0], atol=1e-5)


def test_it_is_saved_with_the_model(classifier, tmp_path):
    model = noisy(classifier("bert"), 0.25, (0, 2))
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.slots.noise.config() == {"sigma": 0.25, "layers": [0, 2]}
    assert loaded.stochastic
    assert torch.equal(logits(loaded, torch.arange(4)), logits(model, torch.arange(4)))
