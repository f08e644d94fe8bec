"""Scores many texts with a victim that may fail on some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from isthmus.core.errors import VictimError, VictimTimeout
from isthmus.core.types import Floats, Keys, Texts, Victim

_AT_ONCE = 256


@dataclass(frozen=True)
class BatchScores:
    """One row per text, NaN without an answer, and the reason by position."""

    scores: Floats
    reasons: dict[int, str] = field(default_factory=dict)


def tolerant_scores(victim: Victim, texts: Sequence[Texts]) -> Floats:
    """One row per text; NaN if the victim fails on it. A victim that fails on all texts is an error."""
    parts = [score_batch(victim, texts[at : at + _AT_ONCE]).scores for at in range(0, len(texts), _AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros((0, len(victim.labels)), np.float32)


def score_batch(victim: Victim, texts: Sequence[Texts], keys: Keys | None = None, *, probe: bool = True) -> BatchScores:
    """Score one batch; `keys` as in `Victim.scores`.

    With `probe`, a victim that fails on the first, the middle and the last text is taken to be down, and its error is
    raised: asking for every text alone would take its time. So is the time-out of one that answered nothing at all;
    otherwise texts that had no answer in time are told by their reasons, and nobody waits for them again.
    """
    reasons: dict[int, str] = {}
    try:
        scores = _ask(victim, texts, keys)
    except VictimTimeout as error:
        if probe and error.answered is None:
            raise
        scores = _in_time(victim, error, len(texts), 0, reasons)
    except VictimError:
        places = sorted({0, len(texts) // 2, len(texts) - 1})
        if probe and all(_fails(victim, texts, keys, place) for place in places):
            raise
        scores = _halves(victim, texts, keys, 0, reasons)
    for place in np.flatnonzero(np.isnan(scores).any(axis=1)).tolist():
        reasons.setdefault(place, "the model answered NaN")
    return BatchScores(scores, reasons)


def _ask(victim: Victim, texts: Sequence[Texts], keys: Keys | None) -> Floats:
    # A victim without randomness need not know keys.
    return np.asarray(victim.scores(texts) if keys is None else victim.scores(texts, keys), np.float32)


def _fails(victim: Victim, texts: Sequence[Texts], keys: Keys | None, place: int) -> bool:
    found = _halves(victim, texts[place : place + 1], None if keys is None else keys[place : place + 1], 0, {})
    return bool(np.isnan(found).any())


def _halves(victim: Victim, texts: Sequence[Texts], keys: Keys | None, first: int, reasons: dict[int, str]) -> Floats:
    """Halve a failing batch until its failing texts are alone; `first` is the position of the first text."""
    try:
        return _ask(victim, texts, keys)
    except VictimTimeout as error:
        return _in_time(victim, error, len(texts), first, reasons)
    except VictimError as error:
        if len(texts) == 1:
            reasons[first] = str(error)
            return np.full((1, len(victim.labels)), np.nan, np.float32)
        middle = len(texts) // 2
        left, right = (None, None) if keys is None else (keys[:middle], keys[middle:])
        return np.concatenate(
            [
                _halves(victim, texts[:middle], left, first, reasons),
                _halves(victim, texts[middle:], right, first + middle, reasons),
            ]
        )


def _in_time(victim: Victim, error: VictimTimeout, count: int, first: int, reasons: dict[int, str]) -> Floats:
    """The answers before the time ran out; the rest is NaN, with its reason."""
    scores = np.full((count, len(victim.labels)), np.nan, np.float32)
    if error.answered is not None:
        scores[:] = error.answered
    for place in np.flatnonzero(np.isnan(scores).any(axis=1)).tolist():
        reasons[first + place] = str(error)
    return scores
