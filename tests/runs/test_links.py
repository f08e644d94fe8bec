"""Links in a run folder that lead out of it: nothing is written, emptied or deleted through them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import training_toys as toys

from isthmus.core.errors import RunError
from isthmus.core.unfinished import KeptRows
from isthmus.runs.folder import RunFolder
from isthmus.runs.journal import Journal
from isthmus.training import TrainingSettings, train
from isthmus.training.checkpoints import CheckpointFolder, save_weights
from isthmus.training.examples import ExampleStore
from isthmus.training.log import TrainLog
from isthmus.training.snapshots import clear_snapshots, save_snapshot
from isthmus.verbs.attack.trace import Trace

FILES = {"precious.jsonl": "content", "1.safetensors": "weights", "settings.json": "{}", "0.jsonl": "examples"}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "epoch-0" / "checkpoint-1").mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_text(content)
    return folder


def link(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


WRITERS: dict[str, Callable[[Path, Path], object]] = {
    "journal": lambda run, out: Journal(link(run / "attacks/x.jsonl", out / "precious.jsonl")),
    "journal in a linked folder": lambda run, out: Journal(link(run / "attacks", out) / "precious.jsonl"),
    "trace": lambda run, out: Trace(link(run / "attacks/x.trace.jsonl", out / "precious.jsonl")).begin({}, []),
    "log": lambda run, out: TrainLog(link(run / "train.jsonl", out / "precious.jsonl")),
    "unfinished": lambda run, out: KeptRows(link(run / "examples/0.part.jsonl", out / "precious.jsonl")),
    "examples": lambda run, out: ExampleStore(link(run / "examples", out)).clear(),
    "model": lambda run, out: toys.classifier().save(link(run / "model", out)),
    "checkpoints": lambda run, out: CheckpointFolder(link(run / "checkpoints", out)).open({}),
    "deleted checkpoints": lambda run, out: CheckpointFolder(link(run / "checkpoints", out)).delete(),
    "weights": lambda run, out: save_weights(toys.classifier(), link(run / "best.safetensors", out / "1.safetensors")),
    "cleared snapshots": lambda run, out: clear_snapshots(link(run / "snapshots", out).parent),
    "snapshots": lambda run, out: save_snapshot(toys.classifier(), [], link(run / "snapshots", out).parent, 1),
    "record": lambda run, out: link(run / "run.json", out / "new") and RunFolder(run).write({}),  # type: ignore[arg-type, func-returns-value]
}


@pytest.mark.parametrize("writer", WRITERS)
def test_no_writer_follows_a_link_out_of_the_run(tmp_path: Path, outside: Path, writer: str) -> None:
    run = RunFolder(tmp_path / "run")
    with run.hold("train", exclusive=True), pytest.raises(RunError, match=r"by a link|holds other files"):
        WRITERS[writer](run.path, outside)
    assert {path.name: path.read_text() for path in outside.iterdir() if path.is_file()} == FILES
    assert (outside / "epoch-0" / "checkpoint-1").is_dir()


def test_a_training_leaves_what_lies_behind_links_alone(tmp_path: Path, outside: Path) -> None:
    settings = TrainingSettings(precision="fp32", epochs=1, batch_size=8, snapshots=True)
    for name in ("snapshots", "checkpoints", "model", "train.jsonl"):
        run = tmp_path / name
        link(run / name, outside / "precious.jsonl" if name.endswith("jsonl") else outside)
        with pytest.raises(RunError, match=r"by a link|holds other files"):
            train(toys.splits(8, 8), toys.classifier(), settings=settings, folder=run, device="cpu")
        assert {path.name: path.read_text() for path in outside.iterdir() if path.is_file()} == FILES


def test_a_temporary_name_that_is_a_link_is_not_followed(tmp_path: Path, outside: Path) -> None:
    link(tmp_path / "run" / ".best.safetensors.part", outside / "precious.jsonl")
    save_weights(toys.classifier(), tmp_path / "run" / "best.safetensors")
    assert (outside / "precious.jsonl").read_text() == "content"
