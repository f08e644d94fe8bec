"""Explanations in the terminal and as a page: coloured words, and the largest weights as numbers."""

from __future__ import annotations

import html
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.files import write_atomic
from isthmus.core.visible import visible
from isthmus.explanations.parts.display import changed_words, html_words
from isthmus.report.numerals import percent
from isthmus.runs.explained import Explained, Reading

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from isthmus.explanations.base import Explanation

_FOR, _AGAINST = (31, 119, 180), (200, 95, 10)
_HEAVIEST = 5
_LEGEND = "Blue words support the class, orange words oppose it; stronger colours mean larger weights."
_UNDERLINED = " Underlined words were inserted by the attack."


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
            console.print(_beside(columns))
    if explained:
        console.print()
        console.print(Text(_LEGEND + (_UNDERLINED if any(each.attacked for each in explained) else ""), style="dim"))
        for note in _notes(explained):
            console.print(Text(note, style="dim"))


def _beside(columns: Sequence[Sequence[Group]]) -> Table:
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
    for (side, found), changed in zip(reading.sides, _changed(reading), strict=True):
        for row, label in enumerate(found.classes):
            head = f"{visible(found.labels[label], everything=True)} {percent(found.scores[label])}"
            own = " (predicted)" if label == found.prediction else ""
            lines.append(Text.assemble((f"{side}  " if side else "", "dim"), (head, "bold"), (own, "dim")))
            lines.append(Padding(_coloured(found, row, changed), (0, 0, 0, 2)))
            lines.append(Padding(Text(heaviest(found, row), style="dim"), (0, 0, 0, 2)))
        found_sides.append(Group(*lines))
        lines = []
    return found_sides


def _changed(reading: Reading) -> tuple[Collection[int], ...]:
    """Positions of changed words, for every side; the original has none."""
    if reading.attacked is None:
        return ((),)
    return (), changed_words(reading.original, reading.attacked)[1]


def _coloured(found: Explanation, row: int, changed: Collection[int] = ()) -> Text:
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


def largest_weight(found: Explanation, row: int) -> float:
    """The largest absolute weight, ignoring NaN."""
    sizes = np.abs(found.weights[row])
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _shade(colour: tuple[int, int, int], strength: float) -> str:
    """A colour between the terminal's dark grey and its full strength."""
    red, green, blue = (round(30 + (part - 30) * strength) for part in colour)
    return f"#{red:02x}{green:02x}{blue:02x}"


def heaviest(found: Explanation, row: int) -> str:
    """The words with the largest weights, each way."""
    words, weights = found.words, found.weights[row]
    order = np.argsort(-np.abs(weights), kind="stable")
    parts = []
    for name, sign in (("for", 1), ("against", -1)):
        own = [place for place in order.tolist() if weights[place] * sign > 0][:_HEAVIEST]
        if own:
            listed = ", ".join(f"{visible(words[place], everything=True)} {weights[place]:+.3f}" for place in own)
            parts.append(f"{name}: {listed}")
    if not np.isfinite(weights).all():
        parts.append("some weights are not numbers")
    return "   ".join(parts) if parts else "no word has any weight"


def _notes(explained: Sequence[Explained]) -> list[str]:
    """The largest error that a method reports about itself."""
    found: dict[str, float] = {}
    for one in [one for each in explained for reading in each.readings for _, one in reading.sides]:
        for name, values in one.details.items():
            pick = min if name == "variance explained" else max
            numbers = [float(value) for value in values if value is not None and np.isfinite(value)]
            if numbers:
                found[name] = pick([*numbers, *([found[name]] if name in found else [])], key=abs)
    unknown = sum(
        not np.isfinite(one.weights).all()
        for each in explained
        for reading in each.readings
        for _, one in reading.sides
    )
    told = (
        [f"{unknown} texts have weights that are not numbers (NaN), because the model's scores are not."]
        if unknown
        else []
    )
    return told + [f"{name[0].upper()}{name[1:]}: {value:.3g} at worst." for name, value in found.items()]


def write_page(explained: Sequence[Explained], path: Path, title: str) -> None:
    """Write all explanations as one self-contained page."""
    style = (Path(__file__).parents[1] / "templates" / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    name = html.escape(visible(title, everything=True))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{name}</title><style>{style}</style>'
        f"</head><body><main><h1>{name}</h1>{explained_html(explained)}</main></body></html>"
    )
    write_atomic(path, page.encode("utf-8", errors="replace"))


def explained_html(explained: Sequence[Explained]) -> str:
    """Every text as HTML: original beside attacked text, or two models side by side."""
    legend = _LEGEND + (_UNDERLINED if any(each.attacked for each in explained) else "")
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in _notes(explained))
    return f'<p class="note">{legend}</p>{"".join(map(_article, explained))}{notes}'


def _article(each: Explained) -> str:
    truth = f"<span>true label {_safe(each.truth)}</span>" if each.truth is not None else ""
    columns: list[str] = []
    for reading in each.readings:
        name = f'<p class="verdict"><b>{_safe(reading.model)}</b></p>' if len(each.readings) > 1 else ""
        sides = [
            _side(side, found, changed) for (side, found), changed in zip(reading.sides, _changed(reading), strict=True)
        ]
        columns += [name + "".join(sides)] if name else sides
    alone = ' style="grid-template-columns:1fr"' if len(columns) == 1 else ""
    inside = "".join(f"<div>{column}</div>" for column in columns)
    head = f'<header>{truth}<span class="id">{_safe(each.title)}</span></header>'
    return f'<article class="example explained">{head}<div class="sides"{alone}>{inside}</div></article>'


def _side(side: str, found: Explanation, changed: Collection[int]) -> str:
    parts = []
    for row, label in enumerate(found.classes):
        own = " (predicted)" if label == found.prediction else ""
        head = f"{side} <b>{_safe(found.labels[label])}</b> {percent(found.scores[label])}{own}"
        words = html_words(found, row, changed)
        parts.append(f'<p class="verdict">{head}</p><p class="text" dir="auto">{words}</p>')
    return "".join(parts)


def _safe(text: str) -> str:
    return html.escape(visible(text, everything=True))
