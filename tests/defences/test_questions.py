"""Defences on question answering: the same losses, over the positions of a window."""

from __future__ import annotations

import math
from typing import Any

import defence_toys
import pytest
import question_toys
import torch
import training_toys as toys
from torch.nn import functional

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.core.types import OUTSIDE, Output
from isthmus.defences import Batch, Defence
from isthmus.defences.base import cross_entropy
from isthmus.defences.parts.smoothness import symmetric_kl
from isthmus.inference.question_answering import answer
from isthmus.models import load_model
from isthmus.training import TrainingSettings, train

ON: dict[str, Defence] = {
    "standard": defences.Standard(),
    "label_smoothing": defences.LabelSmoothing(),
    "confidence_penalty": defences.ConfidencePenalty(),
    "freelb": defences.FreeLB(),
    "freelbpp": defences.FreeLBpp(steps=4),
    "rdrop": defences.RDrop(),
    "pgd": defences.PGD(clean=0.3),
    "smart": defences.SMART(mode="released"),
    "alum": defences.ALUM(mode="released"),
    "infobert": defences.InfoBERT(lowest=0.3, highest=0.9),
    "infobert-freelb": defences.InfoBERT(adversary="freelb", lowest=0.3, highest=0.9),
    "infobert-pgd": defences.InfoBERT(adversary="pgd"),
    "infobert-paper": defences.InfoBERT(mode="paper", lowest=0.3, highest=0.9),
    "infobert-auxiliary": defences.InfoBERT(p_t_given_x="auxiliary"),
    "infobert-global": defences.InfoBERT(features="global"),
}
OFF: dict[str, Defence] = {
    "label_smoothing": defences.LabelSmoothing(epsilon=0.0),
    "confidence_penalty": defences.ConfidencePenalty(gamma=0.0),
    "freelb": defences.FreeLB(steps=1, init_magnitude=0.0),
    "pgd": defences.PGD(steps=0),
    "smart": defences.SMART(strength=0.0, proximal=0.0),
    "alum": defences.ALUM(strength=0.0),
    "infobert": defences.InfoBERT(alpha=0.0, beta=0.0),
}


def prepared(defence: Defence, dropout: float = 0.1) -> Any:
    model = question_toys.answerer(dropout=dropout).train()
    defence.prepare(model, question_toys.dataset("train", 5))
    return model


@pytest.mark.parametrize("name", ON)
def test_every_defence_has_finite_gradients(name: str) -> None:
    model = prepared(ON[name])
    batch = question_toys.batch_of(model)
    assert (batch.inputs["attention_mask"] == 0).any()
    found = defence_toys.gradients(ON[name], model, batch)
    assert "backbone.model.qa_outputs.weight" in found
    assert "backbone.model.bert.embeddings.word_embeddings.weight" in found
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    plain = defence_toys.gradients(defences.Standard(), prepared(defences.Standard()), batch)
    assert (name == "standard") == defence_toys.close({k: v for k, v in found.items() if k in plain}, plain)


@pytest.mark.parametrize("name", OFF)
def test_switched_off_it_is_plain_training_to_the_last_bit(name: str) -> None:
    model, plain = prepared(OFF[name]), prepared(defences.Standard())
    batch = question_toys.batch_of(model)
    found, expected = (
        defence_toys.gradients(d, m, batch) for d, m in ((OFF[name], model), (defences.Standard(), plain))
    )
    assert toys.same_bits({key: found[key] for key in expected}, expected)


@pytest.mark.parametrize("name", ["freelb", "smart", "infobert-freelb"])
def test_it_trains_saves_and_loads(name: str, tmp_path: Any) -> None:
    settings = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=1)
    data = question_toys.splits(24, 8)
    model = train(data, question_toys.answerer(), ON[name], settings=settings, folder=tmp_path, device="cpu")
    losses = [row["loss"] for row in toys.rows(tmp_path) if "loss" in row]
    assert sum(losses[-3:]) < sum(losses[:3])
    assert answer(load_model(tmp_path / "model"), data.dev.examples) == answer(model, data.dev.examples)


@pytest.mark.parametrize("defence", [defences.VIB(), defences.VUB()], ids=["vib", "vub"])
def test_a_bottleneck_on_the_pooled_vector_is_refused(defence: Defence) -> None:
    with pytest.raises(UsageError, match="squeezes one vector per text"):
        prepared(defence)


def test_the_loss_is_the_mean_of_both_ends() -> None:
    logits = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, 2], [0, 0], [6, 6]])
    start, end = (functional.cross_entropy(logits[:, side], labels[:, side]) for side in (0, 1))
    found = cross_entropy(Output(logits), Batch({}, labels))
    assert torch.allclose(found, (start + end) / 2)


def test_divergences_are_over_the_length_and_padding_has_no_part_in_them() -> None:
    stream = torch.Generator().manual_seed(1)
    p, q = (torch.randn(4, 2, 6, generator=stream) for _ in range(2))
    padded = [functional.pad(logits, (0, 5), value=OUTSIDE).requires_grad_() for logits in (p, q)]
    assert torch.allclose(symmetric_kl(*padded), symmetric_kl(p, q))
    log_p, log_q = p.log_softmax(-1), q.log_softmax(-1)
    by_hand = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1).mean()
    assert torch.allclose(symmetric_kl(p, q), by_hand, atol=1e-6)
    for gradient in torch.autograd.grad(symmetric_kl(*padded), padded):
        assert torch.isfinite(gradient).all()
        assert (gradient[..., 6:] == 0).all()


def test_smoothing_spreads_doubt_over_the_tokens_and_never_over_padding() -> None:
    model = question_toys.answerer(dropout=0.0)
    batch = question_toys.batch_of(model)
    mask = batch.inputs["attention_mask"].bool()
    (terms,) = defences.LabelSmoothing(epsilon=0.2).losses(model, batch)
    log_p = model(**batch.inputs).logits.log_softmax(-1)
    expected = torch.stack(
        [
            -0.8 * log_p[row, side, batch.labels[row, side]] - 0.2 * log_p[row, side, mask[row]].mean()
            for row in range(len(batch))
            for side in (0, 1)
        ]
    ).mean()
    assert torch.allclose(terms.total(), expected, atol=1e-6)
    assert terms.total() < 100, "a logit of padding would count thousands"


def test_the_confidence_penalty_rewards_the_entropy_over_the_window() -> None:
    model = question_toys.answerer(dropout=0.0)
    batch = question_toys.batch_of(model)
    (terms,) = defences.ConfidencePenalty(gamma=1.0).losses(model, batch)
    lengths = batch.inputs["attention_mask"].sum(1)
    penalty = -float(terms.values["confidence_penalty"].detach())
    assert 0 < penalty <= sum(math.log(int(length)) for length in lengths) / len(lengths)
