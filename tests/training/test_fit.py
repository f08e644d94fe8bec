import json
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus.core.errors import DataError, RunError, TrainingError, UsageError
from isthmus.core.types import Example
from isthmus.data import Dataset, Splits, load_data
from isthmus.defences import Batch, Defence, Terms
from isthmus.training import TrainingSettings, train

SHORT = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=1, checkpoint_every=2)


def trained(defence=None, *, settings=SHORT, seed=0, data=None, dropout=0.1, device="cpu", **rest):
    data = toys.splits(32, 16) if data is None else data
    model = toys.classifier(dropout=dropout)
    return train(data, model, defence, settings=settings, seed=seed, device=device, **rest)


def test_it_learns_and_says_how(tmp_path, capfd):
    settings = replace(SHORT, epochs=6, batch_size=16, log_every=3)
    progress = toys.Recorder()
    numpy_state: Any = np.random.get_state()
    before = random.getstate(), numpy_state[1].copy(), torch.get_rng_state()
    model = trained(settings=settings, data=toys.splits(64, 32), folder=tmp_path, progress=progress)
    assert capfd.readouterr() == ("", "")
    assert not model.training
    rows = toys.rows(tmp_path)
    logged = [row for row in rows if "loss" in row]
    assert [row["step"] for row in logged] == sorted({*range(3, 25, 3), *range(4, 25, 4), *range(2, 25, 2)})
    assert set(logged[0]) == {"step", "epoch", "cross_entropy", "loss", "learning_rate", "gradient_norm"}
    evaluated = [row for row in rows if "dev_accuracy" in row]
    assert [(row["step"], row["epoch"]) for row in evaluated] == [(4 * epoch, epoch) for epoch in range(1, 7)]
    assert max(row["dev_accuracy"] for row in evaluated) > 0.8
    assert [call[:2] for call in progress.calls if call[0] == 24][-1] == (24, 24)
    assert progress.calls[-1][2]["dev_accuracy"] == evaluated[-1]["dev_accuracy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "train.jsonl"]
    assert random.getstate() == before[0]
    numpy_state = np.random.get_state()
    assert (numpy_state[1] == before[1]).all()
    assert torch.equal(torch.get_rng_state(), before[2])


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    first, again, other = trained(), trained(), trained(seed=1)
    assert toys.same_bits(toys.weights(first), toys.weights(again))
    assert not toys.same_bits(toys.weights(first), toys.weights(other))


def test_a_folder_changes_nothing(tmp_path):
    assert toys.same_bits(toys.weights(trained()), toys.weights(trained(folder=tmp_path)))


@pytest.mark.parametrize("size", [32, 29])
def test_accumulated_passes_equal_one_large_batch(size, monkeypatch):
    # Adam's division would blow up rounding where a gradient is nearly zero.
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    data = toys.splits(size, 8)
    large = replace(SHORT, learning_rate=0.3, batch_size=12, group_by_length=False)
    small = replace(large, batch_size=4, accumulation=3)
    results = [toys.weights(trained(settings=s, data=data, dropout=0.0)) for s in (large, small)]
    assert toys.largest_difference(*results) < 1e-6
    assert toys.largest_difference(results[0], toys.weights(toys.classifier())) > 1e-2


@dataclass(frozen=True)
class MeanLabel(Defence):
    """Its gradient is the mean label in every entry of the table, so the norm shows how passes were weighted."""

    def losses(self, model, batch):
        yield Terms({"mean_label": batch.labels.float().mean() * model.table.weight.sum()})


def test_every_example_of_a_step_counts_the_same_whatever_pass_it_is_in(tmp_path):
    labels = toys.splits(20, 4)
    settings = replace(SHORT, epochs=1, batch_size=8, accumulation=3, max_grad_norm=0.0)
    trained(MeanLabel(), settings=settings, data=labels, folder=tmp_path)
    (row,) = [row for row in toys.rows(tmp_path) if "loss" in row]
    mean = np.mean(labels.train.label_indices())
    entries = toys.classifier().table.weight.numel()
    assert row["gradient_norm"] == pytest.approx(mean * entries**0.5, rel=1e-5)


def test_the_walk_reaches_the_middle_of_a_step(tmp_path):
    trained(toys.Ascent(), folder=tmp_path)
    assert all("adversarial" in row for row in toys.rows(tmp_path) if "loss" in row)


@dataclass(frozen=True)
class WatchBatches(Defence):
    seen: str = ""

    def losses(self, model, batch: Batch):
        ids = batch.inputs["input_ids"]
        lengths = batch.inputs["attention_mask"].sum(1)
        texts = [example.fields["text"] for example in batch.examples]
        encoded = model.encode([{"text": text} for text in texts])
        assert torch.equal(encoded["input_ids"], ids)
        assert ids.shape[1] == lengths.max()
        assert batch.ids == tuple(example.id for example in batch.examples)
        assert [example.label for example in batch.examples] == batch.labels.tolist()
        with Path(self.seen).open("a") as stream:
            stream.write(json.dumps([list(batch.ids), lengths.tolist(), batch.seed]) + "\n")
        yield from super().losses(model, batch)


@pytest.mark.parametrize("grouped", [True, False])
def test_batches_hold_every_example_once_an_epoch_and_are_never_padded_past_their_longest(tmp_path, grouped):
    path = tmp_path / "seen"
    settings = replace(SHORT, group_by_length=grouped)
    trained(WatchBatches(str(path)), settings=settings, data=toys.splits(400, 8))
    batches = [json.loads(line) for line in path.read_text().splitlines()]
    epochs = [batches[:50], batches[50:]]
    for epoch in epochs:
        assert sorted(one for ids, _, _ in epoch for one in ids) == sorted(f"train:{row}" for row in range(400))
    assert epochs[0] != epochs[1]
    assert len({seed for _, _, seed in batches}) == len(batches)
    spread = np.mean([max(lengths) - min(lengths) for _, lengths, _ in batches])
    assert (spread < 3) == grouped


def test_early_stopping_ends_the_run_and_the_best_weights_come_back(tmp_path):
    @dataclass(frozen=True)
    class Reverses(Defence):
        """Learns for two epochs, then unlearns."""

        def losses(self, model, batch):
            (terms,) = super().losses(model, batch)
            sign = 1.0 if int((tmp_path / "train.jsonl").read_text().count("dev_accuracy")) < 4 else -5.0
            yield Terms({"cross_entropy": sign * terms.total()})

    settings = replace(SHORT, epochs=12, batch_size=16, patience=2, schedule="constant")
    data = toys.splits(64, 32)
    model = trained(Reverses(), settings=settings, data=data, folder=tmp_path)
    accuracies = [row["dev_accuracy"] for row in toys.rows(tmp_path) if "dev_accuracy" in row]
    best = accuracies.index(max(accuracies))
    assert len(accuracies) == best + 1 + settings.patience < 12
    assert accuracies[-1] < max(accuracies)
    with torch.no_grad():
        predicted = model(**model.encode(data.dev.texts())).logits.argmax(-1)
    assert (predicted.numpy() == data.dev.label_indices()).mean() == max(accuracies)


def test_patience_may_end_within_an_epoch(tmp_path):
    settings = replace(SHORT, evaluate_every=1, checkpoint_every=1, patience=2, learning_rate=1e-9)
    trained(settings=settings, folder=tmp_path)
    evaluated = [row["step"] for row in toys.rows(tmp_path) if "dev_accuracy" in row]
    assert evaluated == [1, 2, 3]
    assert not (tmp_path / "checkpoints").exists()


def test_evaluating_more_often_does_not_change_the_weights_on_the_way(tmp_path):
    often = trained(settings=replace(SHORT, evaluate_every=1), folder=tmp_path / "often")
    rows = [row for row in toys.rows(tmp_path / "often") if "loss" in row]
    trained(folder=tmp_path / "seldom")
    assert rows == [row for row in toys.rows(tmp_path / "seldom") if "loss" in row]
    assert not often.training


@dataclass(frozen=True)
class BreaksAt(Defence):
    step: int = 6

    def losses(self, model, batch):
        (terms,) = super().losses(model, batch)
        broken = (model.count if hasattr(model, "count") else 0) + 1
        model.count = broken
        bad = {"fragile": terms.total() * float("nan")} if broken == self.step else {}
        yield Terms({**terms.values, **bad})


def test_a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_checkpoint(tmp_path):
    with pytest.raises(TrainingError, match="fragile became nan at step 6"):
        trained(BreaksAt(6), folder=tmp_path)
    kept = sorted(path.name for path in (tmp_path / "checkpoints" / "epoch-0").iterdir())
    assert kept == ["checkpoint-2", "checkpoint-4"]
    assert max(row["step"] for row in toys.rows(tmp_path)) == 5


def test_a_gradient_that_is_not_a_number_stops_the_run():
    @dataclass(frozen=True)
    class Root(Defence):
        def losses(self, model, batch):
            (terms,) = super().losses(model, batch)
            yield Terms({"root": terms.total() + (0 * model.table.weight.sum()).sqrt()})

    with pytest.raises(TrainingError, match="gradient norm became nan at step 1"):
        trained(Root())


def test_examples_are_replaced_before_each_epoch_and_the_schedule_spans_them_all(tmp_path):
    notes = tmp_path / "notes"
    settings = replace(SHORT, epochs=3, warmup=0.0)
    trained(toys.FreshWords(str(notes)), settings=settings, folder=tmp_path)
    assert notes.read_text().split("\n") == ["0 False", "1 False", "2 False", ""]
    assert sorted(path.name for path in (tmp_path / "examples").iterdir()) == ["0.jsonl", "2.jsonl"]
    rows = toys.rows(tmp_path)
    assert [(row["step"], row["examples"]) for row in rows if "examples" in row] == [(0, 32), (8, 16)]
    logged = [row for row in rows if "loss" in row]
    assert [row["step"] for row in logged] == list(range(1, 11))
    middles = [(step + 0.5) / 4 for step in range(8)] + [2 + 0.25, 2 + 0.75]
    assert [row["learning_rate"] for row in logged] == pytest.approx([1e-2 * (1 - done / 3) for done in middles])
    written = [json.loads(line) for line in (tmp_path / "examples" / "2.jsonl").read_text().splitlines()]
    assert written[0]["fields"].keys() == {"text", "was"}


@dataclass(frozen=True)
class SameExamples(Defence):
    """Hands back what it was given: stages must not disturb the optimiser."""

    def examples(self, model, data, epoch, seed):
        return tuple(data)


def test_the_optimiser_is_carried_from_stage_to_stage(tmp_path):
    staged = trained(SameExamples(), dropout=0.0, folder=tmp_path / "a")
    plain = trained(dropout=0.0, folder=tmp_path / "b")
    assert toys.same_bits(toys.weights(staged), toys.weights(plain))


def test_a_defence_that_makes_no_examples_or_odd_ones_is_an_error():
    @dataclass(frozen=True)
    class Nothing(Defence):
        def examples(self, model, data, epoch, seed):
            return ()

    @dataclass(frozen=True)
    class WrongLabel(Defence):
        def examples(self, model, data, epoch, seed):
            return (Example("x", {"text": "a film"}, 7),)

    with pytest.raises(TrainingError, match="Nothing made no training examples for epoch 0"):
        trained(Nothing())
    with pytest.raises(DataError, match="label 7"):
        trained(WrongLabel())


def test_a_model_with_other_label_order_is_trained_on_aligned_labels():
    data = toys.splits(32, 16)
    task = replace(toys.TASK, labels=("good", "bad"))
    flipped = Splits(
        "toy",
        {
            name: Dataset("toy", name, task, tuple(replace(e, label=1 - int(e.label)) for e in split))
            for name, split in data.items()
        },
    )
    assert toys.same_bits(toys.weights(trained(data=data)), toys.weights(trained(data=flipped)))


def test_one_file_is_cut_as_the_command_line_cuts_it(tmp_path):
    lines = [f"{each.texts['text']},{toys.TASK.labels[int(each.label)]}" for each in toys.dataset("all", 40, 0)]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *lines]))
    data = load_data(tmp_path / "x.csv")
    model = trained(data=data)
    cut = data.for_training(0)
    assert {part: len(cut[part]) for part in cut} == {"train": 32, "dev": 4, "test": 4}
    assert toys.same_bits(toys.weights(model), toys.weights(trained(data=cut)))


