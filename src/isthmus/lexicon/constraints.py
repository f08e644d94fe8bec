"""Pairs of words that WordNet says should be close or far apart, as rows of a vocabulary.

Close: words of one synset that is among the first three senses of both; a word and its inflections; a word and what is
derived from it. Synonyms are carried over to equal inflections ("movies" and "films"). Apart: antonyms, in equal
inflections; and an adjective and everything similar to its antonym ("good" and "dreadful").
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isthmus.lexicon.wordnet import WordNet, WordNetEntry

PairKeys = NDArray[np.int64]
"""[pairs, 2], rows of a vocabulary, the smaller first, each pair once."""

_SENSES = 3
_ANTONYM, _SIMILAR, _DERIVED = "!", "&", ("+", "\\")

_Forms = Mapping[tuple[str, str], Mapping[str, Sequence[int]]]
"""(part of speech, inflection) -> lemma -> its rows in that inflection."""

_SynsetWords = Mapping[tuple[str, int], Sequence[str]]
"""(part of speech, place of a synset) -> its words, lower-cased."""


@dataclass(frozen=True, slots=True)
class WordPairs:
    """The synonym and antonym pairs of a vocabulary."""

    close: PairKeys
    apart: PairKeys


class WordNetPairs:
    """The pairs among all words of WordNet."""

    def __init__(self, wordnet: WordNet) -> None:
        self._senses = list(wordnet.senses())
        self._inflected = list(wordnet.inflections())
        self._entries = list(wordnet.entries("".join((_ANTONYM, _SIMILAR, *_DERIVED))))

    def lemmas(self) -> set[str]:
        """Every single word WordNet lists."""
        return {lemma for _, lemma, _ in self._senses}

    def among(self, vocabulary: Sequence[str]) -> WordPairs:
        """The pairs of a vocabulary of lower-cased words."""
        forms, words = self._forms(vocabulary), _words_of_synsets(self._entries)
        apart = _unique([*_antonyms(self._entries, words, forms), *_indirect_antonyms(self._entries, words, forms)])
        close = _synonyms(self._senses, forms) + _inflections(forms)
        close += _derivations(self._entries, words, forms)
        return WordPairs(_without(_unique(close), apart, len(vocabulary)), apart)

    def _forms(self, vocabulary: Sequence[str]) -> _Forms:
        rows = {word: row for row, word in enumerate(vocabulary)}
        forms: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for pos, lemma, _ in self._senses:
            if lemma in rows:
                forms[pos, ""][lemma].append(rows[lemma])
        irregular = {
            (pos, lemma, _inflection(pos, form)) for pos, lemma, form, regular in self._inflected if not regular
        }
        for pos, lemma, form, regular in self._inflected:
            inflection = _inflection(pos, form)
            # Of what has an irregular form the regular one is another word, or none: "gooder", "leafs".
            if form in rows and not (regular and (pos, lemma, inflection) in irregular):
                forms[pos, inflection][lemma].append(rows[form])
        return {key: dict(of) for key, of in forms.items()}


def _inflection(pos: str, form: str) -> str:
    if pos == "noun":
        return "plural"
    if pos == "verb":
        return "-ing" if form.endswith("ing") else "-s" if form.endswith("s") else "past"
    return "-est" if form.endswith("st") else "-er"


def _synonyms(senses: Iterable[tuple[str, str, list[int]]], forms: _Forms) -> list[tuple[int, int]]:
    common: dict[tuple[str, int], list[str]] = defaultdict(list)
    for pos, lemma, places in senses:
        for place in places[:_SENSES]:
            common[pos, place].append(lemma)
    found = []
    for (pos, _), lemmas in common.items():
        for a, b in itertools.combinations(lemmas, 2):
            found += _in_equal_forms(forms, pos, a, b)
    return found


def _in_equal_forms(forms: _Forms, pos: str, a: str, b: str) -> list[tuple[int, int]]:
    inflections = ("", "plural") if pos == "noun" else ("", "-ing", "-s", "past", "-er", "-est")
    found = []
    for inflection in inflections:
        of = forms.get((pos, inflection), {})
        if a in of and b in of:
            found += list(itertools.product(of[a], of[b]))
    return found


def _inflections(forms: _Forms) -> list[tuple[int, int]]:
    found = []
    for (pos, inflection), of in forms.items():
        bases = forms.get((pos, ""), {})
        if inflection:
            for lemma, rows in of.items():
                found += list(itertools.product(bases.get(lemma, ()), rows))
    return found


def _words_of_synsets(entries: Iterable[WordNetEntry]) -> _SynsetWords:
    return {(entry.pos, entry.synset.offset): [name.lower() for name in entry.synset.lemmas] for entry in entries}


def _find_linked(
    entries: Sequence[WordNetEntry], words: _SynsetWords, symbols: Sequence[str]
) -> list[tuple[str, str, str, str]]:
    """Pairs of words of linked synsets: (part of speech, word, part of speech, word)."""
    found = []
    for entry in entries:
        own = words[entry.pos, entry.synset.offset]
        for pointer in entry.pointers:
            if pointer.symbol in symbols:
                left = [own[pointer.source - 1]] if pointer.source else own
                others = words[pointer.pos, pointer.offset]
                right = [others[pointer.target - 1]] if pointer.target else others
                found += [(entry.pos, a, pointer.pos, b) for a in left for b in right]
    return found


def _antonyms(entries: Sequence[WordNetEntry], words: _SynsetWords, forms: _Forms) -> list[tuple[int, int]]:
    linked = _find_linked(entries, words, _ANTONYM)
    return [pair for pos, a, other, b in linked if pos == other for pair in _in_equal_forms(forms, pos, a, b)]


def _derivations(entries: Sequence[WordNetEntry], words: _SynsetWords, forms: _Forms) -> list[tuple[int, int]]:
    found = []
    for pos, a, other, b in _find_linked(entries, words, _DERIVED):
        left, right = forms.get((pos, ""), {}), forms.get((other, ""), {})
        found += list(itertools.product(left.get(a, ()), right.get(b, ())))
    return found


def _indirect_antonyms(entries: Sequence[WordNetEntry], words: _SynsetWords, forms: _Forms) -> list[tuple[int, int]]:
    """Pairs of an adjective's synset with words similar to its antonym."""
    rows = forms.get(("adj", ""), {})
    similar, opposed = defaultdict(list), []
    for entry in entries:
        if entry.pos == "adj":
            for pointer in entry.pointers:
                if pointer.symbol == _SIMILAR:
                    similar[entry.synset.offset].append(pointer.offset)
                elif pointer.symbol == _ANTONYM:
                    opposed.append((entry.synset.offset, pointer.offset))
    found = []
    for place, antonym in opposed:
        for other in (antonym, *similar[antonym]):
            for a, b in itertools.product(words["adj", place], words.get(("adj", other), ())):
                found += list(itertools.product(rows.get(a, ()), rows.get(b, ())))
    return found


def _unique(pairs: Sequence[tuple[int, int]]) -> PairKeys:
    array = np.sort(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=1)
    return np.unique(array[array[:, 0] != array[:, 1]], axis=0)


def _without(pairs: PairKeys, others: PairKeys, size: int) -> PairKeys:
    keys, bad = pairs[:, 0] * size + pairs[:, 1], others[:, 0] * size + others[:, 1]
    return pairs[~np.isin(keys, bad)]
