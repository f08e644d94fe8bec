"""The figures of an evaluation against closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import RunError
from isthmus.core.statistics import wilson
from isthmus.runs.evaluated import Evaluated
from isthmus.summaries import evaluation as figures
from isthmus.summaries.evaluation import EvaluationSummary

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"

LABELS = ["negative", "positive"]


def summarise(rows: list[dict[str, Any]], *more: Any) -> EvaluationSummary:
    return figures.summarise_texts([Evaluated.from_row({"outcome": "right", **row}) for row in rows], *more)


def row(number: int, label: int, p: float | None, original: float | None = None, **more: Any) -> dict[str, Any]:
    """An example of class `label` to whose class the model gives p."""

    def scores(value: float | None) -> dict[str, Any]:
        if value is None:
            return {"scores": None, "reason": "it cannot read this"}
        return {"scores": {"model": [value, 1 - value] if label == 0 else [1 - value, value]}}

    found = {"id": str(number), "label": label, **scores(p), **more}
    return found if original is None else {**found, "original": scores(original)}


def test_the_figures_are_those_of_the_answered() -> None:
    rows = [row(0, 0, 0.9), row(1, 0, 0.9), row(2, 1, 0.8), row(3, 1, 0.2), row(4, 1, None)]
    found = summarise(rows, LABELS, ["model"], "model")
    assert (found.n, found.answered, found.errors) == (5, 4, 1)
    assert found.accuracy == wilson(3, 4)
    assert found.confidence.estimate == pytest.approx(0.85)
    entropy = -(2 * math.log(0.9) + math.log(0.8) + math.log(0.2)) / 4
    assert found.cross_entropy.estimate == pytest.approx(entropy)
    assert found.brier.estimate == pytest.approx((2 * 0.02 + 0.08 + 1.28) / 4)
    assert [(each.label, each.n) for each in found.own.classes] == [("negative", 2), ("positive", 2)]
    assert [each.accuracy.estimate for each in found.own.classes] == [1.0, 0.5]
    # 0.9 falls into one bin (2 of 2 right), 0.8 into another (1 of 2).
    assert found.calibration.ece.estimate == pytest.approx((2 * 0.1 + 2 * 0.3) / 4)
    assert sum(each.count for each in found.calibration.bins) == 4
    assert [(each.reason, each.count) for each in found.reasons] == [("it cannot read this", 1)]
    assert found.original is None


def test_pairs_with_two_answers_are_compared() -> None:
    rows = [row(n, 1, 0.2, original=0.9) for n in range(8)]  # lost
    rows += [row(8, 1, 0.9, original=0.2), row(9, 0, 0.9, original=0.9)]  # won, kept
    rows += [row(10, 0, None, original=0.9), row(11, 0, 0.9)]  # no answer, no original
    found = summarise(rows, LABELS, ["model"], "model")
    assert found.original is not None
    assert found.original.n == 11
    difference = found.difference["model"]
    assert (difference.n, difference.lost, difference.won) == (10, 8, 1)
    assert difference.accuracy.estimate == pytest.approx(-0.7)
    assert difference.accuracy.low < -0.7 < difference.accuracy.high < 0
    assert difference.p_value == pytest.approx(2 * (1 + 9) / 2**9)


def test_nothing_answered_gives_no_numbers() -> None:
    found = summarise([row(0, 0, None)], LABELS, ["model"], "model")
    assert math.isnan(found.accuracy.estimate)
    assert found.to_json()["ways"]["model"]["accuracy"] == {"estimate": None, "low": 0.0, "high": 1.0}
    assert found.calibration.bins == ()
    assert found.errors == 1


def test_a_class_that_is_not_in_the_set_is_left_out() -> None:
    found = summarise([row(0, 1, 0.9)], LABELS, ["model"], "model")
    assert [each.label for each in found.own.classes] == ["positive"]


STORED = sorted(path.relative_to(RUNS).as_posix() for path in RUNS.glob("*/evaluations/*.json"))


@pytest.mark.parametrize("name", STORED)
def test_stored_figures_are_read_and_written_without_a_change(name: str) -> None:
    """The bytes of the file: `to_json` has its keys, their order and its digits."""
    stored = json.loads((RUNS / name).read_text("utf-8"))["summary"]
    assert json.dumps(EvaluationSummary.from_json(stored).to_json()) == json.dumps(stored)


def test_stored_figures_of_every_kind_are_among_them() -> None:
    stored = [EvaluationSummary.from_json(json.loads((RUNS / name).read_text("utf-8"))["summary"]) for name in STORED]
    assert {len(found.texts.ways) for found in stored} == {1, 2}
    assert {found.original is None for found in stored} == {True, False}


def test_figures_without_numbers_come_back_without_them() -> None:
    rows = [row(0, 0, None, original=0.9), row(1, 1, 0.9, original=0.8)]
    for found in (summarise(rows, LABELS, ["model"], "model"), summarise(rows[:1], LABELS, ["model"], "model")):
        text = json.dumps(found.to_json())
        assert json.dumps(EvaluationSummary.from_json(json.loads(text)).to_json()) == text


def test_a_header_from_before_the_majority_was_counted_is_read() -> None:
    stored = summarise([row(n, n % 2, 0.9) for n in range(6)], LABELS, ["model"], "model").to_json()
    for name in ("balanced_accuracy", "majority", "only_prediction"):
        del stored["ways"]["model"][name]
    found = EvaluationSummary.from_json(stored)
    assert found.accuracy.estimate == 1
    assert math.isnan(found.balanced_accuracy.estimate)
    assert (found.own.majority, found.own.only_prediction) == (None, None)


@pytest.mark.parametrize(
    "damage", [{"n": None}, {"ways": {}}, {"headline": "average"}, {"reasons": [1]}, {"difference": {"model": {}}}]
)
def test_what_is_no_summary_is_said(damage: dict[str, Any]) -> None:
    stored = summarise([row(0, 1, 0.9)], LABELS, ["model"], "model").to_json()
    with pytest.raises(RunError, match="not the figures of an evaluation"):
        EvaluationSummary.from_json({**stored, **damage})