def test_without_a_dev_split_a_tenth_of_train_becomes_it(tmp_path):
    data = Splits("toy", {"train": toys.dataset("train", 40, 0)})
    trained(data=data, folder=tmp_path)
    assert sum("dev_accuracy" in row for row in toys.rows(tmp_path)) == 2


def test_a_folder_with_another_unfinished_training_is_refused(tmp_path):
    with pytest.raises(TrainingError):
        trained(BreaksAt(6), folder=tmp_path)
    with pytest.raises(UsageError, match=r"defence was 'BreaksAt\(step=6\)' and is now 'Standard\(\)'"):
        trained(folder=tmp_path)
    with pytest.raises(UsageError, match=r"learning_rate was 0.01 and is now 0.02"):
        trained(BreaksAt(6), settings=replace(SHORT, learning_rate=0.02), folder=tmp_path)


def test_bad_arguments_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match="device"):
        trained(folder=tmp_path / "run", device="cuda:1")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no cuda here: this machine offers cpu"):
            trained(folder=tmp_path / "run", device="cuda")
    empty = Splits("toy", {"train": Dataset("toy", "train", toys.TASK, ())})
    with pytest.raises(DataError, match="no training examples"):
        trained(data=empty, folder=tmp_path / "run")
    pairs = load_data([("a warm film", "it is warm", "good"), ("a dull plot", "it is dull", "bad")], "all")
    mixed = Splits("toy", {"train": toys.dataset("train", 8, 0), "dev": pairs})
    with pytest.raises(DataError, match="train of toy has the fields text, and dev has premise, hypothesis"):
        trained(data=mixed, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_clear_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="permission"):
        trained(folder=tmp_path / "run")


