"""Run folders written before: read, reported, exported and continued with the code as it is, to the same figures.

`tests/fixtures/runs` was written by `tests/fixtures/write_runs.py`.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import write_runs

from isthmus.attacks.result import AttackResult
from isthmus.certificates.base import Certified
from isthmus.runs.evaluated import Evaluated
from isthmus.runs.journal import read_rows

FIXTURES = Path(__file__).parents[1] / "fixtures"
CLOCKS = ("wall_s", "cpu_s", "created", "versions", "machine", "command", "effort")


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders, to work in."""
    place = Path(shutil.copytree(FIXTURES / "runs", tmp_path / "runs"))
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    sys.modules.pop("toy", None)
    return place


def assert_same(found: Any, expected: Any, where: str = "") -> None:
    """Equal, but for the last digits of a number: another processor may add in another order."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for key, value in expected.items():
            assert_same(found[key], value, f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_same(found[place], value, f"{where}[{place}]")
    elif isinstance(expected, float) and found is not None:
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6), where
    else:
        assert found == expected, where


@pytest.mark.parametrize("name", write_runs.RUNS)
def test_what_is_said_of_it_is_the_same(name: str, older: Path) -> None:
    expected = json.loads((older / f"{name}.expected.json").read_text(encoding="utf-8"))
    assert_same(write_runs.figures(name), expected, name)


def test_every_row_is_read_back_as_the_result_it_was() -> None:
    readers = {"attacks": AttackResult, "evaluations": Evaluated, "certificates": Certified}
    files = [path for path in (FIXTURES / "runs").glob("*/*/*.jsonl") if not is_trace(path)]
    assert {path.parent.name for path in files} == set(readers)
    for path in files:
        for row in read_rows(path):
            assert readers[path.parent.name].from_row(row).to_row() == row  # type: ignore[attr-defined]


def rows_files(run: Path) -> list[Path]:
    return sorted(path for path in run.glob("*/*.jsonl") if path.parent.name != "examples")


def is_trace(path: Path) -> bool:
    return ".trace." in path.name or ".challenges." in path.name


@pytest.mark.parametrize("name", ["texts", "drawn", "images", "function"])
def test_an_interrupted_one_is_continued_to_the_same_rows(name: str, older: Path) -> None:
    whole = {path: path.read_bytes() for path in rows_files(older / name)}
    assert whole
    for path, content in whole.items():
        lines = content.splitlines(keepends=True)
        if not is_trace(path):  # Two rows are missing, and of a third only the beginning is there.
            path.write_bytes(b"".join(lines[:-3]) + lines[-3][:40])
            header = json.loads(path.with_suffix(".json").read_text())
            assert header.pop("summary")
            header.pop("check")
            path.with_suffix(".json").write_text(json.dumps(header))
    headers = {path: path.with_suffix(".json").read_text() for path in whole if not is_trace(path)}
    for command in write_runs.COMMANDS:
        if name in (command[1], command[-1]) and command[0] in ("attack", "evaluate", "certify"):
            write_runs.call(command)
    assert rows_files(older / name) == sorted(whole)  # Other settings would have had files of their own.
    for path, content in whole.items():
        if name == "function":
            assert path.read_bytes() == content
        before, after = ([json.loads(line) for line in text.splitlines()] for text in (content, path.read_bytes()))
        for row in (*before, *after):
            del row["check"]
        assert_same(after, before, path.name)
    original = Path(FIXTURES / "runs")
    for path in headers:
        known, now = (
            json.loads(each.read_text())
            for each in (original / path.relative_to(older).with_suffix(".json"), path.with_suffix(".json"))
        )
        assert set(known) == set(now)
        for key in set(known) - {"check", *CLOCKS}:
            assert_same(now[key], known[key], f"{path.name}: {key}")


def test_a_finished_one_is_left_alone(older: Path) -> None:
    before = {path: path.read_bytes() for path in (older / "function").rglob("*") if path.is_file()}
    for command in write_runs.FUNCTION:
        found = json.loads(write_runs.call([*command, "--json"]).splitlines()[-1])
        assert found.get("attacked_now", found.get("asked_now")) == 0
    assert {path: path.read_bytes() for path in (older / "function").rglob("*") if path.is_file()} == before
