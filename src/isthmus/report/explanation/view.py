"""Shared by page, terminal and figure: changed words, largest weights, notes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.visible import visible
from isthmus.explanations.parts.display import find_changed_words
from isthmus.runs.explained import Explained, Reading

if TYPE_CHECKING:
    from isthmus.explanations.base import Explanation

_HEAVIEST = 5
LEGEND = "Blue words support the class, orange words oppose it; stronger colours mean larger weights."
UNDERLINED = " Underlined words were inserted by the attack."


def find_changed_places(reading: Reading) -> tuple[Collection[int], ...]:
    """Positions of changed words, for every side; the original has none."""
    if reading.attacked is None:
        return ((),)
    return (), find_changed_words(reading.original, reading.attacked)[1]


def largest_weight(found: Explanation, row: int) -> float:
    """The largest absolute weight, ignoring NaN."""
    sizes = np.abs(found.weights[row])
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def heaviest(found: Explanation, row: int) -> str:
    """The words with the largest weights, for and against."""
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


def notes(explained: Sequence[Explained]) -> list[str]:
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
