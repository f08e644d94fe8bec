from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

import pytest

VERBS = (
    "train", "attack", "certify", "evaluate", "measure", "explain", "report", "export", "convert", "list", "show",
    "show-words", "assets", "doctor",
)  # fmt: skip
NARROW = {**os.environ, "COLUMNS": "80", "LINES": "40", "NO_COLOR": "1"}


def processor_seconds() -> float:
    """Of the programs that ended; the clock on the wall would tell how busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_answers_at_once() -> None:
    command = [sys.executable, "-m", "isthmus", "--help"]
    seconds = []
    for _ in range(5):
        before = processor_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=NARROW)
        seconds.append(processor_seconds() - before)
        if seconds[-1] < 0.7:
            break
    assert min(seconds) < 0.7
    assert all(f" {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("arguments", [["--help"], ["attack", "evaluate", "--help"], ["list"], ["show", "pwws"]])
def test_looking_around_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom isthmus.cli.app import run\n"
        f"assert run({arguments!r}) == 0\n"
        "heavy = {'torch', 'transformers', 'scipy', 'datasets', 'matplotlib', 'jinja2', 'onnxruntime', 'sklearn'}\n"
        "print('imported', *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].split() == ["imported"]


@pytest.mark.parametrize("verb", [(), *[(verb,) for verb in VERBS]])
def test_help_fits_eighty_columns(verb: tuple[str, ...], isthmus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = isthmus(*verb, "--help")
    assert ended.code == 0
    assert max(len(line) for line in ended.out.splitlines()) <= 80
    assert "…" not in ended.out.replace("A,B,…", "").replace("[TEXT]…", "")


def test_no_arguments_show_the_help(isthmus: Any) -> None:
    ended = isthmus()
    assert "Usage: isthmus" in ended.out + ended.err


def test_the_version(isthmus: Any) -> None:
    from isthmus import __version__

    assert isthmus("--version").out == f"isthmus {__version__}\n"
