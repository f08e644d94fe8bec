"""A run folder with a tiny model that was really trained, on a folder of splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import training_toys as toys

from isthmus.core.files import write_json
from isthmus.data import Dataset
from isthmus.runs.folder import SCHEMA, RunFolder
from isthmus.training import TrainingSettings
from isthmus.verbs.sources import DataRequest
from isthmus.verbs.train import TrainRequest, train

QUICK = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=4)


def write_data(folder: Path, sizes: dict[str, int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        _write(folder / f"{split}.jsonl", toys.dataset(split, size, 0))
    return folder


def _write(path: Path, data: Dataset) -> None:
    rows = [{"text": example.texts["text"], "label": data.labels[int(example.label)]} for example in data]  # type: ignore[arg-type]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def toy_run(
    place: Path, name: str = "run", defence: str = "standard", settings: TrainingSettings = QUICK, **parameters: Any
) -> RunFolder:
    """Train a tiny BERT into a run folder, as the command does."""
    if not (place / "backbone").is_dir():
        toys.classifier().save(place / "backbone")
        write_data(place / "data", {"train": 48, "dev": 16, "test": 24})
    request = TrainRequest(
        data=DataRequest(str(place / "data")),
        backbone=str(place / "backbone"),
        defence=defence,
        parameters={key: str(value) for key, value in parameters.items() if key != "seed"},
        settings=settings,
        seed=int(parameters.get("seed", 0)),
        out=place / name,
        device="cpu",
    )
    return train(request).folder


def add_attack(folder: RunFolder, key: str = "pwws", robust: float = 0.5, n: int = 24) -> None:
    """Rows of an attack that is made up: the first `robust` of the test texts hold, the others lose their last word."""
    rows = []
    for number, example in enumerate(toys.dataset("test", n, 0)):
        text, label = example.texts["text"], int(example.label)  # type: ignore[arg-type]
        held, right = number < robust * n, number % 8 != 7
        outcome = "skipped" if not right else "failed" if held else "succeeded"
        rows.append(
            {
                "id": example.id, "outcome": outcome, "label": label,
                "prediction_before": label if right else 1 - label,
                "original": {"text": text}, "perturbed": {"text": text.rsplit(" ", 1)[0] + " very"},
                "words_changed": 0.2, "words": 5, "edits": [], "logical_queries": 9, "physical_queries": 9,
                "candidates": 4,
            }
        )  # fmt: skip
    folder.attacks_path.mkdir(exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder.attacks_path / f"{key}.jsonl").write_text(lines)
    header = {"schema": SCHEMA, "attack": key, "hash": "0" * 8, "settings": {}, "labels": ["bad", "good"], "n": n}
    write_json(folder.attacks_path / f"{key}.json", header)
