"""Training of the head alone, on vectors computed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.models import load_model
from isthmus.training import TrainingSettings, train
from isthmus.training.head import vectors_of
from isthmus.training.head_only import HeadOnly

SETTINGS = TrainingSettings(precision="fp32", epochs=30, batch_size=16, learning_rate=1e-2, trains="head", log_every=5)


def test_vectors_and_head_are_the_classifier() -> None:
    model = toys.classifier()
    data = toys.dataset("train", 20, 0)
    resident = vectors_of(model, data, 7)
    with torch.no_grad():
        whole = torch.cat([model(**model.encode([example.texts])).logits for example in data])
        assert torch.allclose(HeadOnly(model)(**resident.inputs).logits, whole, atol=1e-6)
    assert resident.labels.tolist() == [example.label for example in data]


@pytest.mark.parametrize("defence", [defences.Standard(), defences.VIB(), defences.VUB(), defences.LabelSmoothing()])
def test_only_the_head_moves_and_it_learns(defence: Any, tmp_path: Path) -> None:
    before = toys.weights(toys.classifier(width=32))
    splits = toys.splits(128, 64)
    model = train(splits, toys.classifier(width=32), defence, settings=SETTINGS, folder=tmp_path, device="cpu")
    after = toys.weights(model)
    moved = {name for name in before if name in after and not torch.equal(before[name], after[name])}
    assert moved <= {"backbone.model.classifier.weight", "backbone.model.classifier.bias"}
    losses = [row["loss"] for row in toys.rows(tmp_path) if "loss" in row]
    assert losses[-1] < losses[0]
    loaded = load_model(tmp_path / "model")
    inputs = model.encode([{"text": "a lovely film"}])
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)
    assert not (tmp_path / "checkpoints").exists()


class CountsDraws(toys.Recorder):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.draws: list[int] = []

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        self.draws.append(self.model.slots.bottleneck.stream.count)


def test_the_code_is_drawn_from_the_first_step_on() -> None:
    settings = TrainingSettings(precision="fp32", epochs=2, batch_size=16, trains="head")
    counts = CountsDraws(model := toys.classifier())
    train(toys.splits(64, 16), model, defences.VIB(), settings=settings, progress=counts, device="cpu")
    assert counts.draws == list(range(1, 9))


@pytest.mark.parametrize("defence", [defences.VIB(beta=1e-2), defences.VUB(beta=1e-2)], ids=["vib", "vub"])
def test_the_papers_schedule(defence: Any, tmp_path: Path) -> None:
    """Adam with a first moment of 0.5, 1e-4 that falls by 3 % every two epochs, batches of 16 (and fewer epochs)."""
    settings = TrainingSettings(
        precision="fp32", trains="head", epochs=20, batch_size=16, learning_rate=1e-4, warmup=0.0, optimizer="adam",
        betas=(0.5, 0.999), weight_decay=0.0, max_grad_norm=0.0, schedule="staircase", decay=0.97, decay_epochs=2,
        log_every=1000,
    )  # fmt: skip
    model = train(
        toys.splits(64, 32), toys.classifier(width=32), defence, settings=settings, folder=tmp_path, device="cpu"
    )
    rows = [row for row in toys.rows(tmp_path) if "learning_rate" in row]
    assert len(rows) == 20
    rates = [1e-4 * 0.97 ** ((row["epoch"] - 0.1) // 2) for row in rows]
    assert [row["learning_rate"] for row in rows] == pytest.approx(rates)
    assert sum(row["loss"] for row in rows[-5:]) < sum(row["loss"] for row in rows[:5])
    assert model.slots.bottleneck is not None


def test_it_repeats_to_the_last_bit() -> None:
    runs = [
        toys.weights(train(toys.splits(), toys.classifier(), defences.VUB(), settings=SETTINGS, seed=4, device="cpu"))
        for _ in range(2)
    ]
    assert toys.same_bits(*runs)


@pytest.mark.parametrize("defence", [defences.FreeLB(), defences.ALUM(), defences.VUB(adversary="pgd")])
def test_what_moves_embeddings_is_refused(defence: Any) -> None:
    with pytest.raises(UsageError, match="cannot train the head alone"):
        train(toys.splits(), toys.classifier(), defence, settings=SETTINGS, device="cpu")


def test_inputs_are_cut_at_the_length_asked_for() -> None:
    settings = TrainingSettings(max_tokens=6, epochs=1, precision="fp32")
    with pytest.raises(UsageError, match="max_tokens"):
        TrainingSettings(max_tokens=0)
    assert settings.max_tokens == 6
