"""Rows of an attack, made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

MakeRow = Callable[..., dict[str, Any]]


def _make_row(key: str = "test:0", outcome: str = "succeeded", **changes: Any) -> dict[str, Any]:
    right = outcome in ("succeeded", "failed", "timed_out")
    before = {"succeeded": 1, "failed": 1, "timed_out": 1, "skipped": 0}.get(outcome)
    row = {
        "id": key,
        "outcome": outcome,
        "label": 1,
        "prediction_before": before,
        "prediction_after": 0 if outcome == "succeeded" else before,
        "original": {"text": "a quiet film"},
        "perturbed": {"text": "a qiuet film"} if outcome == "succeeded" else {"text": "a quiet film"},
        "score_before": [0.1, 0.9] if right else ([0.8, 0.2] if outcome == "skipped" else None),
        "score_after": [0.7, 0.3] if outcome == "succeeded" else [0.1, 0.9],
        "logical_queries": 10 if right else 1,
        "physical_queries": 9 if right else 1,
        "words": 3,
        "edits": [],
        "words_changed": 1 / 3 if outcome == "succeeded" else 0.0,
        "seed": 0,
        "reason": "no" if outcome == "error" else None,
    }
    return {**row, **changes}


@pytest.fixture(scope="session")
def make_row() -> MakeRow:
    return _make_row