def test_a_file_in_the_way_of_the_folder_is_one_clear_error(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(RunError, match="a file is in the way"):
        trained(folder=tmp_path / "run")


def test_bf16_trains_under_autocast_with_float32_weights(children):
    losses = [row["loss"] for row in toys.rows(children / "bf16") if "loss" in row]
    assert sum(losses[-4:]) < sum(losses[:4])


def test_fp16_asked_for_from_outside_is_refused(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(UsageError, match="fp16"):
        trained()


def test_bf16_asked_for_from_outside_leaves_the_precision_to_the_settings(monkeypatch):
    plain = trained()
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert toys.same_bits(toys.weights(trained(settings=replace(SHORT, precision="fp32"))), toys.weights(plain))


def test_odd_texts_train_and_one_the_tokenizer_cannot_read_is_named():
    texts = ["", " ", "!!! ??? ...", "\U0001f600\u200d\U0001f600", "\u05e9\u05dc\u05d5\u05dd", "film " * 2000, "\x00"]
    odd = tuple(Example(f"train:{row}", {"text": text}, row % 2) for row, text in enumerate(texts * 2))
    data = Splits("odd", {"train": Dataset("odd", "train", toys.TASK, odd), "dev": toys.dataset("dev", 8, 0)})
    assert trained(data=data) is not None
    broken = (*odd, Example("train:99", {"text": "a \ud800 film"}, 1))
    with pytest.raises(DataError, match="train:99"):
        trained(data=Splits("odd", {"train": Dataset("odd", "train", toys.TASK, broken), "dev": data.dev}))


def test_auto_precision_never_ends_the_process():
    assert trained(settings=replace(SHORT, precision="auto", epochs=1, batch_size=32)) is not None


def test_averaged_weights_are_for_images():
    with pytest.raises(UsageError, match="average_weights is for images"):
        train(toys.splits(8, 4), settings=TrainingSettings(average_weights=0.9))
