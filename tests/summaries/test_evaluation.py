"""The figures of an evaluation against closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest

from isthmus.core.statistics import wilson
from isthmus.runs.evaluated import Evaluated
from isthmus.summaries import evaluation as figures

LABELS = ["negative", "positive"]


def summarise(rows: list[dict[str, Any]], *more: Any) -> dict[str, Any]:
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
    assert (found["n"], found["answered"], found["errors"]) == (5, 4, 1)
    figures = found["ways"]["model"]
    expected = wilson(3, 4)
    assert figures["accuracy"] == pytest.approx(
        {"estimate": 0.75, "low": expected.low, "high": expected.high}, abs=1e-6
    )
    assert figures["confidence"]["estimate"] == pytest.approx(0.85)
    entropy = -(2 * math.log(0.9) + math.log(0.8) + math.log(0.2)) / 4
    assert figures["cross_entropy"]["estimate"] == pytest.approx(entropy, abs=1e-6)
    assert figures["brier"]["estimate"] == pytest.approx((2 * 0.02 + 0.08 + 1.28) / 4)
    assert [(each["label"], each["n"]) for each in figures["classes"]] == [("negative", 2), ("positive", 2)]
    assert [each["accuracy"]["estimate"] for each in figures["classes"]] == [1.0, 0.5]
    # 0.9 falls into one bin (2 of 2 right), 0.8 into another (1 of 2).
    assert figures["calibration"]["ece"]["estimate"] == pytest.approx((2 * 0.1 + 2 * 0.3) / 4)
    assert sum(each["count"] for each in figures["calibration"]["bins"]) == 4
    assert found["reasons"] == [{"reason": "it cannot read this", "count": 1}]
    assert "original" not in found


def test_pairs_with_two_answers_are_compared() -> None:
    rows = [row(n, 1, 0.2, original=0.9) for n in range(8)]  # lost
    rows += [row(8, 1, 0.9, original=0.2), row(9, 0, 0.9, original=0.9)]  # won, kept
    rows += [row(10, 0, None, original=0.9), row(11, 0, 0.9)]  # no answer, no original
    found = summarise(rows, LABELS, ["model"], "model")
    assert found["original"]["n"] == 11
    difference = found["difference"]["model"]
    assert (difference["n"], difference["lost"], difference["won"]) == (10, 8, 1)
    assert difference["accuracy"]["estimate"] == pytest.approx(-0.7)
    assert difference["accuracy"]["low"] < -0.7 < difference["accuracy"]["high"] < 0
    assert difference["p_value"] == pytest.approx(2 * (1 + 9) / 2**9, abs=1e-6)


def test_nothing_answered_gives_no_numbers() -> None:
    found = summarise([row(0, 0, None)], LABELS, ["model"], "model")
    assert found["ways"]["model"]["accuracy"]["estimate"] is None
    assert found["ways"]["model"]["calibration"]["bins"] == []
    assert found["errors"] == 1


def test_a_class_that_is_not_in_the_set_is_left_out() -> None:
    found = summarise([row(0, 1, 0.9)], LABELS, ["model"], "model")
    assert [each["label"] for each in found["ways"]["model"]["classes"]] == ["positive"]
