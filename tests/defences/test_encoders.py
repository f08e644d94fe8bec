"""Every defence on every kind of encoder."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients
from encoder_cases import ARCHITECTURES, DEFENCES, WORD_LEVEL, built, classifier

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences import Defence
from isthmus.defences.infobert import sentence_vectors, starts_with_cls
from isthmus.models.bottleneck import GaussianBottleneck


@functools.cache
def moved_by_plain_training(architecture: str, bottleneck: bool) -> frozenset[str]:
    """The parameters that plain training of the same model reaches."""
    model = classifier(architecture)
    if bottleneck:
        model.fill(bottleneck=GaussianBottleneck(model.pooled_size))
    return frozenset(gradients(defences.Standard(), model, batch_of(model)))


@pytest.mark.parametrize("name", DEFENCES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_step_has_a_finite_gradient_everywhere(architecture: str, name: str) -> None:
    model, defence = classifier(architecture), DEFENCES[name]
    defence.prepare(model, toys.dataset("train", 6, 0))
    found = gradients(defence, model, batch_of(model))
    assert all(torch.isfinite(value).all() for value in found.values())
    still = {part for part, value in found.items() if not value.any()}
    assert not still - unreachable(architecture)
    assert found.keys() >= moved_by_plain_training(architecture, name.startswith("v"))
    assert any(part.startswith("companions.critic") for part in found) == name.startswith("infobert")
    assert not any(part.startswith(("companions.teacher", "companions.auxiliary")) for part in found)


def unreachable(architecture: str) -> set[str]:
    """What has a gradient of zero, up to rounding: a softmax does not see a constant that is added to all keys."""
    names = {name for name, _ in built(architecture).named_parameters()}
    return {name for name in names if name.endswith(("key.bias", "k.bias", "k_lin.bias", "key_proj.bias"))}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_climb_that_stands_still_is_plain_training(architecture: str) -> None:
    """Through the embeddings instead of the ids, three times with the same dropout: the same gradient."""
    model = classifier(architecture)
    batch = batch_of(model)
    plain = gradients(defences.Standard(), model, batch)
    still: dict[str, Any] = {"step_size": 0.0, "init_magnitude": 0.0}
    for defence in (
        defences.FreeLB(steps=3, **still),
        defences.PGD(steps=2, **still),
        defences.InfoBERT(alpha=0.0, beta=0.0, adversary="freelb", **still),
    ):
        assert close(gradients(defence, model, batch), plain, 1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "defence",
    [
        defences.FreeLB(steps=1, init_magnitude=0.0),
        defences.PGD(steps=0),
        defences.SMART(strength=0.0, proximal=0.0),
        defences.ALUM(strength=0.0),
        defences.InfoBERT(alpha=0.0, beta=0.0),
        defences.InfoBERT(alpha=0.0, beta=0.0, adversary="freelb", steps=1, init_magnitude=0.0),
        defences.VUB(beta=0.0, entropy_weight=0.0, deterministic=True),
    ],
    ids=["freelb", "pgd", "smart", "alum", "infobert", "infobert-freelb", "vub"],
)
def test_switched_off_it_has_the_plain_gradient_to_the_last_bit(architecture: str, defence: Defence) -> None:
    model = classifier(architecture)
    batch = batch_of(model)
    plain = gradients(defences.Standard(), model, batch)
    defence.prepare(model, toys.dataset("train", 6, 0))
    assert toys.same_bits(gradients(defence, model, batch), plain)
    assert not model.companions


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_sentence_is_its_first_token_or_the_mean_of_all(architecture: str) -> None:
    model = classifier(architecture).eval()
    batch = batch_of(model)
    output = model(**batch.inputs, hidden=True)
    assert output.hidden is not None
    mask = batch.inputs["attention_mask"]
    found = sentence_vectors(model, output, mask.unsqueeze(-1))
    has_cls = architecture not in {"t5", *WORD_LEVEL}
    assert starts_with_cls(model.tokenizer) == has_cls
    for row, states in enumerate(output.hidden[-1]):
        expected = states[0] if has_cls else states[mask[row].bool()].mean(dim=0)
        assert torch.allclose(found[row], expected, atol=1e-6)


def test_a_cls_token_that_is_not_the_first_is_not_taken_for_it() -> None:
    tokenizer = toys.tokenizer()
    assert starts_with_cls(tokenizer)
    ending = toys.tokenizer()
    ending.backend_tokenizer.post_processor = type(ending.backend_tokenizer.post_processor)(
        single="$A [CLS]", pair="$A $B [CLS]", special_tokens=[("[CLS]", 2)]
    )
    assert not starts_with_cls(ending)


class Network(torch.nn.Module):
    """A model of vectors: no words, and no pooled vector either."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, vectors: torch.Tensor) -> Output:
        return Output(self.layer(vectors))


@pytest.mark.parametrize("name", DEFENCES)
def test_a_model_without_words_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"word embeddings|pooled vector"):
        DEFENCES[name].prepare(Network(), toys.dataset("train", 6, 0))  # type: ignore[arg-type]


def test_frozen_words_cannot_be_narrowed() -> None:
    model = classifier("lstm")
    model.table.weight.requires_grad_(False)
    data = toys.dataset("train", 6, 0)
    with pytest.raises(UsageError, match="frozen"):
        defences.InfoBERT().prepare(model, data)
    for possible in (defences.InfoBERT(beta=0.0), defences.InfoBERT(features="global")):
        possible.prepare(model, data)
        assert gradients(possible, model, batch_of(model))
