"""Sheets for readers hide what they should, answers are scored as they say, and the page is what was kept."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import DataError
from isthmus.core.statistics import wilson
from readings import Reading, chosen, labels_table, limits_table, lowest, read_answers, read_lines, written

ROOT = Path(__file__).parents[2]


def row(number: int, outcome: str = "succeeded") -> dict[str, Any]:
    old, new = f"text {number} is fine", f"text {number} is f1ne"
    return {"id": f"{number}", "outcome": outcome, "label": number % 2, "original": {"text": old},
            "perturbed": {"text": new}, "edits": [], "score_before": [], "score_after": []}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A run with attack files of two attacks under two presets, and the data they attacked."""
    for name, preset, first, last in (("pwws", "meaning", 0, 6), ("bae", "meaning", 3, 20), ("pwws@1a2b", None, 0, 20)):
        settings = {"attack": name, **({"preset": preset} if preset else {})}
        folder = tmp_path / "run" / "attacks"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps({"schema": 1, "settings": settings}))
        rows = [row(n, "failed" if n % 5 == 4 else "succeeded") for n in range(first, last)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    texts = [{"text": f"text {n} is fine", "label": ("negative", "positive")[n % 2]} for n in range(30)]
    (tmp_path / "data").mkdir()
    for split in ("train", "dev", "test"):
        lines = "".join(json.dumps(each) + "\n" for each in texts)
        (tmp_path / "data" / f"{split}.jsonl").write_text(lines)
    return tmp_path


def readings(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/readings.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_sheet_shows_texts_and_nothing_else(place: Path) -> None:
    out = place / "out"
    ended = readings(
        "sheets", place / "run", "--data", place / "data", "--out", out, "--successes", 10, "--controls", 5
    )
    assert ended.returncode == 0, ended.stderr
    key = {each["id"]: each for each in read_lines(out / "key.jsonl")}
    assert [sum(each["attack"] == name for each in key.values()) for name in ("pwws", "bae", None)] == [5, 5, 5]
    assert len({each["source"] for each in key.values()}) == 15  # of a text one version
    sheets = [(out / f"sheet_{number}.tsv").read_text() for number in (1, 2)]
    for sheet in sheets:
        lines = [line.split("\t") for line in sheet.splitlines()]
        assert dict(lines) == {name: each["text"] for name, each in key.items()}
    assert sheets[0] != sheets[1]
    order = [key[line.split("\t")[0]]["attack"] is None for line in sheets[0].splitlines()]
    assert order not in (sorted(order), sorted(order, reverse=True))
    # Two readers answer, and what they say is kept beside the texts.
    for number, wrong in ((1, 1), (2, 3)):
        says = {name: "unclear" if index < wrong else each["label"] for index, (name, each) in enumerate(key.items())}
        (out / f"answers_{number}.tsv").write_text("".join(f"{name}\t{answer}\n" for name, answer in says.items()))
    ended = readings("--results", place / "kept", "keep", out, "--as", "toy")
    assert ended.returncode == 0, ended.stderr
    kept = [Reading.of(each) for each in read_lines(place / "kept/toy.jsonl")]
    assert [sum(each.answers[reader] == each.label for each in kept) for reader in (0, 1)] == [14, 12]
    assert ended.stdout.strip() == labels_table(kept).strip()
    ended = readings("--results", place / "kept", "limits", place / "run")
    assert ended.returncode == 0, ended.stderr
    rows = read_lines(place / "kept/limits.jsonl")
    # Texts 3, 4 and 5 are those that every file has; the attack failed on 4.
    assert {(each["limits"], each["attack"]): each["outcomes"] for each in rows} == {
        ("meaning", "pwws"): "FRF", ("meaning", "bae"): "FRF", ("none", "pwws"): "FRF",
    }  # fmt: skip


def test_each_attack_has_its_turn() -> None:
    found = {"many": [row(n) for n in range(100)], "few": [row(n) for n in range(4)]}
    taken = chosen(found, 20, random.Random(0))
    assert len({each["id"] for each in taken}) == 20
    assert sum(each["attack"] == "few" for each in taken) == 4
    assert len(chosen(found, 500, random.Random(0))) == 100


def test_answers_are_complete_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers_1.tsv"
    for text, words in (
        ("a\tyes\n", "no answer for 1"),
        ("a\tyes\nb\tmaybe\n", "line 2"),
        ("a\tyes\na\tyes\n", "line 2"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            read_answers(path, ["a", "b"], ["yes", "no"])
    path.write_text("b\tno\r\n\na\t yes \n")
    assert read_answers(path, ["a", "b"], ["yes", "no"]) == {"a": "yes", "b": "no"}


def test_figures_from_answers() -> None:
    made = [Reading(str(n), "pwws", "good", "x", ("good" if n < 9 else "unclear", "good" if n < 7 else "bad"))
            for n in range(10)]  # fmt: skip
    made.append(Reading("c", None, "bad", "x", ("bad", "bad")))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in labels_table(made).splitlines()]
    assert table[2][:6] == ["all successes", "10", "90.0 (59.6-98.2)", "1", "70.0 (39.7-89.2)", "0"]
    assert table[2][6].startswith("70.0")
    assert table[3][:3] == ["controls, unchanged", "1", "100.0 (20.7-100.0)"]
    assert lowest(made) == wilson(7, 10).low


def test_together_means_every_attack_of_the_table() -> None:
    rows = [
        {"limits": "none", "attack": "a", "n": 4, "outcomes": "RFRW"},
        {"limits": "none", "attack": "b", "n": 4, "outcomes": "RRFW"},
        {"limits": "strict", "attack": "a", "n": 4, "outcomes": "RRRW"},
        {"limits": "strict", "attack": "b", "n": 4, "outcomes": "RRRE"},
    ]
    *_, together = limits_table(rows).splitlines()
    assert re.findall(r"(\d+\.\d) \(", together) == ["25.0", "75.0"]
    assert "all 2 together" in together


def test_a_page_is_filled_between_its_markers(tmp_path: Path) -> None:
    line = {"limits": "none", "attack": "a", "n": 2, "outcomes": "RF"}
    (tmp_path / "limits.jsonl").write_text(json.dumps(line) + "\n")
    page = "before\n<!-- readings: limits -->\nold\n<!-- end -->\nafter\n"
    filled = written(page, tmp_path)
    assert filled.startswith("before\n<!-- readings: limits -->\n| ")
    assert filled.endswith("<!-- end -->\nafter\n")
    assert "old" not in filled
    assert written(filled, tmp_path) == filled
    with pytest.raises(DataError, match="'limits2'"):
        written(page.replace("limits", "limits2"), tmp_path)
