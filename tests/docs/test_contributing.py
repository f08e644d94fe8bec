"""CONTRIBUTING.md to the letter: its code blocks are put where it says, and what they add passes the contracts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n# (\S+?\.py)(?:, (.*?))?\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source and of the contract tests, with the blocks of the page put in."""
    place = tmp_path_factory.mktemp("clone")
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", place / "src", ignore=leave)
    for folder in ("attacks", "defences", "support"):
        shutil.copytree(ROOT / "tests" / folder, place / "tests" / folder, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", place)
    shutil.copy(ROOT / "tests" / "conftest.py", place / "tests")
    for name, where, code in BLOCK.findall(PAGE):
        file = place / name
        if not where:
            assert not file.exists(), f"{name} is there already"
            file.write_text(code)
            continue
        text = file.read_text()
        if where.startswith("before "):
            anchor = re.search(rf"^{where.removeprefix('before ')}\b.*= \{{\n", text, re.MULTILINE)
            assert anchor is not None
            text = f"{text[: anchor.start()]}{code}\n\n{text[anchor.start() :]}"
        elif "behind " in where:
            behind = where.split("behind ")[1]
            text, count = re.subn(rf"^( *{re.escape(behind)}\n)", rf"\g<1>{code}", text, flags=re.MULTILINE)
            assert count == 1
        else:
            table = where.removeprefix("in ")
            text, count = re.subn(rf"^({table}\b.*= \{{\n)", rf"\g<1>{code}", text, count=1, flags=re.MULTILINE)
            assert count == 1
        file.write_text(text)
    return place


def test_the_page_has_the_blocks() -> None:
    found = [(name, where) for name, where, _ in BLOCK.findall(PAGE)]
    assert len(found) == PAGE.count("```python") == 8


@pytest.mark.parametrize(
    ("file", "which"),
    [
        ("tests/attacks/test_contract.py", "shout or every_attack_has_a_row"),
        ("tests/attacks/test_public.py", "test_"),
        ("tests/defences/test_contract.py", "margin_penalty or the_table or the_public"),
    ],
)
def test_what_it_adds_passes_the_contract(copy: Path, file: str, which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, "-k", which]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    # Where nothing is chosen pytest ends with another code.
    assert done.returncode == 0, done.stdout[-3000:]


def test_what_it_adds_is_listed(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    for family, name, says in (("attacks", "shout", "capitals"), ("defences", "margin_penalty", "far apart")):
        command = [sys.executable, "-m", "isthmus", "list", family]
        shown = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True).stdout
        assert re.search(rf"{name} .*{says}", shown)


def test_what_it_adds_passes_the_linter(copy: Path) -> None:
    files = sorted({name for name, _, _ in BLOCK.findall(PAGE)})
    for check in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        command = [sys.executable, "-m", "ruff", *check, *files]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
