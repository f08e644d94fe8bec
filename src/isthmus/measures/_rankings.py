"""How similar two rankings of the same words are, and whether the first words decide the prediction.

    τ-b            (concordant - discordant) / sqrt((n₀ - n₁)(n₀ - n₂)),  n₁, n₂: pairs tied in one or the other
    top-k          |first k of one ∩ first k of the other| / k
    by word        the same, where a position counts only if its word is the same too
    comprehensiveness   p(c | x) - p(c | x without its first words);  sufficiency: p(c | x) - p(c | first words alone)

The last two are averaged over the first 1, 5, 10, 20 and 50 % of the words (AOPC).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.core.types import Doubles, Texts, Victim
from isthmus.text.words import Words

SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
_TEXTS_AT_ONCE = 256
"""Texts whose shortened copies are held together, so that memory does not grow with their number."""


def tau_b(a: Doubles, b: Doubles) -> float:
    """Kendall's τ-b of two rows of weights; NaN if one of them has no ranking."""
    if len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    # Texts have tens of words: all pairs at once cost a twentieth of scipy's sorting, whose p-value nobody asks for.
    one, other = (np.sign(each[:, None] - each[None, :]) for each in (np.asarray(a), np.asarray(b)))
    untied = np.count_nonzero(one) / 2, np.count_nonzero(other) / 2
    if not all(untied):
        return math.nan
    balance = float((one * other).sum()) / 2
    return min(1.0, max(-1.0, balance / math.sqrt(untied[0]) / math.sqrt(untied[1])))


def first_places(weights: Doubles, k: int) -> list[int]:
    """The k positions of largest weight; among equals the first."""
    return [int(place) for place in np.argsort(-weights, kind="stable")[:k]]


def overlap(a: Doubles, b: Doubles, k: int, same: Sequence[bool] | None = None) -> float:
    """Share of the first k positions that both rankings have; `same` says where the word is the same.

    NaN where there are no more than k words: then everything is among the first.
    """
    if len(a) <= k or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    both = set(first_places(a, k)) & set(first_places(b, k))
    return sum(same is None or same[place] for place in both) / k


def erase(
    victim: Victim, texts: Sequence[Texts], weights: Sequence[Doubles], classes: Sequence[int]
) -> tuple[Doubles, Doubles]:
    """The drop of the class probability without a text's first words, and with them alone, each [texts, SHARES].

    NaN where a text has no words, or a weight is not a number: then no word is first.
    """
    parts = [
        _erase(victim, *(each[start : start + _TEXTS_AT_ONCE] for each in (texts, weights, classes)))
        for start in range(0, len(texts), _TEXTS_AT_ONCE)
    ]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _erase(victim: Victim, texts: Any, weights: Any, classes: Any) -> tuple[Doubles, Doubles]:
    rows: list[Texts] = []
    for text, row in zip(texts, weights, strict=True):
        order = np.argsort(-row, kind="stable").tolist()
        rows.append(text)
        for share in SHARES:
            first = set(order[: max(1, math.ceil(share * len(order)))])
            rows.append(without(text, first))
            rows.append(without(text, set(order) - first))
    scores = np.asarray(victim.scores(rows), np.float64).reshape(len(texts), 1 + 2 * len(SHARES), -1)
    own = np.stack([each[:, label] for each, label in zip(scores, classes, strict=True)])
    unknown = np.array([not len(row) or not np.isfinite(row).all() for row in weights])[:, None]
    comprehensive, sufficient = own[:, :1] - own[:, 1::2], own[:, :1] - own[:, 2::2]
    return np.where(unknown, np.nan, comprehensive), np.where(unknown, np.nan, sufficient)


def faithfulness(
    victim: Victim, texts: Sequence[Texts], weights: Sequence[Doubles], classes: Sequence[int]
) -> tuple[Doubles, Doubles]:
    """Comprehensiveness and sufficiency of each text for its class: the mean over the shares (AOPC)."""
    comprehensive, sufficient = erase(victim, texts, weights, classes)
    return comprehensive.mean(axis=1), sufficient.mean(axis=1)


def without(texts: Texts, places: set[int]) -> dict[str, str]:
    """The texts without the words at some positions, counted over all fields."""
    found, start = {}, 0
    for name, text in texts.items():
        words = Words.of(text)
        size = len(words)
        for place in sorted((place - start for place in places if start <= place < start + size), reverse=True):
            words = words.delete(place)
        found[name] = str(words)
        start += size
    return found
