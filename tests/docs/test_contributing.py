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
    for folder in ("attacks", "certificates", "defences", "measures", "models", "support"):
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
        if where == "at the end":
            text += code
        elif where.startswith("before "):
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
    assert len(found) == PAGE.count("```python") == 23


@pytest.mark.parametrize(
    ("files", "which"),
    [
        ("tests/attacks/test_contract.py", "shout or every_attack_has_a_row"),
        ("tests/attacks/test_public.py", "test_"),
        ("tests/defences/test_contract.py", "margin_penalty or the_table or the_public"),
        (
            "tests/measures/test_contract.py tests/certificates/test_contract.py tests/models/test_victims.py",
            "margin or word_groups or keywords or the_table or the_public or load_victim_by_python_name",
        ),
    ],
)
def test_what_it_adds_passes_the_contract(copy: Path, files: str, which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files.split(), "-k", which]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    # Where nothing is chosen pytest ends with another code.
    assert done.returncode == 0, done.stdout[-3000:]


def test_what_it_adds_is_listed(copy: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "isthmus", "list"]
    shown = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True).stdout
    for name, says in (
        ("shout", "capitals"), ("margin_penalty", "far apart"), ("margin", "Mean lead"), ("word_groups", "vote over"),
        ("random_weights", "has to beat")
    ):  # fmt: skip
        assert re.search(rf"{name} .*{says}", shown)


def test_what_it_adds_passes_the_linter(copy: Path) -> None:
    files = sorted({name for name, _, _ in BLOCK.findall(PAGE)})
    for check in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        command = [sys.executable, "-m", "ruff", *check, *files]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


USE = """
import numpy as np
import training_toys as toys
from isthmus import attack, certificates, explain, load_data, load_victim, measures
from isthmus.core.types import Example

data = load_data("plots:write_reviews")["all"]
assert (len(data), data.labels) == (60, ("negative", "positive")), data

rule = load_victim("keywords:good,great,lovely", labels=("negative", "positive"))
assert {each.outcome for each in attack(rule, "shout", data)} == {"failed"}  # Its case does not matter to the rule.

# Of nine words in three parts, each with one word of praise: three votes to none.
exact = certificates.WordGroups(groups=3)
text = "good great lovely good great lovely good great lovely"
(found,) = exact(rule, [Example("a", {"text": text}, 1)])
assert (found.outcome, found.strength, found.details["votes"]) == ("certified", 1.0, [0, 3]), found
words = np.array(text.split())
for replaced, lost in (([0], 0), ([0, 3, 6], 1), ([0, 1, 3, 4, 6, 7], 2)):
    changed = words.copy()
    changed[replaced] = "film"
    assert exact.count_votes(rule, {"text": " ".join(changed)}).tolist() == [lost, 3 - lost]

found = explain(rule, [text, "a film"], method="random_weights", classes="all", seed=1)
assert [each.weights.shape for each in found] == [(2, 9), (2, 2)]
assert (explain(rule, text, method="random_weights", classes="all", seed=1).weights == found[0].weights).all()
assert (explain(rule, text, method="random_weights", classes="all").weights != found[0].weights).all()

model = toys.classifier()
(figure,) = measures.Margin()(model, toys.splits(8, 8)).figures
assert figure.name == "margin" and figure.low <= figure.estimate <= figure.high
"""


def test_what_it_adds_does_what_it_says(copy: Path) -> None:
    path = os.pathsep.join(map(str, (copy / "src", copy / "tests/support", copy)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
