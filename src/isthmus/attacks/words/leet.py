"""Leet: letters as digits and signs that stay readable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.searches import Search, by_importance, greedy
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.engine.requests import Edits, replacing
from isthmus.lexicon.confusables import LEET
from isthmus.lexicon.stopwords import stop_words


@dataclass(frozen=True, kw_only=True)
class Leet(WordAttack):
    """Write important words in leet (4 for a, 3 for e, 0 for o), each in the spelling that lowers the score most.

        importance(i)  = 1 - p(y | x with x_i unknown)
        candidates(i)  : one letter as each of its signs; one letter wherever it occurs; the first 2, 3, … letters that
                         have a sign, vowels first, up to `max_letters` of the word; all letters apart, if asked for

    Word by word the best candidate is taken if it lowers p(y).

    References:
        Eger, Şahin, Rücklé, Lee, Schulz, Mesgar, Swarnkar, Simpson, Gurevych: Text Processing Like Humans Do: Visually
        Attacking and Shielding NLP Systems. NAACL 2019, for attacks that keep to what people can read.

    Where we depart:
        There is no single source: this is what evaders of filters write, searched as DeepWordBug does. Stop words are
        left alone.

    Relations:
        DeepWordBug and TextBugger misspell at random places; BadChars changes nothing that is seen.

    Example:
        ``isthmus attack runs/spam --attack leet -P separators=.-``
    """

    max_letters: float = 0.6
    """Share of a word's letters that may be written as signs."""
    separators: str = ""
    """Characters that may also be put between all letters of a word (f.r.e.e), each tried alone."""

    def __post_init__(self) -> None:
        if not 0 < self.max_letters <= 1:
            raise UsageError(f"max_letters is a share in (0, 1], not {self.max_letters}")
        if any(separator.isalnum() for separator in self.separators):
            raise UsageError(f"separators are signs or spaces, not letters or digits: {self.separators!r}")

    def resources(self) -> Mapping[str, str]:
        """The table of signs."""
        return {"leet": "table of isthmus.lexicon.confusables"}

    def search(self, trial: Trial) -> Search:
        """Rank the words, then write them in leet in that order."""
        order = yield from by_importance(trial, trial.positions(stop_words()))
        yield from greedy(trial, order, self.write_leet)

    def write_leet(self, trial: Trial, position: int) -> Edits:
        """The word in leet, in every way."""
        return replacing(position, trial.vocabulary.ids(dict.fromkeys(self.spellings(trial.draft.word(position)))))

    def spellings(self, word: str) -> Iterator[str]:
        """The word in leet, with few and with more letters changed."""
        most = math.floor(self.max_letters * len(word))
        places = [at for at, letter in enumerate(word) if letter.lower() in LEET]
        if most:
            for at in places:
                for sign in LEET[word[at].lower()]:
                    yield _with_signs(word, {at: sign})
            for letter in dict.fromkeys(word[at].lower() for at in places):
                same = [at for at in places if word[at].lower() == letter]
                if 1 < len(same) <= most:
                    yield _with_signs(word, dict.fromkeys(same, LEET[letter][0]))
            # Vowels first: a word is read by its consonants.
            places.sort(key=lambda at: word[at].lower() not in "aeiou")
            for count in range(2, min(most, len(places)) + 1):
                yield _with_signs(word, {at: LEET[word[at].lower()][0] for at in places[:count]})
        if len(word) > 2:
            yield from (separator.join(word) for separator in self.separators)


def _with_signs(word: str, signs: Mapping[int, str]) -> str:
    return "".join(signs.get(at, letter) for at, letter in enumerate(word))
