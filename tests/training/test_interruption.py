"""A training that was killed (with a real SIGKILL) and started again ends as if nothing had happened."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import training_toys as toys
from children import SCENARIOS, fresh_words, train_toy, train_vectors

from isthmus.models import load_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same trainings, uninterrupted."""
    root = tmp_path_factory.mktemp("whole")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    models = {
        "plain": train_toy(root / "plain"),
        "examples": train_toy(root / "examples", fresh_words(root / "examples")),
        "resident": train_vectors(root / "resident"),
    }
    torch.set_num_threads(threads)
    return root, models


def log(folder: Path) -> str:
    return (folder / "train.jsonl").read_text()


@pytest.mark.parametrize(
    "name", [name for name in SCENARIOS if not name.startswith(("examples", "resident", "questions"))]
)
def test_a_killed_training_continues_to_the_same_bits(name, children, whole):
    folder, (root, models) = children / name, whole
    assert not (folder / "model").exists()
    progress = toys.Recorder()
    model = train_toy(folder, progress=progress)
    assert toys.same_bits(toys.weights(model), toys.weights(models["plain"]))
    assert log(folder) == log(root / "plain")
    assert toys.same_bits(toys.weights(load_model(folder / "model")), toys.weights(models["plain"]))
    assert not (folder / "checkpoints").exists()
    first = {
        "before_any_checkpoint": 1,
        "in_the_second_epoch": 7,
        "just_after_a_checkpoint": 7,
        "in_a_checkpoint": 5,
        "before_the_model_is_saved": None,
    }[name]
    assert next((call[0] for call in progress.calls), None) == first


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name.startswith("examples")])
def test_generated_examples_are_not_made_again(name, children, whole):
    folder, (root, models) = children / name, whole
    model = train_toy(folder, fresh_words(folder))
    assert toys.same_bits(toys.weights(model), toys.weights(models["examples"]))
    assert log(folder) == log(root / "examples")
    calls = folder.with_suffix(".notes").read_text().split("\n")[:-1]
    assert calls == ["0 False", "1 False", "2 False"]
    for path in (root / "examples" / "examples").iterdir():
        assert path.read_text() == (folder / "examples" / path.name).read_text()


def test_a_killed_training_over_resident_tensors_continues_to_the_same_bits(children, whole):
    folder, (root, models) = children / "resident", whole
    progress = toys.Recorder()
    model = train_vectors(folder, progress)
    assert progress.calls[0][0] == 13
    assert toys.same_bits(toys.weights(model), toys.weights(models["resident"]))
    assert log(folder) == log(root / "resident")
    assert sorted(path.name for path in folder.iterdir()) == ["model", "train.jsonl"]


class Stops:
    def __init__(self, step):
        self.step = step

    def on_step(self, step, total, metrics):
        if step == self.step:
            raise KeyboardInterrupt


def test_two_checkpoints_are_kept_and_a_broken_one_does_not_count(tmp_path, whole):
    root, models = whole
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path, progress=Stops(11))
    stage = tmp_path / "checkpoints" / "epoch-0"
    assert sorted(path.name for path in stage.iterdir()) == ["checkpoint-8", "checkpoint-9"]
    assert (tmp_path / "train.jsonl").read_text().count("\n") > 0
    (stage / "checkpoint-9" / "trainer_state.json").write_text('{"epoch": 2.')
    with (tmp_path / "train.jsonl").open("a") as stream:
        stream.write('{"step": 10, "torn')
    progress = toys.Recorder()
    model = train_toy(tmp_path, progress=progress)
    assert progress.calls[0][0] == 9
    assert toys.same_bits(toys.weights(model), toys.weights(models["plain"]))
    assert log(tmp_path) == log(root / "plain")


