"""Evaluations in a terminal of eighty columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.report.cells import stack
from isthmus.report.evaluation.questions import question_lines
from isthmus.report.evaluation.speed import HOW_FAST, speed_lines
from isthmus.report.evaluation.view import EvaluationView, pool_splits
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds, three, three_bounds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def print_evaluations(console: Console, views: Sequence[EvaluationView]) -> None:
    """Print the tables of texts and of questions, with their notes."""
    from rich.text import Text

    asked = [view for view in views if view.answers_questions]
    texts = [view for view in views if not view.answers_questions]
    if texts:
        console.print()
        console.print(evaluation_table(texts))
        console.print(evaluation_notes(texts))
    if asked:
        console.print()
        console.print(question_table(asked))
        console.print(Text("Under each figure: its 95 % interval, over groups of questions about one text.", "dim"))
    if any(view.speed for view in views):
        console.print()
        console.print(speed_table(views))
        console.print(Text(HOW_FAST, "dim"))
    for warning in (warning for view in asked for warning in view.warnings()):
        console.print(Text(visible(warning), style="yellow"))


def evaluation_table(views: Sequence[EvaluationView]) -> Table:
    """The figures of the sets, each with its interval, for a terminal of eighty columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("set", overflow="fold", min_width=14, vertical="top")
    for heading in ("accuracy", "calibra-\ntion error", "mean con-\nfidence", "cross-\nentropy", "Brier\nscore"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in (line for view in views if view.is_finished for line in view.lines()):
        name = Text(("  " if line.is_part else "") + line.name)
        if line.note:
            name.append(f"\n{'  ' if line.is_part else ''}{line.note}", style="dim")
        found, ece = line.figures, line.figures.calibration.ece
        table.add_row(
            name,
            stack(
                percent(found.accuracy.estimate),
                percent_bounds(found.accuracy, unit=False),
                "" if line.is_part else "bold",
            ),
            stack(three(ece.estimate), three_bounds(ece)),
            stack(percent(found.confidence.estimate), percent_bounds(found.confidence, unit=False)),
            stack(three(found.cross_entropy.estimate), three_bounds(found.cross_entropy)),
            stack(three(found.brier.estimate), three_bounds(found.brier)),
        )
    return table


def evaluation_notes(views: Sequence[EvaluationView]) -> Text:
    """Notes under the table: differences, classes, and warnings."""
    from rich.text import Text

    text = Text()
    for view in views:
        for line in view.differences():
            text.append(visible(f"{line}\n"))
        classes = view.classes()
        if classes:
            text.append(visible(f"{view.key} by class: {classes}\n"), style="dim")
        if view.balance():
            text.append(visible(f"{view.key}: {view.balance()}\n"), style="dim")
        if view.origin:
            text.append(visible(view.origin) + "\n", style="dim")
        for line in view.warnings():
            text.append(visible(line) + "\n", style="yellow")
    for together in pool_splits(views):
        text.append(f"{together}\n")
    text.append(
        "Under each figure: its 95 % interval. Examples without an answer are excluded. The calibration error is "
        "that of 15 bins of equal width; a small sample makes it larger, which its interval allows for.",
        style="dim",
    )
    return text


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


def speed_table(views: Sequence[EvaluationView]) -> Table:
    """Speed and cost, one line for every set on which the model was timed."""
    from rich.table import Table
    from rich.text import Text

    found = speed_lines(views)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("speed", overflow="fold", min_width=14, vertical="top")
    for heading in found.headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for line in found.lines:
        table.add_row(Text(line.name), *(stack(figure, span) for figure, span in line.cells))
    return table
