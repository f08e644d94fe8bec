"""Clean scores of many texts from a victim that may refuse some of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.errors import VictimError, VictimTimeout
from isthmus.core.types import Floats, Texts, Victim

_AT_ONCE = 256


def tolerant_scores(victim: Victim, texts: Sequence[Texts]) -> Floats:
    """One row per text; NaN for a text the victim fails on. A victim that fails on every text is an error."""
    failures: list[VictimError] = []
    parts = [_halves(victim, texts[at : at + _AT_ONCE], failures) for at in range(0, len(texts), _AT_ONCE)]
    if failures and len(failures) == len(texts):
        raise failures[0]
    return np.concatenate(parts) if parts else np.zeros((0, len(victim.labels)), np.float32)


def _halves(victim: Victim, texts: Sequence[Texts], failures: list[VictimError]) -> Floats:
    """Halve a batch that fails until the texts it fails on stand alone."""
    try:
        return np.asarray(victim.scores(texts), np.float32)
    except VictimTimeout:
        raise  # Trying again would wait again.
    except VictimError as error:
        if len(texts) == 1:
            failures.append(error)
            return np.full((1, len(victim.labels)), np.nan, np.float32)
        middle = len(texts) // 2
        return np.concatenate([_halves(victim, half, failures) for half in (texts[:middle], texts[middle:])])
