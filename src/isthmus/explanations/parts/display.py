"""An explanation as a piece of HTML: blue words speak for the class, orange ones against it."""

from __future__ import annotations

import difflib
import html as escaping
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.visible import visible

if TYPE_CHECKING:
    from isthmus.explanations.base import Explanation

FOR, AGAINST = (31, 119, 180), (230, 126, 34)


def html(explanation: Explanation) -> str:
    """One paragraph per class explained."""
    return "\n".join(_paragraph(explanation, row) for row in range(len(explanation.classes)))


def find_changed_words(before: Explanation, after: Explanation) -> tuple[frozenset[int], frozenset[int]]:
    """Positions of the words that are not in the other text at the same point."""
    one, two = before.words, after.words
    kept = difflib.SequenceMatcher(None, one, two, autojunk=False).get_matching_blocks()
    same = [{block[side] + step for block in kept for step in range(block.size)} for side in (0, 1)]
    return frozenset(range(len(one))) - same[0], frozenset(range(len(two))) - same[1]


def html_words(explanation: Explanation, row: int, changed: Collection[int] = ()) -> str:
    """The text with its words coloured; words at `changed` places are underlined."""
    largest = float(np.nanmax(np.abs(explanation.weights[row]), initial=0.0))
    found, place = [], -1
    for text, weight in explanation.pieces(row):
        place += weight is not None
        piece = _piece(text, weight, largest)
        found.append(f"<u>{piece}</u>" if weight is not None and place in changed else piece)
    return "".join(found)


def _paragraph(explanation: Explanation, row: int) -> str:
    label = explanation.classes[row]
    words = html_words(explanation, row)
    name = escaping.escape(visible(explanation.labels[label], everything=True))
    head = f"<b>{name}</b> {100 * explanation.scores[label]:.1f} %"
    return f'<p class="explanation"><span>{head} by {explanation.method}:</span> {words}</p>'


def _piece(text: str, weight: float | None, largest: float) -> str:
    shown = escaping.escape(visible(text, everything=True)).replace("\n", "<br>")
    if weight is None or not np.isfinite(weight):
        return shown
    strength = abs(weight) / largest if largest else 0.0
    red, green, blue = FOR if weight > 0 else AGAINST
    style = f"background:rgba({red},{green},{blue},{0.65 * strength:.2f})"
    return f'<span style="{style}" title="{weight:+.3g}">{shown}</span>'
