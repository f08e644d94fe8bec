"""A run folder with made-up rows, for everything that only reads one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.files import write_json
from isthmus.runs.folder import SCHEMA, DataRecord, MethodRecord, ModelRecord, RunFolder, RunRecord
from isthmus.runs.settings import short_hash

LABELS = ["negative", "positive"]
TEXTS = [
    "a quiet , moving film that lingers long after the lights come up , carried by two luminous performances",
    "the plot is so thin you could read a newspaper through it , and the jokes arrive already tired",
    "an unexpectedly tender story about fathers and sons , told with patience and a dry sense of humour",
    "two hours of noise in search of an idea",
    "it has charm to spare , and, unlike many romantic comedies, it does not alienate either gender",
    "lacks the spirit of the previous two , and makes all those jokes seem like mere splashing around in the muck",
]
NASTY = "<script>alert(1)</script> \x1b[31mred\x07 \u202eevil \ud800 & $x^2$ ' \" {{ 7*7 }}"


def adversarial_row(number: int, outcome: str, rng: random.Random, text: str | None = None) -> dict[str, Any]:
    """A row whose edits carry true offsets."""
    original = text or TEXTS[number % len(TEXTS)]
    words = original.split(" ")
    perturbed, edits = list(words), []
    if outcome == "succeeded":
        chosen = sorted(rng.sample(range(len(words)), k=min(len(words), rng.choice([1, 1, 2, 3, 4]))))
        for position in chosen:
            word = words[position]
            perturbed[position] = word[1:2] + word[:1] + word[2:] if len(word) > 1 else word + "x"
        for position in chosen:
            start, new_start = (len(" ".join(part[:position])) + (position > 0) for part in (words, perturbed))
            edits.append(
                {
                    "field": "text", "position": position, "original": words[position],
                    "replacement": perturbed[position], "kind": "replace", "start": start,
                    "end": start + len(words[position]), "new_start": new_start,
                    "new_end": new_start + len(perturbed[position]),
                }
            )  # fmt: skip
    label = number % 2
    right = outcome in ("succeeded", "failed", "timed_out")
    before = None if outcome == "error" else (label if right else 1 - label)
    sure = 0.55 + 0.44 * rng.random()
    scores = [1 - sure, sure] if before == 1 else [sure, 1 - sure]
    after = None if outcome == "error" else (1 - label if outcome == "succeeded" else before)
    return {
        "id": f"test:{number}", "outcome": outcome, "label": label, "prediction_before": before,
        "prediction_after": after, "original": {"text": original}, "perturbed": {"text": " ".join(perturbed)},
        "score_before": None if before is None else scores,
        "score_after": scores[::-1] if outcome == "succeeded" else (None if before is None else scores),
        "logical_queries": 2 * len(words) + rng.randrange(40) if right else 1,
        "physical_queries": 2 * len(words) if right else 1, "words": len(words), "edits": edits,
        "words_changed": len(edits) / len(words), "seed": 0,
        "reason": "the model answered NaN" if outcome == "error" else None, "budget_spent": False,
    }  # fmt: skip


def attack_rows(n: int, success: float, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        outcome = "succeeded" if rng.random() < success else "failed"
        outcome = "error" if number % 97 == 96 else "skipped" if number % 6 == 5 else outcome
        rows.append(adversarial_row(number, outcome, rng))
    return rows


def write_attack(folder: RunFolder, key: str, rows: list[dict[str, Any]], **header: Any) -> None:
    settings = {
        "attack": key.split("@")[0], "parameters": {"semantics": "textattack"}, "goal": {"kind": "untargeted"},
        "seed": 0, "limits": {"budget": None, "time_limit": None}, "precision": "fp32",
        "data": {"name": "reviews", "split": "test", "fingerprint": "0f" * 8},
    }  # fmt: skip
    head = {
        "schema": SCHEMA, "isthmus": "0.1.0", "attack": settings["attack"], "hash": short_hash(settings),
        "settings": settings, "labels": LABELS, "n": len(rows), "effort": {"wall_s": 21.5, "cpu_s": 40.0}, **header,
    }  # fmt: skip
    folder.attacks_path.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder.attacks_path / f"{key}.jsonl").write_text(lines, encoding="utf-8")
    write_json(folder.attacks_path / f"{key}.json", head)


def write_log(folder: RunFolder) -> None:
    rows: list[dict[str, Any]] = []
    for step in range(10, 201, 10):
        rows.append(
            {
                "step": step,
                "epoch": step / 100,
                "cross_entropy": 0.2 + 0.5 * 0.985**step,
                "loss": 0.2 + 0.5 * 0.985**step,
            }
        )
        if step % 100 == 0:
            rows.append({"step": step, "dev_accuracy": 0.79 + step / 5000})
    folder.train_log_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def synthetic_run(path: Path, n: int = 200) -> RunFolder:
    folder = RunFolder(path)
    folder.write(
        RunRecord(
            model=ModelRecord("minilm", tuple(LABELS)),
            data=DataRecord(
                "rotten_tomatoes", "rotten_tomatoes", tuple(LABELS),
                fingerprints={"train": "1a2b3c4d5e6f7a8b", "test": "0f0f0f0f0f0f0f0f"},
                sizes={"train": 6400, "dev": 1066, "test": 1064},
            ),
            defence=MethodRecord("standard"),
            training={"epochs": 1, "batch_size": 32, "learning_rate": 1e-4},
            command="isthmus train --data rotten_tomatoes --backbone minilm --epochs 1 --out runs/demo",
        )
    )  # fmt: skip
    folder.model_path.mkdir()
    write_log(folder)
    write_attack(
        folder,
        "deepwordbug",
        attack_rows(n, 0.7, 1),
        command="isthmus attack runs/demo --attack deepwordbug,pwws --n 200",
    )
    write_attack(
        folder, "pwws", attack_rows(n, 0.85, 2), command="isthmus attack runs/demo --attack deepwordbug,pwws --n 200"
    )
    return folder


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return synthetic_run(tmp_path / "demo")


@pytest.fixture(scope="session")
def nasty() -> str:
    return NASTY


@pytest.fixture(scope="session")
def add_attack() -> Callable[..., None]:
    return write_attack


@pytest.fixture(scope="session")
def make_row() -> Callable[..., dict[str, Any]]:
    return adversarial_row


@pytest.fixture
def rich_run(run_folder: RunFolder) -> RunFolder:
    """A run with an attack that used a stand-in, found no candidates for some, and came with one left out."""
    rng = random.Random(3)
    rows = [adversarial_row(number, rng.choice(["succeeded", "failed"]), rng) for number in range(200)]
    for number, row in enumerate(rows):
        row |= {"candidates": 0 if number % 4 == 0 else 9, "similarity": 0.5 + rng.random() / 2}
        row |= {"logical_queries": 4000 + number, "words": 0 if number % 8 == 0 else row["words"]}
    settings = {
        "goal": {"kind": "untargeted"}, "data": {"name": "reviews", "split": "test", "fingerprint": "0f" * 8},
        "resources": {"word vectors": "GloVe (stand-in: not the published vectors)", "encoder": "minilm"},
        "preset": "textdefender-2021", "parameters": {},
    }  # fmt: skip
    suite = {"asked": "all", "left_out": {"hotflip": "it needs gradients"}}
    write_attack(run_folder, "textfooler", rows, settings=settings, suite=suite)
    return run_folder


@pytest.fixture
def detector(run_folder: RunFolder) -> RunFolder:
    """A run whose two attacks evade the detection of "positive" at a threshold."""
    rng = random.Random(0)
    rate = {"estimate": 0.95, "low": 0.88, "high": 0.98}
    found = {
        "label": 1, "threshold": 0.5, "at_fpr": 0.01, "negatives": 100, "negative_scores": [0.1] * 100,
        "tpr_before": rate, "tpr_after": {**rate, "estimate": 0.321}, "fpr": {**rate, "estimate": 0.02},
        "auc_before": 0.987, "auc_after": 0.654,
    }  # fmt: skip
    settings = {
        "goal": {"kind": "evasion", "from_label": "positive", "threshold": None, "at_fpr": 0.01}, "parameters": {},
        "protection": {"columns": None, "pattern": "[0-9]+", "kinds": ["url"]}, "limits": {"budget": 500},
    }  # fmt: skip
    for key in ("deepwordbug", "pwws"):
        rows = [adversarial_row(2 * i + 1, "succeeded" if i % 3 else "failed", rng) for i in range(60)]
        write_attack(run_folder, key, rows, detection=found, threshold=0.5, settings=settings)
    return run_folder