class Notes(toys.Recorder):
    """A progress object that is told what happens."""

    def __init__(self):
        super().__init__()
        self.notes = []

    def on_note(self, message):
        self.notes.append(message)

    def on_work(self, title, done, total, figures):
        pass


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A training that was interrupted with two checkpoints written, those of steps 8 and 9."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(KeyboardInterrupt):
        train_toy(folder, progress=Stops(11))
    return folder


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def clear(path):
    path.write_bytes(bytes(path.stat().st_size))


def empty(path):
    path.write_bytes(b"")


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "checkpoint-9/optimizer.pt": (halve, 8),
    "checkpoint-9/rng_state.pth": (clear, 8),
    "checkpoint-9/scheduler.pt": (empty, 8),
    "checkpoint-9/model.safetensors": (flip, 8),
    "checkpoint-9/checksums.json": (halve, 8),
    "checkpoint-9/position.json": (clear, 8),
    "checkpoint-*/optimizer.pt": (halve, None),
    "../best-*.safetensors": (flip, None),
    "../settings.json": (clear, None),
}
"""What is damaged, how, and the step that the training continues from (None: from none)."""


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_continued(name, interrupted, whole, tmp_path):
    (root, models), folder = whole, tmp_path / "run"
    shutil.copytree(interrupted, folder)
    damage, step = DAMAGES[name]
    damaged = list((folder / "checkpoints" / "epoch-0").glob(name))
    assert damaged
    for path in damaged:
        damage(path)
    progress = Notes()
    model = train_toy(folder, progress=progress)
    (note, _) = progress.notes
    assert name.rpartition("/")[2].replace("*.safetensors", "") in note
    assert ("begins again" if step is None else f"continues from step {step}") in note
    assert progress.calls[0][0] == (step or 0) + 1
    assert toys.same_bits(toys.weights(model), toys.weights(models["plain"]))
    assert log(folder) == log(root / "plain")
    assert sorted(path.name for path in folder.iterdir()) == ["model", "train.jsonl"]


def test_a_damaged_checkpoint_of_resident_tensors_is_noticed(whole, tmp_path, caplog):
    root, models = whole
    with pytest.raises(KeyboardInterrupt):
        train_vectors(tmp_path, Stops(14))
    halve(max((tmp_path / "checkpoints" / "epoch-0").iterdir(), key=lambda path: path.name) / "state.safetensors")
    model = train_vectors(tmp_path)
    assert "state.safetensors. The training continues from step" in caplog.text
    assert toys.same_bits(toys.weights(model), toys.weights(models["resident"]))
    assert log(tmp_path) == log(root / "resident")


def test_a_checkpoint_without_checksums_of_an_older_version_is_continued(interrupted, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(interrupted, folder)
    for path in (folder / "checkpoints").rglob("checksums.json"):
        path.unlink()
    settings = folder / "checkpoints" / "settings.json"
    known = json.loads(settings.read_text())
    known.pop("checksums.json")
    settings.write_text(json.dumps(known))
    progress = Notes()
    model = train_toy(folder, progress=progress)
    assert progress.calls[0][0] == 10
    assert [note for note in progress.notes if "checkpoint" in note] == []
    assert toys.same_bits(toys.weights(model), toys.weights(whole[1]["plain"]))


def test_nothing_pickled_but_tensors_and_plain_values_is_read(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path, progress=Stops(8))
    assert not list(tmp_path.rglob("training_args.bin"))
    real, seen = torch.load, []

    def load(*arguments, **options):
        seen.append(options.get("weights_only"))
        return real(*arguments, **options)

    monkeypatch.setattr(torch, "load", load)
    train_toy(tmp_path)
    assert seen
    assert all(seen)


def test_the_position_is_plain_json(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_toy(tmp_path, progress=Stops(8))
    position = json.loads((tmp_path / "checkpoints" / "epoch-0" / "checkpoint-6" / "position.json").read_text())
    assert position["step"] == 6
    assert position["selection"]["best_step"] == 4
    assert (tmp_path / "checkpoints" / "best-4.safetensors").is_file()
