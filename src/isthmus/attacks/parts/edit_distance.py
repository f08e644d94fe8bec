"""Levenshtein distance between two strings."""

from __future__ import annotations


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
