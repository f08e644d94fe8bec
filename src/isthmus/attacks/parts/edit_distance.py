"""Levenshtein distance between the original text and a candidate, kept under a limit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from isthmus.attacks.parts.trial import Trial


def levenshtein(left: str, right: str, limit: int | None = None) -> int:
    """Fewest insertions, deletions and substitutions that turn one string into the other.

    With a limit only a band of that width is computed, and any distance above it is given as limit + 1.
    """
    if len(left) > len(right):
        left, right = right, left
    band = len(right) if limit is None else limit
    if len(right) - len(left) > band:
        return band + 1
    above = list(range(len(right) + 1))
    far = len(right) + len(left) + 1
    for row, letter in enumerate(left, 1):
        low, high = max(1, row - band), min(len(right), row + band)
        here = [far] * (len(right) + 1)
        here[0] = row if low == 1 else far
        for column in range(low, high + 1):
            here[column] = min(
                above[column] + 1 if column <= row - 1 + band else far,
                here[column - 1] + 1,
                above[column - 1] + (letter != right[column - 1]),
            )
        above = here
    return above[-1] if limit is None else min(above[-1], limit + 1)


def within(trial: Trial, position: int, words: Iterable[str], limit: int, each: int) -> Iterable[str]:
    """The words that may stand at `position` while the text stays within `limit` edits of the original.

    `each` is the most that one edit of a word costs: where even that many edits of every word changed so far would
    fit, nothing is computed. Otherwise the distances of the single words are added up, which is at least the distance
    of the texts, and only where that sum is over the limit the texts themselves are compared.
    """
    if each * (trial.moves + 1) <= limit:
        return words
    old, new = trial.original, trial.draft
    changed = [at for at in np.flatnonzero(new.ids != old.ids).tolist() if at != position]
    spent = sum(levenshtein(old.word(at), new.word(at)) for at in changed)
    before, original = old.word(position), "\x00".join(old.texts.values())

    def fits(word: str) -> bool:
        if spent + levenshtein(before, word) <= limit:
            return True
        candidate = new.replace(position, trial.vocabulary.id(word))
        return levenshtein(original, "\x00".join(candidate.texts.values()), limit) <= limit

    return [word for word in words if fits(word)]
