"""Corrects an unknown word to a known one that is one edit away.

    edits    one letter more, one less, another one, or two neighbours swapped
    choice   the most frequent of the known words that are one edit away

Two words that are one edit apart share what is left of each when one letter is taken out of it (or the word itself).
So all known words are filed under themselves and under each such remainder, and a look-up compares a handful of words
instead of the whole list.

References:
    Damerau: A technique for computer detection and correction of spelling errors. CACM 1964.
    Bocek, Hunt, Stiller: Fast similarity search in large dictionaries. University of Zurich 2007, for the filing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

SHORTEST = 4
"""Shorter words are one edit away from too many others to be corrected."""


class Speller:
    """Corrects spelling by known words, the most frequent first."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    @functools.cached_property
    def _filed(self) -> dict[str, list[int]]:
        filed: dict[str, list[int]] = {}
        for number, word in enumerate(self.words):
            if len(word) >= SHORTEST - 1 and word.isalpha():
                for key in _remainders(word):
                    filed.setdefault(key, []).append(number)
        return filed

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.words)

    def nearest(self, word: str) -> str | None:
        """The most frequent known word that is one edit away; None if the word is known, short, or far from all."""
        if len(word) < SHORTEST or word in self._known:
            return None
        found = {number for key in _remainders(word) for number in self._filed.get(key, ())}
        best = min((number for number in found if one_edit_apart(word, self.words[number])), default=None)
        return None if best is None else self.words[best]


def _remainders(word: str) -> Iterator[str]:
    yield word
    yield from {word[:at] + word[at + 1 :] for at in range(len(word))}


def one_edit_apart(a: str, b: str) -> bool:
    """Whether one insertion, deletion, substitution or swap of neighbours turns one word into the other."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    a, b = a[start:], b[start:]
    if len(a) == len(b):
        return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[1:] == shorter
