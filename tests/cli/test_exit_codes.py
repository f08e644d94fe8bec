"""Foreign code does not choose the exit code, and the table of exit codes is that of the program."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from isthmus.core import errors
from isthmus.core.errors import ExitCode, IsthmusError

ROOT = Path(__file__).parents[2]
GATED = ("--data", "reviews.csv", "--attack", "deepwordbug", "--n", "20", "--fail-under", "racc=0.01")
LEAVING = """
import sys
from toy import classify

class Pipeline:
    classes_ = ["negative", "positive"]
    def fit(self): ...
    def predict(self, texts): ...
    def predict_proba(self, texts): sys.exit(0)

class Victim:
    labels, stochastic = ("negative", "positive"), False
    def scores(self, texts, keys=None): sys.exit(0)

class NoLabels:
    stochastic = False
    @property
    def labels(self): sys.exit(0)
    def scores(self, texts, keys=None): return classify(list(texts))

calls = 0

def at_once(texts):
    sys.exit(0)

def later(texts):
    global calls
    calls += 1
    if calls > 3:
        sys.exit(0)
    return classify(texts)

def ends_file(texts):
    raise EOFError

def cancelled(texts):
    import asyncio
    raise asyncio.CancelledError("the loop was closed")

class Cancelled(Victim):
    def scores(self, texts, keys=None): cancelled(texts)

def later_silent(texts):
    global calls
    calls += 1
    if calls > 3:
        raise ValueError("gone")
    return classify(texts)

pipeline, victim, no_labels, cancelled_victim = Pipeline(), Victim(), NoLabels(), Cancelled()
"""


@pytest.fixture
def leaving(place: Path) -> Path:
    (place / "leaving.py").write_text(LEAVING)
    for name in ("at_import", "typer_exit", "leaving"):
        sys.modules.pop(name, None)
    return place


@pytest.mark.parametrize(
    "model", ["at_once", "pipeline", "victim", "no_labels", "ends_file", "cancelled", "cancelled_victim"]
)
@pytest.mark.parametrize("verb", ["attack", "evaluate"])
def test_a_victim_that_calls_sys_exit_passes_no_gate(isthmus: Any, leaving: Path, verb: str, model: str) -> None:
    gate = GATED if verb == "attack" else ("--on", "reviews.csv", "--fail-under", "accuracy=0.01")
    ended = isthmus(verb, f"leaving:{model}", *gate)
    assert ended.code == ExitCode.ERROR
    assert "passed" not in ended.out
    assert "error:" in ended.err
    assert "Aborted" not in ended.err


def test_one_that_leaves_in_the_middle_neither(isthmus: Any, leaving: Path) -> None:
    ended = isthmus("attack", "leaving:later", *GATED)
    assert ended.code != ExitCode.PASSED
    assert "SystemExit" in ended.out + ended.err


def test_without_an_answer_nothing_passes_whatever_the_bar(isthmus: Any, leaving: Path) -> None:
    gate = ("--fail-under", "racc=0", "--no-label-check", "--json")
    ended = isthmus("attack", "leaving:later_silent", "--data", "reviews.csv", "--attack", "deepwordbug", *gate)
    assert ended.code == ExitCode.ERROR
    assert "passed" not in ended.out + ended.err
    assert json.loads(ended.out.splitlines()[-1])["gate"]["exit_code"] == ExitCode.ERROR


WAYS = [
    "import sys; sys.exit(0)",
    "raise SystemExit",
    "import typer; raise typer.Exit()",
    "import asyncio; raise asyncio.CancelledError",
]


@pytest.mark.parametrize("way", WAYS)
def test_nor_a_module_that_leaves_while_it_is_imported(isthmus: Any, leaving: Path, way: str) -> None:
    (leaving / "at_import.py").write_text(way)
    ended = isthmus("attack", "at_import:model", *GATED)
    assert ended.code == ExitCode.ERROR
    assert "error: " in ended.err


def test_what_is_no_exception_is_no_failed_gate(isthmus: Any, leaving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*given: object, **options: object) -> None:
        raise asyncio.CancelledError("the loop was closed")

    monkeypatch.setattr("isthmus.data.load_data", load)
    ended = isthmus("attack", "toy:classify", *GATED)
    assert ended.code == ExitCode.ERROR
    assert "CancelledError: the loop was closed" in ended.err


@pytest.mark.parametrize("way", [SystemExit(0), SystemExit(None), SystemExit("why")])
def test_whoever_calls_it(isthmus: Any, leaving: Path, monkeypatch: pytest.MonkeyPatch, way: SystemExit) -> None:
    def load(*given: object, **options: object) -> None:
        raise way

    monkeypatch.setattr("isthmus.data.load_data", load)
    ended = isthmus("attack", "toy:classify", *GATED)
    assert ended.code == ExitCode.ERROR
    assert "ended the process: sys.exit(" in ended.err


def test_a_file_that_ends_too_early_is_no_failed_gate(
    isthmus: Any, leaving: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*given: object, **options: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr("isthmus.data.load_data", load)
    ended = isthmus("attack", "toy:classify", *GATED)
    assert ended.code == ExitCode.ERROR
    assert "Ran out of input" in ended.err


def test_ctrl_c_stays_what_it_is(isthmus: Any, leaving: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isthmus.data.load_data", load)
    assert isthmus("attack", "toy:classify", *GATED).code == ExitCode.INTERRUPTED


def test_the_page_lists_every_exit_code_and_no_other() -> None:
    text = (ROOT / "docs/exit-codes.md").read_text(encoding="utf-8")
    listed = [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)]
    assert listed == sorted(ExitCode)


def test_every_error_has_one_of_them() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, IsthmusError)]
    assert {kind.exit_code for kind in kinds} == {ExitCode.ERROR, ExitCode.BROKEN_CERTIFICATE}
    assert all(isinstance(kind.exit_code, ExitCode) for kind in kinds)


def test_no_command_writes_an_exit_code_as_a_number() -> None:
    """`typer.Exit(1)` would be a code that the table does not know of."""
    for path in (ROOT / "src/isthmus/cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Exit":
                assert not any(isinstance(given, ast.Constant) for given in node.args), path


def test_usage_errors_of_the_command_line_are_errors(isthmus: Any, place: Path) -> None:
    ended = isthmus("attack", "--no-such-option")
    assert ended.code == ExitCode.ERROR
