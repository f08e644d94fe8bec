"""What a user is told about a victim's answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

MODELS = """
import time
from toy import classify

def margins(texts):
    return [[-3 * (row[1] - 0.5), 3 * (row[1] - 0.5)] for row in classify(texts)]

def hangs(texts):
    time.sleep(1)
    return classify(texts)
"""


@pytest.fixture
def models(place: Path) -> Path:
    sys.modules.pop("odd_models", None)
    (place / "odd_models.py").write_text(MODELS)
    return place


GIVEN = ("--data", "reviews.csv", "--labels", "negative,positive", "--quiet", "--json")


@pytest.mark.parametrize("verb", [("attack", "--attack", "deepwordbug", "--n", 6), ("evaluate",)])
def test_scores_that_are_no_distribution_are_said_once(models: Path, isthmus: Command, verb: tuple[Any, ...]) -> None:
    given = tuple("--on" if verb[0] == "evaluate" and word == "--data" else word for word in GIVEN)
    ended = isthmus(verb[0], "odd_models:margins", *verb[1:], *given)
    assert ended.code == 0
    assert ended.err.count("are no probabilities") == 1
    assert "-V outputs=logits" in ended.err
    stated = isthmus(verb[0], "odd_models:margins", *verb[1:], *given, "-V", "outputs=logits")
    assert "no probabilities" not in stated.err


def test_a_victim_that_never_answers_in_time_is_no_result(models: Path, isthmus: Command) -> None:
    attack = ("attack", "odd_models:hangs", "--attack", "deepwordbug", "--n", 4, *GIVEN, "--no-label-check")
    ended = isthmus(*attack, "-V", "timeout=0.1", "--fail-under", "racc=0")
    assert ended.code == 2
    assert "within 0.1 s" in ended.err
