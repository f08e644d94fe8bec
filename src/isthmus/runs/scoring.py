"""Clean scores of many texts from a victim that may refuse some of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import VictimError, VictimTimeout
from isthmus.core.types import Floats, Texts, Victim

_AT_ONCE = 256


def tolerant_scores(victim: Victim, texts: Sequence[Texts]) -> Floats:
    """One row per text; NaN for a text the victim fails on. A victim that fails on all of them is an error."""
    parts = [_scores(victim, texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]
    return np.concatenate(parts) if parts else np.zeros((0, len(victim.labels)), np.float32)


def _scores(victim: Victim, texts: Sequence[Texts]) -> Floats:
    try:
        return np.asarray(victim.scores(texts), np.float32)
    except VictimTimeout:
        raise  # Asking again would wait again.
    except VictimError:
        # A service that is down fails on everything, and takes its time to: three texts tell.
        probes = [texts[place] for place in sorted({0, len(texts) // 2, len(texts) - 1})]
        if np.isnan(np.concatenate([_halves(victim, [text]) for text in probes])).all():
            raise
        return _halves(victim, texts)


def _halves(victim: Victim, texts: Sequence[Texts]) -> Floats:
    """Halve a batch that fails until the texts it fails on stand alone."""
    try:
        return np.asarray(victim.scores(texts), np.float32)
    except VictimTimeout:
        raise
    except VictimError:
        if len(texts) == 1:
            return np.full((1, len(victim.labels)), np.nan, np.float32)
        middle = len(texts) // 2
        return np.concatenate([_halves(victim, texts[:middle]), _halves(victim, texts[middle:])])
