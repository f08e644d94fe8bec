"""Proposals from a word-vector space: the nearest neighbours of a word, in the word's own case.

What can be told from the two words alone (cosine, distance, part of speech without context) is decided once per word
and remembered, so that a proposal costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Floats
from isthmus.engine.requests import Edits, replacing
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.neighbours import Neighbours
from isthmus.text.draft import Draft
from isthmus.text.words import Words

if TYPE_CHECKING:
    from isthmus.lexicon.tags import WordTagger


@dataclass(frozen=True, slots=True)
class NearWords:
    """The `most` nearest neighbours of a word that are close enough."""

    source: str = "counterfitted"
    most: int = 50
    min_cosine: float | None = None
    max_distance: float | None = None
    """Of the squared Euclidean distance."""
    tagger: WordTagger | None = None
    """Tells by the words alone which may take each other's place."""

    @property
    def neighbours(self) -> Neighbours:
        """The vector space."""
        return load_neighbours(self.source)

    def look_up(self, words: Iterable[str]) -> None:
        """Look up many words at once; in sorted order, so that the work does not depend on a set's."""
        self.neighbours.prefetch(sorted(words), self.most)

    def prefetch(self, draft: Draft) -> None:
        """Look up all words of a text at once, which costs little more than one of them."""
        self.neighbours.prefetch(draft.words, self.most)

    def edits(self, trial: Trial, position: int) -> Edits:
        """Replacements of the word at a position."""
        return replacing(position, self.words(trial, int(trial.draft.ids[position])))

    def words(self, trial: Trial, word: int) -> NDArray[np.int32]:
        """Neighbours of a word, both as vocabulary ids."""
        known = trial.vocabulary.memory.setdefault(self, {})
        found: NDArray[np.int32] | None = known.get(word)
        if found is None:
            found = known[word] = trial.vocabulary.ids(self.strings(trial.vocabulary.strings[word]))
        return found

    def strings(self, word: str) -> list[str]:
        """Neighbours of a word, nearest first."""
        nearest = self.neighbours.nearest(word, self.most)
        near = _close(nearest.cosines, nearest.distances, self.min_cosine, self.max_distance)
        chosen = [in_case_of(word, new) for new, fits in zip(nearest.words, near, strict=True) if fits]
        return [
            new
            for new in dict.fromkeys(chosen)
            if new != word
            and Words.of(new).words == (new,)
            and (self.tagger is None or self.tagger.compatible(word, new))
        ]


def _close(
    cosines: Floats, distances: Floats, min_cosine: float | None, max_distance: float | None
) -> NDArray[np.bool_]:
    near = np.ones(len(cosines), bool)
    if min_cosine is not None:
        near &= cosines >= min_cosine
    if max_distance is not None:
        near &= distances <= max_distance
    return near


def in_case_of(word: str, new: str) -> str:
    """`new`, written as `word` is: small, all capitals, or with a capital letter first."""
    if word.islower():
        return new.lower()
    if word.isupper() and len(word) > 1:
        return new.upper()
    if word[:1].isupper() and word[1:].islower():
        return new.capitalize()
    return new
