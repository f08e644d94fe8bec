"""What stands at the top of the page, and the words of detectors."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.report.attack.detector import describe_answer
from isthmus.report.attack.terminal import attack_tables, detection_table, footnotes, print_examples, verdict
from isthmus.report.attack.terms import terms
from isthmus.report.attack.view import AttackView
from isthmus.report.page import _TEMPLATES, render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

AddAttack = Callable[..., None]
MakeRow = Callable[..., dict[str, Any]]
CSS = (_TEMPLATES / "report.css").read_text(encoding="utf-8")


def words_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page.partition("<body>")[2]).split())


def test_the_page_begins_with_what_was_asked(detector: RunFolder) -> None:
    assert terms(read_run(detector)) == [
        ("attacks", "deepwordbug, pwws; 60 texts of class positive each"),
        ("goal", "texts of class positive pass the detector"),
        (
            "threshold",
            "flagged at a score of 0.5 or more, chosen for a false-positive rate of 1.0 % on clean development data",
        ),
        ("protected", "links, what matches [0-9]+"),
        ("limits", "at most 500 queries per text"),
    ]
    page = render(read_run(detector))
    assert page.index('class="terms"') < page.index('class="headline') < page.index("<table")


def test_attacks_that_differ_are_told_apart(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> None:
    same = read_run(run_folder).attacks[1].settings
    rows = [make_row(number, "failed", random.Random(0)) for number in range(9)]
    add_attack(run_folder, "pwws", rows, settings={**same, "limits": {"budget": 9}})
    add_attack(run_folder, "leet", rows, settings={**same, "goal": {"kind": "targeted", "target": "positive"}})
    found = dict(terms(read_run(run_folder)))
    assert found["goal"] == "any wrong class"
    assert found["limits"] == "deepwordbug: no limit on queries or time; pwws: at most 9 queries per text"
    assert found["not counted above"].startswith("leet:")


def test_a_curve_over_queries_names_its_rate(rich_run: RunFolder) -> None:
    caption = "if the attacker may spend at most N queries"
    assert f"Robust accuracy {caption}" in words_of(render(read_run(rich_run)))
    both = RunFolder(Path(__file__).parents[2] / "fixtures" / "runs" / "function")  # two attacks, and an evasion
    assert f"Accuracy or share caught after the attack {caption}" in words_of(render(read_run(both)))


def test_a_detector_flags_or_lets_pass(detector: RunFolder) -> None:
    run = read_run(detector)
    text = words_of(render(run))
    assert "positive caught before the attack 100.0 %" in text
    assert "positive caught after the attack 33.3 %" in text
    assert "positive caught (true-positive rate)" in text
    assert "catches 60, at a false-positive rate of 2.0 % (88.0–98.0)" in text
    assert "caught before caught after attack success" in text
    assert "Share caught after the attack if the attacker may spend" in text
    for word in ("clean accuracy", "robust accuracy", "correct"):
        assert word not in text.partition("How to read the figures")[0]
    assert "original flagged , score of positive" in text
    assert "adversarial passed , score of positive" in text
    assert "adversarial negative" not in text
    stream = io.StringIO()
    console = Console(file=stream, width=100)
    print_examples(console, run.attacks[0], 1)
    console.print(detection_table(run.attacks[0]))
    console.print(verdict(run))
    for table in attack_tables(run):
        console.print(table)
    console.print(footnotes(run))
    assert "flagged → passed" in stream.getvalue()
    assert "positive caught (threshold 0.5)" in stream.getvalue()
    assert "0.654" not in stream.getvalue()
    for word in ("clean", "robust", "correct"):
        assert word not in stream.getvalue().replace("clean texts", "")


@pytest.mark.parametrize(
    ("threshold", "scores", "prediction", "said"),
    [
        (0.2, [0.7, 0.3], 0, "flagged"),
        (0.2, [0.9, 0.1], 0, "passed"),
        (None, [0.7, 0.3], 0, "passed"),
        (None, [0.3, 0.7], 1, "flagged"),
        (0.2, (), None, "no answer"),
    ],
)
def test_the_threshold_decides(threshold: float | None, scores: Any, prediction: Any, said: str) -> None:
    settings = {"goal": {"kind": "evasion", "from_label": "spam"}}
    view = AttackView("leet", {"settings": settings, "labels": ["ham", "spam"], "threshold": threshold}, [])
    assert describe_answer(view, prediction, scores) == (said, scores[1] if scores else None)
