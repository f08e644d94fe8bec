"""Gradient attacks on the embeddings of texts by name: rows of their own, in no union, no gate and no suite."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import fault_cases
import pytest

from isthmus.cli.app import run


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a trained run of texts."""
    place = tmp_path_factory.mktemp("texts")
    fault_cases.write_reviews(place / "reviews.csv", 60)
    fault_cases.write_network(place / "tiny")
    given = ["--data", str(place / "reviews.csv"), "--backbone", str(place / "tiny"), "--epochs", "1"]
    options = ["--batch-size", "8", "--learning-rate", "5e-3", "--device", "cpu", "-q"]
    assert run(["train", *given, *options, "--out", str(place / "run")]) == 0
    return place


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    """The run by itself."""
    return Path(shutil.copytree(home / "run", tmp_path / "run"))


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "embeddings" / f"{name}.jsonl").read_text().splitlines()]


PGD = ["--attack", "pgd", "-P", "epsilon=0.8", "-P", "norm=l2", "-P", "steps=5", "--split", "train", "--no-label-check"]


def test_it_runs_by_name_and_says_what_it_moved(isthmus: Any, copy: Path) -> None:
    ended = isthmus("attack", copy, *PGD, "--n", 20)
    assert ended.code == 0
    shown = " ".join(ended.out.split())
    assert "on embeddings" in shown
    assert "Nobody can send an embedding" in shown
    found = rows(copy, "pgd")
    header = json.loads((copy / "embeddings" / "pgd.json").read_text())
    assert header["settings"]["space"] == "embeddings"
    assert f"the mean length of a token's vector is {header['embedding_length']:g}" in shown
    assert len(found) == 20
    attempted = [row for row in found if row["outcome"] != "skipped"]
    assert attempted
    assert all(0 < row["l2"] <= 0.8 and row["tokens"] > 2 and row["original"]["text"] for row in attempted)
    assert not list((copy / "attacks").glob("*"))
    again = isthmus("attack", copy, *PGD, "--n", 20)
    assert "0 attacked now, 20 read back" in again.out


def test_more_rows_end_with_the_same_file(isthmus: Any, home: Path, copy: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(home / "run", tmp_path / "whole"))
    assert isthmus("attack", whole, *PGD, "--n", 30).code == 0
    assert isthmus("attack", copy, *PGD, "--n", 7).code == 0
    assert isthmus("attack", copy, *PGD, "--n", 30).code == 0
    assert (copy / "embeddings" / "pgd.jsonl").read_bytes() == (whole / "embeddings" / "pgd.jsonl").read_bytes()


def test_no_union_no_gate_and_no_suite_holds_it(isthmus: Any, copy: Path) -> None:
    both = ["--attack", "deepwordbug,leet,fgsm", "-P", "epsilon=5", "--split", "train", "--n", 12, "--no-label-check"]
    ended = isthmus("attack", copy, *both, "--json")
    assert ended.code == 0
    assert ended.json["together"] == ["deepwordbug", "leet"]
    assert set(ended.json["attacks"]) == {"deepwordbug", "leet"}
    assert set(ended.json["embedding_attacks"]) == {"fgsm"}
    assert {path.stem for path in (copy / "attacks").glob("*.jsonl")} == {"deepwordbug", "leet"}
    report = isthmus("report", copy, "--json")
    assert report.json["together"] == ["deepwordbug", "leet"]
    page = (copy / "report.html").read_text()
    assert 'id="embeddings"' in page
    assert "All together: deepwordbug, leet." in page
    gate = isthmus("attack", copy, *PGD, "--n", 4, "--fail-under", "racc=0.1")
    assert gate.code == 2
    assert "nobody can send an embedding" in " ".join(gate.err.split())
    every = isthmus("attack", copy, "--attack", "all,fgsm", "--n", 4, "-P", "fgsm.epsilon=1", "-P", "nothing=1")
    assert every.code == 2
    assert "nothing" in every.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--attack", "pgd", "--budget", "3"], "--budget is for attacks that edit words"),
        (["--attack", "pgd", "-P", "epsilon=-1"], "epsilon is a radius"),
        (["--attack", "pgd", "--precision", "bf16"], "embeddings are attacked in fp32"),
        (["--attack", "deepfool", "--target-label", "positive"], "it is untargeted"),
    ],
)
def test_what_makes_no_sense_is_refused(isthmus: Any, copy: Path, options: list[str], words: str) -> None:
    ended = isthmus("attack", copy, *options)
    assert ended.code == 2
    assert words in " ".join(ended.err.split())
    assert not list((copy / "embeddings").glob("*.jsonl"))
