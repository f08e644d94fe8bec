"""One small run, trained once; every test gets a copy of its own."""

from __future__ import annotations

import contextlib
import importlib
import shutil
from pathlib import Path

import pytest

import isthmus

toys = importlib.import_module("training_toys")

ROWS = [("a lovely film", "good"), ("a dull plot", "bad"), ("a warm scene", "good"), ("a stale actor", "bad")] * 8


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    toys.classifier().save(folder / "backbone")
    settings = isthmus.TrainingSettings(epochs=4, batch_size=8, learning_rate=1e-2, precision="fp32")
    data = {"train": ROWS, "dev": ROWS[:8], "test": ROWS[:8]}
    with contextlib.chdir(folder):  # The run names its data relative to this place, so that copies of it find theirs.
        isthmus.train(data, "backbone", settings=settings, folder="run", device="cpu")
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A copy of the run, by a name relative to the folder that the test works in."""
    shutil.copytree(trained.parent, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return "run"
