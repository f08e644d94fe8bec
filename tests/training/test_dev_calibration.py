"""The calibration error in the training log is that of the scores."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
import training_toys as toys

from isthmus.core.calibration import expected_calibration_error
from isthmus.models.victims import ClassifierVictim
from isthmus.training import TrainingSettings, train
from isthmus.training.encoded import EncodedExamples
from isthmus.training.evaluation import Selection, evaluate, read_confidence

QUICK = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=4)


def test_it_is_the_error_of_the_scores() -> None:
    model, data = toys.classifier(), toys.dataset("dev", 50, 0)
    batches = EncodedExamples(model, data.examples, data.fields).batches(7, torch.device("cpu"))
    found = evaluate(model, batches, autocast=nullcontext)
    scores = ClassifierVictim(model).scores(data.texts())
    right = scores.argmax(axis=1) == data.label_indices()
    assert found.ece == pytest.approx(expected_calibration_error(scores.max(axis=1), right), abs=1e-6)
    assert found.accuracy == right.mean()


def test_parts_of_several_processes_add_up() -> None:
    model, data = toys.classifier(), toys.dataset("dev", 40, 0)
    parts: list[torch.Tensor] = []

    def take(counts: torch.Tensor) -> torch.Tensor:
        parts.append(counts)
        return counts

    encoded = [EncodedExamples(model, data.examples[at : at + 20], data.fields) for at in (0, 20)]
    for half in encoded:
        evaluate(model, half.batches(8, torch.device("cpu")), autocast=nullcontext, total=take)
    whole = EncodedExamples(model, data.examples, data.fields).batches(8, torch.device("cpu"))
    together = evaluate(model, whole, autocast=nullcontext)
    again = encoded[0].batches(8, torch.device("cpu"))
    summed = evaluate(model, again, autocast=nullcontext, total=lambda _: parts[0] + parts[1])
    assert summed.ece == pytest.approx(together.ece)


@pytest.mark.parametrize("trains", ["all", "head"])
def test_the_log_holds_it(tmp_path: Path, trains: str) -> None:
    import dataclasses

    train(
        toys.splits(), toys.classifier(), settings=dataclasses.replace(QUICK, trains=trains), folder=tmp_path,
        device="cpu",
    )  # fmt: skip
    rows = [row for row in toys.rows(tmp_path) if "dev_accuracy" in row]
    assert rows
    assert all(0 <= row["dev_ece"] <= 1 for row in rows)


def test_every_example_has_its_confidence() -> None:
    model, data = toys.classifier(), toys.dataset("dev", 30, 0)
    encoded = EncodedExamples(model, data.examples, data.fields)
    sure, right = read_confidence(model.train(), encoded.batches(7, torch.device("cpu")), autocast=nullcontext)
    assert model.training
    found = evaluate(model, encoded.batches(7, torch.device("cpu")), autocast=nullcontext)
    assert right.mean() == found.accuracy
    assert expected_calibration_error(sure, right) == pytest.approx(found.ece, abs=1e-6)


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_came_before_the_selection_began_is_forgotten(tmp_path: Path, in_memory: bool) -> None:
    """A worse score than any before is the best of those that may be chosen."""
    selection, model = Selection(None, None if in_memory else tmp_path), toys.classifier()
    selection.judge(1, 0.9, model)
    selection.forget()
    with torch.no_grad():
        model.table.weight.fill_(2.0)
    selection.judge(2, 0.6, model)
    with torch.no_grad():
        model.table.weight.fill_(3.0)
    selection.judge(3, 0.5, model)
    selection.restore(model)
    assert (selection.best_step, selection.best_score) == (2, 0.6)
    assert torch.equal(model.table.weight, torch.full_like(model.table.weight, 2.0))
