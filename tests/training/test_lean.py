"""The lean loop takes the Trainer's steps: same order, schedule, stages, log and weights."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import training_toys as toys

from isthmus import defences
from isthmus.training import TrainingSettings, lean, train
from isthmus.training.encoded import BLOCK, EncodedExamples

SETTINGS = TrainingSettings(
    precision="fp32", epochs=3, batch_size=8, learning_rate=1e-2, log_every=3, checkpoint_every=4, patience=3
)


def trained(folder, monkeypatch, *, is_lean, defence=None, settings=SETTINGS, progress=None, model=None):
    monkeypatch.setattr(lean, "is_lean", lambda device, start: is_lean)
    if is_lean:  # The Trainer writes every checkpoint too.
        monkeypatch.setattr(lean, "_USUAL", 0.0)
    model = toys.classifier(dropout=0.0) if model is None else model
    options = {"settings": settings, "folder": folder, "progress": progress, "device": "cpu"}
    return train(toys.splits(36, 16), model, defence, **options)


CASES = {
    "standard": (defences.Standard(), {}),
    "accumulated": (defences.Standard(), {"accumulation": 2, "batch_size": 5}),
    "ungrouped": (defences.Standard(), {"group_by_length": False, "schedule": "staircase", "max_grad_norm": 0.0}),
    "early": (defences.Standard(), {"evaluate_every": 2, "patience": 1, "epochs": 5, "checkpoint_every": 3}),
    "freelb": (defences.FreeLB(steps=2), {}),
    "vib": (defences.VIB(latent=4), {}),
    "ascent": (toys.Ascent(), {"information": 0, "snapshots": True}),
    "stages": (toys.FreshWords(), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_without_dropout_it_gives_the_trainers_bits_and_the_trainers_log(name, tmp_path, monkeypatch):
    defence, changes = CASES[name]
    settings, found = replace(SETTINGS, **changes), []
    for is_lean in (False, True):
        folder, progress = tmp_path / str(is_lean), toys.Recorder()
        model = trained(folder, monkeypatch, is_lean=is_lean, defence=defence, settings=settings, progress=progress)
        found.append((toys.weights(model), (folder / "train.jsonl").read_text(), progress.calls[-1][:2]))
    (weights, log, calls), (own_weights, own_log, own_calls) = found
    assert own_log == log
    assert toys.same_bits(own_weights, weights)
    assert own_calls == calls


class Stops(Exception):
    """Ends a training."""


class StopsAt(toys.Recorder):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_step(self, step, total, metrics):
        if step == self.step:
            raise Stops


@pytest.mark.parametrize("defence", [defences.VIB(latent=4), toys.FreshWords()], ids=["vib", "stages"])
@pytest.mark.parametrize("step", [3, 6, 10, 12])
def test_a_training_that_is_continued_ends_like_one_that_was_not_interrupted(defence, step, tmp_path, monkeypatch):
    monkeypatch.setattr(lean.Due, "is_due", lambda self: True)

    def run(folder, progress=None):
        model = toys.classifier()  # with dropout: the random streams must be put back too
        return trained(folder, monkeypatch, is_lean=True, defence=defence, progress=progress, model=model)

    whole = toys.weights(run(tmp_path / "whole"))
    with pytest.raises(Stops):
        run(tmp_path / "parts", StopsAt(step))
    assert (tmp_path / "parts" / "checkpoints").exists()
    assert toys.same_bits(toys.weights(run(tmp_path / "parts")), whole)
    assert (tmp_path / "parts" / "train.jsonl").read_text() == (tmp_path / "whole" / "train.jsonl").read_text()
    assert not (tmp_path / "parts" / "checkpoints").exists()


def test_which_loop_trains(tmp_path):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert lean.is_lean(gpu, None)
    assert not lean.is_lean(cpu, None)
    # Who continues stays with the loop that wrote the checkpoint, wherever it runs now.
    start = SimpleNamespace(path=tmp_path)
    assert not lean.is_lean(gpu, start)
    (tmp_path / "state.safetensors").touch()
    assert lean.is_lean(cpu, start)


def test_several_processes_train_by_the_trainer(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not lean.is_lean(torch.device("cuda"), None)


def test_checkpoints_that_take_longer_than_the_steps_between_them_are_left_out(tmp_path):
    now = [0.0]
    due = lean.Due(lambda: now[0])
    assert not due.is_due()
    with due.measure():
        now[0] += 2.0
    now[0] += 39.0
    assert not due.is_due()
    now[0] += 1.0
    assert due.is_due()


def test_the_log_does_not_depend_on_which_checkpoints_were_left_out(tmp_path, monkeypatch):
    logs = []
    for name, answer in (("all", True), ("none", False)):
        monkeypatch.setattr(lean.Due, "is_due", lambda self, answer=answer: answer)
        trained(tmp_path / name, monkeypatch, is_lean=True)
        logs.append((tmp_path / name / "train.jsonl").read_text())
    assert logs[0] == logs[1]
    assert any(json.loads(line)["step"] == 4 for line in logs[0].splitlines())


def encoded(model, block):
    examples = EncodedExamples(model, toys.dataset("train", 20, 0).examples, ("text",))
    examples.block, examples.limit = block, model.max_tokens
    return examples


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_on_the_device_are_those_of_the_collator(side):
    model = toys.classifier()
    model.tokenizer.padding_side = side
    examples = encoded(model, 4)
    order = [3, 11, 0, 7]
    expected = examples.collate([examples[index] for index in order])
    for kind in (lean._Placed, lean._Sent):
        tokens = kind(examples, torch.device("cpu"))
        batch = tokens.batch(torch.tensor(order), tokens.length(order), order)
        assert torch.equal(batch.labels, expected["labels"])
        assert batch.inputs.keys() == expected["inputs"].keys()
        for name, value in expected["inputs"].items():
            assert torch.equal(batch.inputs[name], value)
            assert value.shape[1] % 4 == 0


def test_padding_in_blocks_stays_within_what_the_model_reads():
    examples = encoded(toys.classifier(), 16)
    assert [examples.padded_length(n) for n in (1, 15, 16, 17, 24)] == [16, 16, 16, 24, 24]
    assert examples.in_blocks_on(torch.device("cpu"), 24).padded_length(17) == 17
    assert examples.in_blocks_on(torch.device("cuda"), 512).padded_length(17) == 2 * BLOCK


def test_padding_changes_a_step_by_rounding_alone():
    model = toys.classifier(dropout=0.0)
    found = []
    for block in (1, 16):
        examples = encoded(model, block)
        batch = examples.collate([examples[index] for index in range(8)])
        found.append(model(**batch["inputs"]).logits)
    assert torch.allclose(found[0], found[1], atol=1e-5)


def test_too_many_tokens_are_sent_batch_by_batch():
    examples = encoded(toys.classifier(), 1)
    assert lean.fits_on_device(examples)
    assert not lean.fits_on_device(examples, room=100)
