"""Every command of every page runs as it is written, on toy data and at small sizes.

The working folder holds what the pages take for granted under the names they use (`workshop`): a folder of that name
stands before an asset or a hub name. Sizes are made small by options at the end of a command; nothing else is changed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documented
import pytest
import workshop
from typer.main import get_command

from isthmus.cli.app import app
from isthmus.core import catalog
from isthmus.data import load_data

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *documented.pages("docs", "docs/guides")]
VERBS = get_command(app).commands  # type: ignore[attr-defined]
SMALL = {
    "train": ("--limit", "48", "--batch-size", "8", "--lr", "0.01"),
    "attack": ("--n", "8", "--no-label-check"),
    "evaluate": ("--n", "6", "--no-label-check", "--latency", "0"),
    "certify": ("--n", "2", "--no-label-check"),
    "measure": ("--n", "8"),
}
METHODS = {
    "gaussian": ("-P", "n0=10", "-P", "n=50"),
    "synonym": ("-P", "n0=10", "-P", "n=50"),
    "transferability": ("-P", "heads=2", "-P", "fit_steps=5"),
    "embedding_pgd": ("-P", "steps=2", "-P", "draws=2", "-P", "fresh=4"),
}
GRADIENT = {entry.name for entry in catalog.entries("attacks") if entry.kind == "gradient"}
JUDGED = (0, 1, 3)
"""What a bar may say of a toy model."""


def commands(page: str) -> Iterator[str]:
    """The command lines of a page: lines of code that begin with the program's name."""
    for command in documented.commands((ROOT / page).read_text(encoding="utf-8"), "isthmus"):
        if command.split()[1] in VERBS:
            yield command


CASES = [(page, command) for page in PAGES for command in dict.fromkeys(commands(page))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A reader's folder; runs are made in it when a command first speaks of one."""
    with workshop.opened(tmp_path_factory.mktemp("reader")) as folder:
        yield folder


def needed(command: str) -> Iterator[str]:
    """Runs that a command reads."""
    made = re.search(r"--out runs/([\w-]+)", command)
    for pattern, names in workshop.PATTERNS.items():
        command = command.replace(pattern, names)
    for name in re.findall(r"runs/([\w-]+)", command):
        if made is None or name != made.group(1):
            yield name


def prepare(command: str) -> None:
    for name in needed(command):
        workshop.make_run(name)
    for run_name, attack in re.findall(r"runs/([\w-]+)/attacks/(\w+)\.(?:jsonl|npz)", command):
        attacked(run_name, attack)
    if (found := re.search(r"-P (?:attack|on)=(\w+)", command)) and "measure" in command:
        for name in needed(command):
            attacked(name, found.group(1))
    if found := re.search(r"isthmus (?:explain|export) .*--attack (\w+)", command):
        for name in needed(command):
            attacked(name, found.group(1))
    if "--on adversarial.jsonl" in command and not Path("adversarial.jsonl").exists():
        exported = "isthmus export runs/demo adversarial.jsonl --attack pwws"
        prepare(exported)
        assert workshop.isthmus(*exported.split()[1:]) == 0


def attacked(name: str, attack: str) -> None:
    if attack in GRADIENT:
        return  # A measure makes it by itself.
    workshop.attack_run(name, attack)


@pytest.mark.parametrize(("page", "command"), CASES, ids=[f"{page}: {command[8:60]}" for page, command in CASES])
def test_it_runs(page: str, command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del page
    prepare(command)
    words = shlex.split(command.replace("localhost:8000", f"localhost:{port()}"))[1:]
    words = [name for word in words for name in expanded(word)]
    small = list(SMALL.get(words[0], ()))
    if words[0] == "train":
        small += ["--epochs", "6"]  # As every run here: a page that trains what another page reads finds it there.
    for method, more in METHODS.items():
        small = [*small, *more] if method in words else small
    if {"trade_off", "theorems"} & {*words}:
        small = []  # One reads what is there, the other toys.
    code = workshop.isthmus(*words, *small)
    told = capsys.readouterr()
    judges = "--fail-under" in words or words[0] == "doctor"
    assert code in (JUDGED if judges else (0,)), told.err[-1500:]


def port() -> str:
    import os

    return os.environ["PORT_OF_THE_PAGE"]


def expanded(word: str) -> list[str]:
    """What a shell makes of a pattern."""
    found = sorted(str(path) for path in Path().glob(word)) if word.startswith("runs/") and "*" in word else []
    return found or [word]


def test_the_pages_have_commands() -> None:
    assert len(CASES) > 100
    assert {words.split()[1] for _, words in CASES} >= {"train", "attack", "evaluate", "certify", "measure"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/attacks.md"])
def test_the_attack_of_a_page_can_be_pasted(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "class Shout" in block]
    names: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(code, page, "exec"), names)
    results = names["Shout"]()(shouting_is_good, load_data(ROOT / "tests/docs/shouted.csv", split="all"))
    assert [result.outcome for result in results] == ["succeeded", "succeeded"]


def shouting_is_good(texts: list[str]) -> list[list[float]]:
    return [[0.1, 0.9] if any(word.isupper() for word in text.split()) else [0.9, 0.1] for text in texts]
