"""Texts drawn from the perturbation sets of their words.

Draw d of a text puts at position i the word number floor(u · |P(x_i)|) of P(x_i), u in [0, 1) from the draw's key and
the position: so a draw depends neither on the other draws nor on how many are made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isthmus.core.hashing import splitmix
from isthmus.core.types import Ints, Keys, Texts
from isthmus.lexicon.synonyms import SynonymTable
from isthmus.text.words import Words

_PLACES = np.uint64(0xD1B54A32D192ED03)


def draw_keys(key: int, draws: int) -> Keys:
    """One key per draw."""
    return splitmix(np.uint64(key) + splitmix(np.arange(draws, dtype=np.uint64)))


def draw_keys_of(keys: Keys, draws: int) -> list[Keys]:
    """One key per draw, for each of several texts."""
    return list(splitmix(np.asarray(keys, np.uint64)[:, None] + splitmix(np.arange(draws, dtype=np.uint64))))


def choose_members(places: Ints, sizes: Ints, keys: Keys) -> Ints:
    """The member that each key draws from the set of this size at this place; the three go together."""
    bits = splitmix(keys ^ splitmix(places.astype(np.uint64) * _PLACES)) >> np.uint64(11)  # A float64 holds 53 bits.
    return np.asarray((bits.astype(np.float64) * 2.0**-53 * sizes).astype(np.int64))


class DrawnText:
    """A text, and the sets that its words are drawn from."""

    def __init__(self, texts: Texts, table: SynonymTable) -> None:
        self.fields = {name: Words.of(text) for name, text in texts.items()}
        self.words = [word for words in self.fields.values() for word in words]
        self.sets: list[tuple[str, ...]] = [table.draws(word) for word in self.words]
        self.places = [place for place, members in enumerate(self.sets) if len(members) > 1]

    def choices(self, keys: Keys) -> Ints:
        """The word drawn from its set at each place with a choice [draws, places]."""
        sizes = np.array([len(self.sets[place]) for place in self.places], np.int64)
        return choose_members(np.array(self.places, np.int64), sizes, keys[:, None])

    def text(self, choice: Sequence[int]) -> dict[str, str]:
        """The text with these words."""
        words = list(self.words)
        for place, index in zip(self.places, choice, strict=True):
            words[place] = self.sets[place][index]
        found, start = {}, 0
        for name, own in self.fields.items():
            found[name] = str(Words(tuple(words[start : start + len(own)]), own.gaps))
            start += len(own)
        return found
