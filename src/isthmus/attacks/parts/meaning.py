"""Rules that keep the label of a text for a reader; the preset `meaning` consists of them.

    NoAntonyms          no word is replaced by its opposite; none is put in that is the opposite of a word of the text
    KeepNegations       words that negate are neither replaced, nor taken out, nor put in
    SameContent         what is put in is near a word of the text, and what is merged near each of the two words
    KindOfWord          old and new word are of one part of speech, or the new one is a misspelling of the old

A change that a reader does not see (look-alike letters, invisible characters) passes all of them. A space inside a word
makes two: each of the parts is looked at ("notable" must not become "not able").
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from isthmus.attacks.parts.candidates import Candidates
from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Bools
from isthmus.engine.requests import INSERT, MERGE
from isthmus.lexicon.negations import is_negation
from isthmus.lexicon.stopwords import is_function_word
from isthmus.text.draft import DELETE

if TYPE_CHECKING:
    from isthmus.lexicon.antonyms import Antonyms
    from isthmus.lexicon.neighbours import Neighbours
    from isthmus.lexicon.reading import DictionaryReader
    from isthmus.lexicon.tags import Tagger


@dataclass(frozen=True, slots=True)
class NoAntonyms:
    """No new word is the opposite of the word that it replaces, or, put in beside others, of any word of the text."""

    antonyms: Antonyms
    reader: DictionaryReader

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Check every edit."""
        mask = np.ones(candidates.count, bool)
        for change in changes(trial, candidates):
            against = change.old or tuple(trial.original.words)
            mask[change.index] &= not any(
                self.antonyms.are_opposed(old, new)
                for old in against
                for new in change.parts()
                if not self.reader.alike(old, new)
            )
        return mask


@dataclass(frozen=True, slots=True)
class KeepNegations:
    """Negations are neither removed nor inserted."""

    reader: DictionaryReader

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Check every edit."""
        mask = np.ones(candidates.count, bool)
        for change in changes(trial, candidates):
            same = len(change.old) == 1 and self.reader.alike(change.old[0], change.new)
            mask[change.index] &= same or not any(map(is_negation, (*change.old, *change.parts())))
        return mask


@dataclass(frozen=True, slots=True)
class SameContent:
    """Words are inserted or merged only if that adds and removes no content, by word vectors.

    A word that replaces none is not a function word (only, but, if) and close to some word of the text. A word in place
    of two is close to each of them that is not a function word, or to both. Only function words are taken out.
    """

    neighbours: Neighbours
    min_cosine: float

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Look at everything but replacements of one word, which are `WordMeaning`'s."""
        mask = np.ones(candidates.count, bool)
        words = {word.lower() for word in trial.original.words if not is_function_word(word)}
        for change in changes(trial, candidates):
            if not change.old:
                mask[change.index] &= all(self._is_said(words, new) for new in change.parts())
            elif not change.new:
                mask[change.index] &= all(map(is_function_word, change.old))
            elif change.merges:
                told = [old for old in change.old if not is_function_word(old)] or change.old
                mask[change.index] &= all(self._close(old, change.new) for old in told)
        return mask

    def _is_said(self, words: Collection[str], new: str) -> bool:
        return not is_function_word(new) and any(map(partial(self._close, new), words))

    def _close(self, a: str, b: str) -> bool:
        if a.lower() == b.lower():
            return True
        cosine = self.neighbours.cosine(a, b)
        return cosine is not None and cosine >= self.min_cosine


@dataclass(frozen=True, slots=True)
class KindOfWord:
    """Old and new word are of one part of speech, as `PartOfSpeech` tells it, or the new one only misspells the old.

    A word in place of two is of the kind of one of them. `PartOfSpeech` itself refuses every misspelling: no dictionary
    lists it.
    """

    tagger: Tagger
    reader: DictionaryReader

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Tag the words, in the context of the original text where the tagger wants one."""
        mask = np.ones(candidates.count, bool)
        asked: dict[tuple[int, ...], list[Change]] = {}
        for change in changes(trial, candidates):
            if change.new and change.old and not any(self.reader.reads_as(old, change.new) for old in change.old):
                asked.setdefault(change.at, []).append(change)
        words = trial.original.words
        for at, own in asked.items():
            new = [change.new for change in own]
            fitting = np.any([self.tagger.fitting(words, position, new) for position in at], axis=0)
            np.logical_and.at(mask, [change.index for change in own], fitting)
        return mask


@dataclass(frozen=True, slots=True)
class Change:
    """One edit as words: the original words at its position, and the new ones."""

    index: int
    """Of the candidate."""
    at: tuple[int, ...]
    """Where the old words stand in the original text."""
    old: tuple[str, ...]
    """None where a word is put in, two where words of the original text are merged."""
    new: str
    """Empty where a word is taken out."""
    merges: bool = False
    """Whether it stands in place of two words, one of which may have been put in before."""

    def parts(self) -> list[str]:
        """The new word, or the words that a space inside makes of it."""
        return self.new.split()


def changes(trial: Trial, candidates: Candidates) -> Iterator[Change]:
    """Every edit of every candidate against the original text."""
    strings, base, original = trial.vocabulary.strings, candidates.base, trial.original
    for index, position, span, word in candidates.edits.tolist():
        places = () if span == INSERT else (position, position + 1) if span == MERGE else (position,)
        at = tuple(origin for place in places if (origin := int(base.origin[place])) >= 0)
        old = tuple(original.word(place) for place in at)
        yield Change(index, at, old, "" if word == DELETE else strings[word], merges=span == MERGE)
