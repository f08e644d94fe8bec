"""An explanation as a piece of HTML: blue words speak for the class, orange ones against it."""

from __future__ import annotations

import html as escaping
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.visible import visible

if TYPE_CHECKING:
    from isthmus.explanations.base import Explanation

FOR, AGAINST = (31, 119, 180), (230, 126, 34)


def html(explanation: Explanation) -> str:
    """One paragraph per class explained."""
    return "\n".join(_paragraph(explanation, row) for row in range(len(explanation.classes)))


def _paragraph(explanation: Explanation, row: int) -> str:
    label = explanation.classes[row]
    largest = float(np.abs(explanation.weights[row]).max(initial=0.0))
    words = "".join(_piece(text, weight, largest) for text, weight in explanation.pieces(row))
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
