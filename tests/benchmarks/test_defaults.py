"""What the defaults cost: which units are run, what is complained about, and that a cut keeps what was finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import defaults
from isthmus.core import catalog
from isthmus.core.statistics import Interval
from ledger import Cell, Key, Ledger
from proof.units import Place

ROOT = Path(__file__).parents[2]


def test_every_defence_is_there_and_the_slow_ones_come_last(tmp_path: Path) -> None:
    found = defaults.units(Place(tmp_path, tmp_path, tmp_path), defaults.arguments([]))
    names = list(dict.fromkeys(unit.method.name for unit in found))
    assert names[0] == "standard"
    assert set(names) == set(catalog.names("defences"))
    assert set(names[-len(defaults.HEAVY) :]) == set(defaults.HEAVY)
    assert len(found) == 3 * len(names)
    assert all(not unit.method.parameters and not unit.attacks for unit in found)


def cells(name: str, right: np.ndarray, backbone: str = "cnn", **training: int) -> list[Cell]:
    return [
        Cell.of_answers(
            Key({"name": "rotten_tomatoes"}, backbone, {"name": name}, training, seed, len(row)), row, row=name
        )
        for seed, row in enumerate(right)
    ]


def test_the_lower_end_must_lie_above_three_points(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    plain = rng.random((3, 1000)) < 0.8
    same, worse = plain.copy(), plain.copy()
    same[:, :5] = ~same[:, :5]
    worse[:, :100] = False
    found = [*cells("standard", plain), *cells("freelb", same), *cells("safer", worse)]
    assert defaults.report(found, ["cnn"]) is None
    complaint = defaults.report([*found, *cells("vib", worse)], ["cnn"])
    assert complaint is not None
    assert "vib (cnn)" in complaint
    assert "safer" not in complaint
    assert "its cost is stated" in capsys.readouterr().out
    # Of quick looks, and of other backbones, nothing is compared.
    assert set(defaults.compared([*found, *cells("vib", worse, limit=8)], "cnn")) == {"freelb", "safer"}
    assert defaults.report(found, ["minilm"]) is not None
    verdicts = [defaults.judged(Interval(at, at - 0.02, at + 0.02, 0.95)) for at in (0.0, -0.02, -0.04)]
    assert verdicts == ["holds", "not known well enough", "too dear"]


def test_two_seeds_that_agree_by_chance_are_not_enough() -> None:
    """A difference of -1 point that swings by seed is not known to lie above -3."""
    plain = np.ones((3, 1000), bool)
    other = plain.copy()
    other[0, :30], other[1, :5] = False, False
    (found,) = defaults.compared([*cells("standard", plain), *cells("pgd", other)], "cnn").values()
    assert found.difference.estimate == pytest.approx(-0.0117, abs=1e-3)
    assert found.difference.low < defaults.LOWEST


def test_it_runs_once_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "pack" / "rotten_tomatoes"
    folder.mkdir(parents=True)
    for split, size in (("train", 16), ("dev", 8), ("test", 12)):
        rows = [{"text": f"a {'fine' if i % 2 else 'dull'} film number {i}", "label": i % 2} for i in range(size)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--data", "pack", "--results", "results", "--runs", "runs", "--backbone", "cnn", "--device", "cpu"]
    words += ["--epochs", "1", "--seeds", "1", "--defences", "standard", "label_smoothing"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def run(*more: str) -> str:
        found = subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / "defaults.py"), *words, *more],
            capture_output=True, text=True, check=False, cwd=tmp_path, env=environment, timeout=600,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        return found.stdout

    assert "2 done, 0 failed, 0 left" in run("--workers", "2")
    book = Ledger(tmp_path / "results" / "defaults.jsonl")
    assert [cell.row for cell in sorted(book, key=lambda cell: cell.row)] == ["label_smoothing", "standard"]
    assert all(len(cell.outcomes) == 12 and "seconds" in cell.provenance for cell in book)
    before = book.path.read_bytes()
    assert "0 of 2 units to run" in run()
    assert book.path.read_bytes() == before
