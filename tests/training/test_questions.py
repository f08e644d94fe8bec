"""Training to answer questions: through the same trainer, chosen by F1, continued after a kill."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import question_toys
import torch
import training_toys as toys
from children import descend_questions, train_questions

from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import Answer, Example
from isthmus.defences import Defence
from isthmus.inference.question_answering import answer
from isthmus.models import load_model
from isthmus.summaries.questions import evaluate_answers
from isthmus.training import TrainingSettings, train
from isthmus.training.examples import ExampleStore
from isthmus.training.questions import EncodedWindows, evaluate_windows
from isthmus.training.settings import settings_for

QUICK = TrainingSettings(precision="fp32", epochs=4, batch_size=8, learning_rate=1e-2, log_every=5)


def test_it_learns_to_point_at_the_answer(tmp_path: Path) -> None:
    data = question_toys.splits()
    before = evaluate_answers(question_toys.answerer(), data.dev).overall.f1.estimate
    model = train(data, question_toys.answerer(), settings=QUICK, folder=tmp_path, device="cpu")
    rows = [row for row in toys.rows(tmp_path) if "dev_f1" in row]
    noted = {"dev_information", "train_information"}
    assert [set(row) - noted for row in rows] == [{"step", "epoch", "dev_f1", "dev_exact_match", "dev_loss"}] * 4
    losses = [row["loss"] for row in toys.rows(tmp_path) if "loss" in row]
    assert losses[-1] < losses[0] / 2
    found = evaluate_answers(model, data.dev)
    assert found.overall.f1.estimate == pytest.approx(max(row["dev_f1"] for row in rows))
    assert found.overall.f1.estimate > max(0.8, before)
    again = load_model(tmp_path / "model")
    assert answer(again, data.dev.examples) == answer(model, data.dev.examples)
    assert not (tmp_path / "checkpoints").exists()


def test_a_row_is_a_window_and_its_label_the_answers_tokens() -> None:
    model = question_toys.answerer()
    data = question_toys.dataset("train", 30)
    encoded = EncodedWindows(model, data.examples)
    assert len(encoded) == len(encoded.windows) > len(data)
    answered = set()
    for batch in encoded.batches(7, torch.device("cpu")):
        assert batch.labels.shape == (len(batch), 2)
        assert batch.inputs["input_ids"].shape[1] == batch.inputs["attention_mask"].sum(1).max()
    items = [encoded[index] for index in range(len(encoded))]
    for item in items:
        start, end = item["label"]
        if (start, end) != (0, 0):
            (true,) = item["example"].label
            assert model.tokenizer.decode(item["input_ids"][start : end + 1].tolist()) == true.text
            answered.add(item["example"].id)
    assert len(answered) == len(data), "every answer lies in some window"
    assert any(item["label"] == (0, 0) for item in items)


def test_the_figures_of_parts_add_up_to_those_of_the_whole() -> None:
    model = question_toys.answerer()
    dev = EncodedWindows(model, question_toys.dataset("dev", 11).examples)
    parts: list[torch.Tensor] = []

    def record(counts: torch.Tensor) -> torch.Tensor:
        parts.append(counts)
        return counts

    whole = evaluate_windows(model, dev, 4, autocast=contextlib.nullcontext, total=record)
    for part in range(3):
        evaluate_windows(model, dev, 4, autocast=contextlib.nullcontext, part=part, parts=3, total=record)
    assert torch.allclose(parts[0], parts[1] + parts[2] + parts[3])
    with torch.no_grad():
        (batch,) = dev.batches(1000, torch.device("cpu"))
        logits = model(**batch.inputs).logits
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
    assert whole.loss == pytest.approx(float(expected), rel=1e-5)
    assert whole.score == whole.f1


def test_the_best_weights_are_those_of_the_best_f1(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=6, learning_rate=5e-2)
    data = question_toys.splits(32, 12)
    model = train(data, question_toys.answerer(), settings=settings, folder=tmp_path, device="cpu")
    scores = [row["dev_f1"] for row in toys.rows(tmp_path) if "dev_f1" in row]
    assert evaluate_answers(model, data.dev).overall.f1.estimate == pytest.approx(max(scores))


@pytest.mark.parametrize("size", [16, 13])
def test_accumulated_windows_equal_one_large_batch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    data = question_toys.splits(size, 6)
    large = replace(QUICK, epochs=2, learning_rate=0.3, batch_size=12, group_by_length=False)
    small = replace(large, batch_size=4, accumulation=3)
    models = [train(data, question_toys.answerer(dropout=0.0), settings=s, device="cpu") for s in (large, small)]
    results = [toys.weights(model) for model in models]
    assert toys.largest_difference(*results) < 1e-6
    assert toys.largest_difference(results[0], toys.weights(question_toys.answerer())) > 1e-2


def test_a_killed_training_continues_to_the_same_bits(children: Path, tmp_path: Path) -> None:
    folder = children / "questions"
    assert not (folder / "model").exists()
    recorder = toys.Recorder()
    model = train_questions(folder, recorder)
    whole = train_questions(tmp_path)
    assert recorder.calls[0][0] > 1
    assert toys.same_bits(toys.weights(model), toys.weights(whole))
    assert (folder / "train.jsonl").read_text() == (tmp_path / "train.jsonl").read_text()


def test_two_processes_train_to_the_weights_of_one(
    children: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    alone = descend_questions(tmp_path, batch_size=8)
    both = load_model(children / "together" / "questions" / "model")
    assert toys.largest_difference(toys.weights(alone), toys.weights(both)) < 1e-6
    for row, other in zip(toys.rows(children / "together" / "questions"), toys.rows(tmp_path), strict=True):
        assert toys.flat(row) == pytest.approx(toys.flat(other), rel=1e-4, abs=1e-6)


def test_settings_of_questions_are_the_papers() -> None:
    found = settings_for("qa")
    assert (found.epochs, found.batch_size, found.learning_rate, found.warmup) == (2, 32, 3e-5, 0.0)
    assert settings_for("qa", epochs=5).epochs == 5
    assert settings_for("classification", "minilm") == TrainingSettings()


def test_networks_with_fresh_weights_take_larger_steps() -> None:
    assert settings_for("classification", "lstm").learning_rate == 1e-3
    assert settings_for("classification", "cnn", learning_rate=0.5).learning_rate == 0.5


@dataclass(frozen=True)
class Rephrased(Defence):
    """Replaces the questions of every epoch."""

    def examples(self, model, data, epoch, seed):
        return [replace(example, fields={**example.fields, "question": "plot"}) for example in data]


def test_generated_questions_are_kept_in_files(tmp_path: Path) -> None:
    settings = replace(QUICK, epochs=1)
    data = question_toys.splits(8, 4)
    train(data, question_toys.answerer(), Rephrased(), settings=settings, folder=tmp_path, device="cpu")
    kept = ExampleStore(tmp_path / "examples").latest(0)
    assert kept is not None
    assert [example.label for example in kept] == [example.label for example in data.train]
    assert {example.fields["question"] for example in kept} == {"plot"}


def test_what_cannot_be_trained() -> None:
    data = question_toys.splits(8, 4)
    with pytest.raises(UsageError, match="trains=head is for classifiers"):
        train(data, question_toys.answerer(), settings=replace(QUICK, trains="head"), device="cpu")
    with pytest.raises(DataError, match="holds questions"):
        train(data, toys.classifier(), settings=QUICK, device="cpu")
    with pytest.raises(DataError, match="the model is one for questions"):
        train(toys.splits(8, 4), question_toys.answerer(), settings=QUICK, device="cpu")
    lost = Example("x", {"question": "film", "context": "the plot"}, ())
    with pytest.raises(DataError, match="example x has no answers"):
        EncodedWindows(question_toys.answerer(), [lost])
    none = Example("y", {"question": "film", "context": "the plot"}, (Answer(0, "the"),))
    assert np.array_equal(EncodedWindows(question_toys.answerer(), [none]).labels, [(3, 3)])
