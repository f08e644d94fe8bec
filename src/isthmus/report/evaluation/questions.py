"""Question answering: exact match and F1, for adversarial questions also by worst variant."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.core.statistics import Interval
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.marks import visible
from isthmus.summaries.questions import QuestionSummary

_PARTS = {"overall": "", "original": "original questions", "worst": "worst variant of each"}


@dataclass(frozen=True)
class QuestionLine:
    """One line of the table."""

    name: str
    note: str
    is_part: bool
    exact_match: Interval
    f1: Interval


def question_lines(view: EvaluationView) -> list[QuestionLine]:
    """All questions; for adversarial sets also the original questions, and the worst variant of each."""
    summary = view.summary
    parts = summary.parts if isinstance(summary, QuestionSummary) else {}
    return [
        QuestionLine(
            name=visible(_PARTS[name] or view.key, everything=True),
            note=f"n {part.n:,}",
            is_part=bool(_PARTS[name]),
            exact_match=part.exact_match,
            f1=part.f1,
        )
        for name, part in parts.items()
    ]
