"""Evaluations, questions and speed on the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.report.evaluation.figure import group_panels, reliability
from isthmus.report.evaluation.questions import question_lines
from isthmus.report.evaluation.speed import HOW_FAST, speed_lines
from isthmus.report.evaluation.view import EvaluationView, pool_splits
from isthmus.report.marks import visible


def evaluations(views: Sequence[EvaluationView], markup: Any) -> dict[str, Any] | None:
    """The section on evaluations; None if there are none."""
    views = [view for view in views if not view.answers_questions]
    if not views:
        return None
    finished = [view for view in views if view.is_finished]
    drawn = [
        {"svg": markup(reliability(group)), "title": visible(group[0].key, everything=True) if len(group) == 1 else ""}
        for group in group_panels(finished)
    ]
    return {
        "views": finished,
        "figures": [each for each in drawn if each["svg"]],
        "warnings": [warning for view in views for warning in view.warnings()],
        "pooled": [str(each) for each in pool_splits(finished)],
        "stochastic": any(len(view.ways) > 1 for view in views),
    }


def questions(views: Sequence[EvaluationView]) -> dict[str, Any] | None:
    """The section on questions; None if there are none."""
    asked = [view for view in views if view.answers_questions]
    if not asked:
        return None
    warnings = [warning for view in asked for warning in view.warnings()]
    return {"views": [view for view in asked if view.is_finished], "lines": question_lines, "warnings": warnings}


def speed(views: Sequence[EvaluationView]) -> dict[str, Any] | None:
    """The section on speed; None if nothing was timed."""
    found = speed_lines(views)
    if not found.lines:
        return None
    priced = any(view.cost_per_1000 is not None for view in views)
    return {"headings": found.headings, "lines": found.lines, "note": HOW_FAST, "priced": priced}
