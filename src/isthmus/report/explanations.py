"""Explanations on the terminal and as a page: coloured words, and the heaviest of them in figures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.files import write_atomic
from isthmus.core.visible import visible
from isthmus.report.numerals import percent
from isthmus.runs.explain import Explained

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from isthmus.explanations.base import Explanation

_FOR, _AGAINST = (31, 119, 180), (200, 95, 10)
_HEAVIEST = 5
_LEGEND = "Blue words speak for the class, orange ones against it; the stronger the colour, the more."


def print_explained(console: Console, explained: Sequence[Explained]) -> None:
    """Every text with its words coloured, and what an attack made of it below."""
    from rich.text import Text

    for each in explained:
        console.print()
        console.print(Text(visible(each.title, everything=True), style="bold"))
        _print(console, each.explanation, "original" if each.attacked is not None else "")
        if each.attacked is not None:
            _print(console, each.attacked, "attacked")
    if explained:
        console.print()
        console.print(Text(_LEGEND, style="dim"))
        for note in _notes(explained):
            console.print(Text(note, style="dim"))


def _print(console: Console, found: Explanation, side: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    for row, label in enumerate(found.classes):
        head = f"{visible(found.labels[label], everything=True)} {percent(found.scores[label])}"
        own = " (predicted)" if label == found.prediction else ""
        console.print(Text.assemble((f"{side}  " if side else "", "dim"), (head, "bold"), (own, "dim")))
        console.print(Padding(_coloured(found, row), (0, 0, 0, 2)))
        console.print(Padding(Text(heaviest(found, row), style="dim"), (0, 0, 0, 2)))


def _coloured(found: Explanation, row: int) -> Text:
    from rich.text import Text

    largest = float(np.abs(found.weights[row]).max(initial=0.0))
    text = Text()
    for piece, weight in found.pieces(row):
        strength = abs(weight) / largest if weight is not None and largest else 0.0
        style = "" if strength < 0.05 else f"on {_shade(_FOR if (weight or 0) > 0 else _AGAINST, strength)}"
        text.append(visible(piece, everything=True), style=style)
    return text


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
    return "   ".join(parts) if parts else "no word has any weight"


def _notes(explained: Sequence[Explained]) -> list[str]:
    """What a method knows of its own error, at its worst."""
    found: dict[str, float] = {}
    for each in explained:
        for one in (each.explanation, each.attacked):
            for name, values in (one.details if one is not None else {}).items():
                pick = min if name == "variance explained" else max
                numbers = [float(value) for value in values if np.isfinite(value)]
                if numbers:
                    found[name] = pick([*numbers, *([found[name]] if name in found else [])], key=abs)
    return [f"{name[0].upper()}{name[1:]}: {value:.3g} at worst." for name, value in found.items()]


def write_page(explained: Sequence[Explained], path: Path, title: str) -> None:
    """All explanations as one page that needs nothing else."""
    parts = []
    for each in explained:
        parts.append(f"<h2>{html.escape(visible(each.title, everything=True))}</h2>{each.explanation.to_html()}")
        if each.attacked is not None:
            parts.append(f'<p class="side">attacked</p>{each.attacked.to_html()}')
    style = "body{font:16px/1.6 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}h2{font-size:1rem}"
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style><h1>{html.escape(title)}</h1><p>{_LEGEND}</p>{''.join(parts)}</html>"
    )
    write_atomic(path, page)
