"""Question answering: exact match and F1, for adversarial questions also by worst variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.statistics import Interval
from isthmus.report.cells import stack
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds
from isthmus.summaries.questions import QuestionSummary

if TYPE_CHECKING:
    from rich.table import Table

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


def question_table(views: Sequence[EvaluationView]) -> Table:
    """Exact match and F1 of every set, for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("questions", overflow="fold", min_width=14, vertical="top")
    table.add_column("exact match", justify="right", no_wrap=True)
    table.add_column("F1", justify="right", no_wrap=True)
    for line in (line for view in views if view.is_finished for line in question_lines(view)):
        indent = "  " if line.is_part else ""
        name = Text.assemble(indent + line.name, (f"\n{indent}{line.note}", "dim"))
        cells = [
            stack(percent(each.estimate), percent_bounds(each, unit=False), "" if line.is_part else "bold")
            for each in (line.exact_match, line.f1)
        ]
        table.add_row(name, *cells)
    return table
