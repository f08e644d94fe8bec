"""Explanations in the terminal: coloured words, and the largest weights as numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.core.visible import visible
from isthmus.report.explanation.view import LEGEND, UNDERLINED, find_changed_places, heaviest, largest_weight, notes
from isthmus.report.numerals import percent
from isthmus.runs.explained import Explained, Reading

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from isthmus.explanations.base import Explanation

_FOR, _AGAINST = (31, 119, 180), (200, 95, 10)


def print_explained(console: Console, explained: Sequence[Explained]) -> None:
    """Print every text with its words coloured; the attacked text below it, another model beside it."""
    from rich.text import Text

    for each in explained:
        console.print()
        truth = f"   truly {visible(each.truth, everything=True)}" if each.truth is not None else ""
        console.print(Text.assemble((visible(each.title, everything=True), "bold"), (truth, "dim")))
        columns = [_column(reading, len(each.readings) > 1) for reading in each.readings]
        if len(columns) == 1:
            console.print(*columns[0], sep="\n")
        else:
            console.print(_lay_side_by_side(columns))
    if explained:
        console.print()
        console.print(Text(LEGEND + (UNDERLINED if any(each.attacked for each in explained) else ""), style="dim"))
        for note in notes(explained):
            console.print(Text(note, style="dim"))


def _lay_side_by_side(columns: Sequence[Sequence[Group]]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 3, 0, 0), expand=True)
    for _ in columns:
        table.add_column(ratio=1, overflow="fold")
    for sides in zip(*columns, strict=True):
        table.add_row(*sides)
    return table


def _column(reading: Reading, named: bool) -> list[Group]:
    """One model's explanation of the text, and of the attacked text."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    found_sides: list[Group] = []
    lines: list[Any] = [Text(visible(reading.model, everything=True), style="italic")] if named else []
    for (side, found), changed in zip(reading.sides, find_changed_places(reading), strict=True):
        for row, label in enumerate(found.classes):
            head = f"{visible(found.labels[label], everything=True)} {percent(found.scores[label])}"
            own = " (predicted)" if label == found.prediction else ""
            lines.append(Text.assemble((f"{side}  " if side else "", "dim"), (head, "bold"), (own, "dim")))
            lines.append(Padding(_colour(found, row, changed), (0, 0, 0, 2)))
            lines.append(Padding(Text(heaviest(found, row), style="dim"), (0, 0, 0, 2)))
        found_sides.append(Group(*lines))
        lines = []
    return found_sides


def _colour(found: Explanation, row: int, changed: Collection[int] = ()) -> Text:
    from rich.text import Text

    largest = largest_weight(found, row)
    text, place = Text(), -1
    for piece, weight in found.pieces(row):
        place += weight is not None
        strength = abs(weight) / largest if weight is not None and largest and math.isfinite(weight) else 0.0
        style = "" if strength < 0.05 else f"on {_shade(_FOR if (weight or 0) > 0 else _AGAINST, strength)}"
        if weight is not None and place in changed:
            style = f"underline {style}"
        text.append(visible(piece, everything=True), style=style.strip())
    return text


def _shade(colour: tuple[int, int, int], strength: float) -> str:
    """A colour between the terminal's dark grey and its full strength."""
    red, green, blue = (round(30 + (part - 30) * strength) for part in colour)
    return f"#{red:02x}{green:02x}{blue:02x}"
