from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus.attacks.result import AttackResult
from isthmus.cli.gate import FAILED, INCONCLUSIVE, PASSED, PrintedGate, verdict
from isthmus.core.errors import UsageError
from isthmus.core.statistics import wilson
from isthmus.report.attack.view import AttackView
from isthmus.report.view import RunView
from isthmus.runs.folder import DataRecord, ModelRecord, RunFolder, RunRecord


@pytest.mark.parametrize(
    ("right", "n", "least", "code"),
    [
        (90, 100, 0.5, PASSED),
        (10, 100, 0.5, FAILED),
        (50, 100, 0.5, INCONCLUSIVE),
        (0, 100, 0.0, PASSED),
        (100, 100, 1.0, INCONCLUSIVE),
        (0, 0, 0.4, INCONCLUSIVE),
    ],
)
def test_the_interval_decides(right: int, n: int, least: float, code: int) -> None:
    assert verdict(wilson(right, n), least) == code


def test_several_rates_can_have_a_bar() -> None:
    assert PrintedGate.parse("racc=0.40, sacc=0.85").least == {"racc": 0.4, "sacc": 0.85}


@pytest.mark.parametrize(("under", "over"), [("racc=0.9,racc=0.1", None), (None, "asr=0.1, asr=0.9")])
def test_a_rate_has_one_bar(under: str | None, over: str | None) -> None:
    with pytest.raises(UsageError, match="twice: give it once"):
        PrintedGate.parse(under, over=over)


def test_clean_texts_without_an_answer_keep_no_ceiling(make_run: Callable[..., RunView]) -> None:
    console = Console(file=io.StringIO(), width=100)
    run = make_run(pwws=[("failed", 5)] * 10)
    (view,) = run.attacks
    found = {"fpr": wilson(0, 30).to_dict(), "negatives": 30, "negatives_without_answer": 0}
    for without, code in {0: PASSED, 30: INCONCLUSIVE}.items():
        header = {**view.header, "detection": found | {"negatives_without_answer": without}}
        asked = replace(run, attacks=(replace(view, header=header),))
        assert PrintedGate({}, {"fpr": 0.2}).judge(console, asked, ["pwws"]) == code
    assert "passes only if 30 clean texts of other classes without an" in console.file.getvalue()  # type: ignore[attr-defined]


def test_examples_on_which_nothing_was_tried_do_not_pass_a_bar(make_run: Callable[..., RunView]) -> None:
    console = Console(file=io.StringIO(), width=100)
    tried = make_run(pwws=[("failed", 5)] * 90 + [("succeeded", 5)] * 10)
    assert PrintedGate({"racc": 0.7}).judge(console, tried, ["pwws"]) == PASSED
    untried = make_run(pwws=[("failed", 0)] * 60 + [("failed", 5)] * 30 + [("succeeded", 5)] * 10)
    assert PrintedGate({"racc": 0.7}).judge(console, untried, ["pwws"]) == INCONCLUSIVE
    assert PrintedGate({"racc": 0.1}).judge(console, untried, ["pwws"]) == PASSED
    assert "passes only if 60 examples without candidates count as robust" in console.file.getvalue()  # type: ignore[attr-defined]


def test_attacks_that_pass_alone_are_also_judged_together(make_run: Callable[..., RunView]) -> None:
    halves = [("failed", 5)] * 50 + [("succeeded", 5)] * 50
    run = make_run(pwws=halves, deepwordbug=halves[::-1])
    console = Console(file=io.StringIO(), width=100)
    assert PrintedGate({"racc": 0.3}).judge(console, run, ["pwws"]) == PASSED
    assert PrintedGate({"racc": 0.3}).judge(console, run, ["pwws", "deepwordbug"]) == FAILED
    assert "all together racc 0.000" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunView]:
    """Runs of attacks given as outcomes and numbers of candidates."""

    def make(**attacks: list[tuple[str, int]]) -> RunView:
        views = tuple(
            AttackView(name, {}, [_row(number, *kind) for number, kind in enumerate(kinds)])
            for name, kinds in attacks.items()
        )
        record = RunRecord(ModelRecord("toy"), DataRecord("reviews.csv", "reviews"))
        return RunView("run", RunFolder(tmp_path), record, views, [])

    return make


def _row(number: int, outcome: Any, candidates: int) -> AttackResult:
    return AttackResult(
        str(number), outcome, 1, {}, {}, candidates=candidates, prediction_before=1, words=3, words_changed=0.3,
        logical_queries=4, physical_queries=4,
    )  # fmt: skip
