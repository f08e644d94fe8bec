"""Evaluations in a terminal of eighty columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.report.cells import stack
from isthmus.report.evaluation.view import EvaluationView, pool_splits
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds, three, three_bounds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


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
