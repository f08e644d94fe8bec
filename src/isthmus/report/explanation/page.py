"""Explanations as a page: coloured words, originals beside attacked texts, models side by side."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.files import write_atomic
from isthmus.core.visible import visible
from isthmus.explanations.parts.display import html_words
from isthmus.report.explanation.view import LEGEND, UNDERLINED, find_changed_places, notes
from isthmus.report.numerals import percent
from isthmus.runs.explained import Explained

if TYPE_CHECKING:
    from isthmus.explanations.base import Explanation


def write_page(explained: Sequence[Explained], path: Path, title: str) -> None:
    """Write all explanations as one self-contained page."""
    style = (Path(__file__).parents[1] / "templates" / "report.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    name = html.escape(visible(title, everything=True))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{name}</title><style>{style}</style>'
        f"</head><body><main><h1>{name}</h1>{render_explained(explained)}</main></body></html>"
    )
    write_atomic(path, page.encode("utf-8", errors="replace"))


def render_explained(explained: Sequence[Explained]) -> str:
    """Every text as HTML: original beside attacked text, or two models side by side."""
    legend = LEGEND + (UNDERLINED if any(each.attacked for each in explained) else "")
    below = "".join(f'<p class="note">{html.escape(note)}</p>' for note in notes(explained))
    return f'<p class="note">{legend}</p>{"".join(map(_article, explained))}{below}'


def _article(each: Explained) -> str:
    truth = f"<span>true label {_safe(each.truth)}</span>" if each.truth is not None else ""
    columns: list[str] = []
    for reading in each.readings:
        name = f'<p class="verdict"><b>{_safe(reading.model)}</b></p>' if len(each.readings) > 1 else ""
        sides = [
            _side(side, found, changed)
            for (side, found), changed in zip(reading.sides, find_changed_places(reading), strict=True)
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
