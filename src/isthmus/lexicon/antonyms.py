"""Words of opposite meaning, by WordNet and by their prefixes.

    opposed(a, b)   some meaning reached from a is, in WordNet, the antonym of some meaning reached from b
    reached from a  every sense of every lemma of a ("best" is a form of "good"); what is derived from that lemma
                    ("failure", "fail"; "badly", "bad"); of an adjective that is similar to another, the other too
                    ("superb" is similar to "good", "awful" to "bad")

Antonymy is taken between meanings, not between single words: a synonym of an antonym counts. A negating prefix or the
suffix -less opposes two words as well, listed or not ("funny", "unfunny"; "tasteful", "tasteless").

A word has many senses and one of them is enough, so more is called opposed than is. That is meant: the answer serves to
leave a substitute out, and there are others.
"""

from __future__ import annotations

import functools

from isthmus.lexicon.wordnet import WordNet, WordNetEntry, load_wordnet

_ANTONYM, _SIMILAR, _DERIVED = "!", "&", "+\\"
_PREFIXES = ("un", "in", "im", "il", "ir", "dis", "non", "non-", "anti", "anti-", "mis")

Meaning = tuple[str, int]
"""A synset: its part of speech and its place."""


class Antonyms:
    """Finds antonyms in one dictionary."""

    def __init__(self, wordnet: WordNet) -> None:
        self._wordnet = wordnet
        # Bound to the instance: a cache on the method would keep every dictionary alive.
        self._meanings = functools.lru_cache(1 << 17)(self._find_meanings)
        self._opposites = functools.lru_cache(1 << 17)(self._find_opposites)
        self._pairs = functools.lru_cache(1 << 20)(self._find)

    def are_opposed(self, a: str, b: str) -> bool:
        """Whether two words can mean the opposite of each other."""
        a, b = a.lower(), b.lower()
        return a != b and self._pairs(*sorted((a, b)))

    def _find(self, a: str, b: str) -> bool:
        return _is_negated(a, b) or _is_negated(b, a) or not self._opposites(a).isdisjoint(self._meanings(b))

    def _find_opposites(self, word: str) -> frozenset[Meaning]:
        return frozenset(
            (pointer.pos, pointer.offset)
            for pos, place in self._meanings(word)
            for pointer in self._wordnet.entry(pos, place, _ANTONYM).pointers
        )

    def _find_meanings(self, word: str) -> frozenset[Meaning]:
        found: set[Meaning] = set()
        for pos, lemma in self._wordnet.lemmas(word):
            for place in self._wordnet.places(pos, lemma):
                found.add((pos, place))
                found |= _find_derived(self._wordnet.entry(pos, place, _DERIVED), lemma)
        heads = {
            (pos, pointer.offset)
            for pos, place in found
            if pos == "adj" and (entry := self._wordnet.entry(pos, place, _SIMILAR)).synset.pos == "s"
            for pointer in entry.pointers
        }
        return frozenset(found | heads)


def _find_derived(entry: WordNetEntry, lemma: str) -> set[Meaning]:
    """The meanings of the words derived from one word of a synset."""
    own = [name.lower() for name in entry.synset.lemmas]
    return {
        (pointer.pos, pointer.offset)
        for pointer in entry.pointers
        if not pointer.source or own[pointer.source - 1] == lemma
    }


def _is_negated(word: str, other: str) -> bool:
    """Whether the other word is this one with a negating prefix, or with -less instead of -ful or of nothing."""
    if len(word) < 3:
        return False
    return other.removesuffix(word) in _PREFIXES or other == word.removesuffix("ful") + "less"


@functools.cache
def load_antonyms() -> Antonyms:
    """Load WordNet from the assets and find antonyms in it."""
    return Antonyms(load_wordnet())
