"""A classifier that needs no training, data for it, and the command line as a function."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.app import run

TOY = '''
"""Counts good and bad words; unknown words count nothing, so misspelling a word takes it away."""
GOOD, BAD = {"good", "great", "lovely", "fine"}, {"bad", "awful", "dull", "poor"}

def classify(texts):
    rows = []
    for text in texts:
        if "boom" in text:
            raise RuntimeError("the model cannot read this")
        words = text.lower().split()
        value = sum(word in GOOD for word in words) - sum(word in BAD for word in words) + 0.25
        p = 1 / (1 + 2.718281828 ** -value)
        rows.append([1 - p, p])
    return rows

def entails(pairs):
    return classify([pair["hypothesis"] for pair in pairs])

def swapped(texts):
    return [row[::-1] for row in classify(texts)]

def not_a_number(texts):
    return [[float("nan")] * 2 for _ in texts]

def wrong_shape(texts):
    return [[0.5, 0.5]] * (len(texts) + 1)
'''


@dataclass(frozen=True)
class Ended:
    """What one command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out.strip().splitlines()[-1])
        assert isinstance(value, dict)
        return value


Command = Callable[..., Ended]


@pytest.fixture
def isthmus(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run one command line in this process."""

    def command(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["isthmus", *map(str, arguments)])
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return command


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the toy classifier as `toy:classify` and reviews.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("toy", None)
    write_reviews(tmp_path / "reviews.csv")
    return tmp_path


def write_reviews(path: Path, n: int = 60) -> None:
    """Every third good review and every fourth bad one holds two telling words, the others one."""
    good, bad = ["good", "great", "lovely", "fine"], ["bad", "awful", "dull", "poor"]
    lines = ["text,label"]
    for number in range(n):
        words = (good if number % 2 else bad)[number // 2 % 4 :] or ["fine"]
        telling = " and ".join(words[: 2 if number % 3 == 0 else 1])
        lines.append(f"a {telling} film number {number},{'positive' if number % 2 else 'negative'}")
    path.write_text("\n".join(lines) + "\n")
