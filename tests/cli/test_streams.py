"""What a command does with a terminal that is small, gone, full or easily led."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.app import run
from isthmus.cli.console import progress_console, results
from isthmus.core.errors import ExitCode

STEERING = "\x1b]0;owned\x07\x1b[2J \u202egnp.exe \x9b31m"


def in_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f'isthmus() {{ "{sys.executable}" -m isthmus "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_reader_who_leaves_is_no_error() -> None:
    ended = in_shell("isthmus list | head -1; echo ${PIPESTATUS[0]}")
    assert ended.stdout.splitlines()[-1] == "0"
    assert ended.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["isthmus list > /dev/full", "isthmus list --json > /dev/full"])
def test_a_full_disk_under_the_results_is_an_error(line: str) -> None:
    ended = in_shell(line)
    assert ended.returncode == ExitCode.ERROR
    assert "standard output: the disk is full" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_progress_is_none() -> None:
    assert in_shell("isthmus list 2> /dev/full").returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_command_without_streams_ends_as_it_should() -> None:
    assert in_shell("isthmus list >&- 2>&-").returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_encoding_that_is_too_small_loses_no_result(
    place: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    texts = "".join(f"a good film — наш ★ {number},positive\n" for number in range(12))
    (place / "odd.csv").write_text("text,label\n" + texts + "a bad film ★,negative\n", encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    code = run(["attack", "toy:classify", "--data", "odd.csv", "--attack", "deepwordbug", "--n", "12"])
    out.flush()
    assert code == 0
    printed = out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert "deepwordbug" in printed
    assert "\\u2605" in printed
    assert out.errors == "strict"  # as before


@pytest.mark.parametrize("make", [results, progress_console])
def test_nothing_printed_steers_the_terminal(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    console = make(False)
    console.print(STEERING, markup=False)
    table = Table(STEERING)
    table.add_row(STEERING)
    console.print(table)
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert "gnp.exe" in printed
    assert not set("\x1b\x07\u202e\x9b") & set(printed)


def test_the_names_of_a_run_do_not_steer_the_terminal(isthmus: Any, place: Path) -> None:
    rows = [
        f"a {'good' if number % 2 else 'bad'} film {number},{'x' if number % 2 else 'y'}{STEERING}"
        for number in range(40)
    ]
    (place / "odd.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    ended = isthmus(
        "attack", "toy:classify", "--data", "odd.csv", "--attack", "deepwordbug", "--n", 8, "--out", "out\u202e",
        "--no-label-check",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    report = isthmus("report", "out\u202e")
    assert report.code == 0
    for printed in (ended.out, ended.err, report.out, report.err):
        assert not set("\x1b\x07\u202e\x9b") & set(printed)
    page = next(place.glob("out*/report.html")).read_text(encoding="utf-8")
    assert "<svg" in page
    assert not set("\x1b\x07\u202e\x9b") & set(page)
