"""How a reader takes a changed word: as the same word, a misspelling of it, or another word.

    alike(old, new)       they look the same: capitals, look-alike letters, what is invisible
    misspells(old, new)   the new string is not a word, and the old one is read in it: one letter more, less, different
                          or swapped; a space inside; digits and signs for letters

A word of fewer than four letters is one edit away from too many others to be read through a misspelling.
"""

from __future__ import annotations

import functools

from isthmus.lexicon.confusables import LEET
from isthmus.lexicon.normaliser import Normaliser, NormaliserSteps
from isthmus.lexicon.spelling import SHORTEST, one_edit_apart
from isthmus.lexicon.stopwords import is_function_word
from isthmus.lexicon.wordnet import WordNet, load_wordnet

_CACHED = 1 << 18


class DictionaryReader:
    """Compares words as a reader with one dictionary."""

    def __init__(self, wordnet: WordNet) -> None:
        self._wordnet = wordnet
        self._shown = Normaliser(NormaliserSteps(leet=False)).show
        # Bound to the instance: a cache on the method would keep every dictionary alive.
        self._misspelt = functools.lru_cache(_CACHED)(self._misspells)

    def alike(self, old: str, new: str) -> bool:
        """Whether a reader sees no difference but that of capitals."""
        return old == new or self._shown(old).lower() == self._shown(new).lower()

    def misspells(self, old: str, new: str) -> bool:
        """Whether the new string is not a word and can be read as the old one."""
        return self._misspelt(old, new)

    def reads_as(self, old: str, new: str) -> bool:
        """Whether the new string looks like the old one or misspells it."""
        return self.alike(old, new) or self.misspells(old, new)

    def knows(self, word: str) -> bool:
        """Whether it is an English word: any inflection in the dictionary, or a function word."""
        return is_function_word(word) or bool(self._wordnet.parts_of_speech(word))

    def _misspells(self, old: str, new: str) -> bool:
        old, new = self._shown(old).lower(), self._shown(new).lower()
        if len(old) < SHORTEST or self.knows(new):
            return False
        joined = "".join(new.split())
        if len(joined) == len(old):
            joined = "".join(a if b in LEET.get(a, ()) else b for a, b in zip(old, joined, strict=True))
        return joined == old or one_edit_apart(old, joined)


@functools.cache
def load_reader() -> DictionaryReader:
    """Load WordNet from the assets and read words by it."""
    return DictionaryReader(load_wordnet())
