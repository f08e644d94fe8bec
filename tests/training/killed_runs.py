"""Starts trainings that are killed with SIGKILL; run as a script with a folder to write to.

Each scenario runs in a child of its own, forked before any arithmetic, so that only one process pays for the imports.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

import training_toys as toys

from isthmus.core.types import Output
from isthmus.defences import Defence
from isthmus.models import Classifier
from isthmus.training import Resident, TrainingSettings, train, train_resident

SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=1e-2, log_every=3, checkpoint_every=3, patience=3)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class DiesAt:
    step: int

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == self.step:
            die()


def train_toy(folder: Path, defence: Defence | None = None, progress: Any = None) -> Classifier:
    return train(toys.splits(32, 16), toys.classifier(), defence, settings=SETTINGS, folder=folder, progress=progress)


def fresh_words(folder: Path) -> toys.FreshWords:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return toys.FreshWords(str(folder.with_suffix(".notes")))


class Network(torch.nn.Module):
    """Two layers with dropout, over vectors."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
            )

    def forward(self, vectors: torch.Tensor) -> Output:
        return Output(self.layers(vectors))


def clusters(size: int, seed: int) -> Resident:
    stream = torch.Generator().manual_seed(seed)
    labels = torch.arange(size) % 3
    centres = torch.eye(6)[:3] * 2
    return Resident({"vectors": centres[labels] + torch.randn(size, 6, generator=stream)}, labels)


def train_vectors(folder: Path, progress: Any = None) -> torch.nn.Module:
    return train_resident(
        clusters(64, 1), Network(), dev=clusters(30, 2), settings=SETTINGS, folder=folder, progress=progress
    )


def in_a_checkpoint(folder: Path) -> None:
    """Killed while the third checkpoint is being written: weights and optimiser are there, the rest is not."""
    real, calls = torch.save, []

    def save(value: Any, path: Any, *arguments: Any, **options: Any) -> None:
        calls.append(path)
        if len(calls) == 8:  # optimiser, scheduler, random state: three calls a checkpoint
            Path(path).write_bytes(b"half")
            die()
        real(value, path, *arguments, **options)

    torch.save = save
    train_toy(folder)


def before_the_model_is_saved(folder: Path) -> None:
    Classifier.save = lambda *_: die()  # type: ignore[method-assign]
    train_toy(folder)


SCENARIOS: dict[str, Callable[[Path], Any]] = {
    "before_any_checkpoint": lambda folder: train_toy(folder, progress=DiesAt(2)),
    "in_the_second_epoch": lambda folder: train_toy(folder, progress=DiesAt(8)),
    "just_after_a_checkpoint": lambda folder: train_toy(folder, progress=DiesAt(7)),
    "in_a_checkpoint": in_a_checkpoint,
    "before_the_model_is_saved": before_the_model_is_saved,
    "examples_before_any_checkpoint": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(1)),
    "examples_in_the_second_epoch": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(7)),
    "examples_at_the_start_of_the_third": lambda folder: train_toy(folder, fresh_words(folder), DiesAt(9)),
    "resident": lambda folder: train_vectors(folder, DiesAt(13)),
}


def main(root: Path) -> None:
    torch.set_num_threads(1)
    for name, scenario in SCENARIOS.items():
        child = os.fork()
        if child == 0:
            try:
                scenario(root / name)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status = os.waitpid(child, 0)
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            raise SystemExit(f"{name} was not killed: status {status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
