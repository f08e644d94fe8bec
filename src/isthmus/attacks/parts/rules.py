"""Rules that a candidate must satisfy; attacks and presets have lists of them.

    MaxShare            at most this share of the words differs from the original
    MaxEdits            at most this many characters differ (Levenshtein)
    MostPerWord         at most the first k candidates for a place
    WordMeaning         word vectors of old and new word: cosine at least, squared distance at most
    PartOfSpeech        old and new word are of one kind (nouns and verbs may change places)
    SentenceMeaning     sentence vectors: cosine, or 1 - angle/pi, at least
    Fluency             log p(new | rest) - log p(old | rest) at least, by a masked language model

The shared ones that concern a place and not a candidate (protected columns and spans, stop words, no word twice) are
decided by `Trial.positions`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isthmus.attacks.parts.candidates import Candidates
from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Floats
from isthmus.engine.requests import DELETE, REPLACE, Likelihood, Request, Similarity
from isthmus.text.draft import Draft

if TYPE_CHECKING:
    from isthmus.lexicon.neighbours import Neighbours
    from isthmus.lexicon.reading import DictionaryReader
    from isthmus.lexicon.tags import Tagger

Metric = Literal["angular", "cosine"]
Against = Literal["original", "previous"]
ALL_WORDS = 1 << 20
"""A window that holds every text: from its first word to its last, without the punctuation on either side of them.

This is what TextAttack compares where a recipe names no window.
"""


@dataclass(frozen=True, slots=True)
class MaxShare:
    """At most ceil(share * words) words differ from the original text."""

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError(f"the share of words that may change lies in (0, 1], not {self.share}")

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Count the words that differ."""
        limit = math.ceil(self.share * len(trial.original))
        base, edits = candidates.base, candidates.edits
        if base.origin is trial.original.origin and (edits[:, 2] == REPLACE).all():
            before = trial.find_changed(base)
            now = edits[:, 3] != trial.original.ids[edits[:, 1]]
            more = np.bincount(edits[:, 0], now.astype(np.int64) - before[edits[:, 1]], candidates.count)
            return np.asarray(before.sum() + more <= limit)
        changed = [words_changed(trial, candidates.draft(index)) for index in range(candidates.count)]
        return np.array(changed, np.int64) <= limit


def words_changed(trial: Trial, draft: Draft) -> int:
    """Number of words replaced, inserted or deleted."""
    gone = len(trial.original) - int((draft.origin >= 0).sum())
    return int(trial.find_changed(draft).sum()) + gone


@dataclass(frozen=True, slots=True)
class MaxEdits:
    """At most `limit` single-character edits between the original text and the candidate."""

    limit: int
    each: int | None = None
    """The most that one step of the search costs: while even that many per step would fit, nothing is computed."""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"the edit distance must be at least 1, not {self.limit}")

    def cannot_fail(self, trial: Trial) -> bool:
        """Whether even the most expensive next step stays within the limit."""
        return self.each is not None and self.each * (trial.moves + 1) <= self.limit

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Compare the words that changed first: the sum of their distances is never less than the texts' own."""
        if self.cannot_fail(trial):
            return np.ones(candidates.count, bool)
        base, old = candidates.base, trial.original
        mask = np.zeros(candidates.count, bool)
        if base.origin is old.origin and candidates.single and (candidates.edits[:, 2] == REPLACE).all():
            spent = {
                at: levenshtein(old.word(at), base.word(at)) for at in np.flatnonzero(trial.find_changed(base)).tolist()
            }
            total, strings = sum(spent.values()), trial.vocabulary.strings
            for index, at, _, word in candidates.edits.tolist():
                others = total - spent.get(at, 0)
                mask[index] = others + levenshtein(old.word(at), strings[word]) <= self.limit
        whole = "\x00".join(old.texts.values())
        for index in np.flatnonzero(~mask).tolist():
            text = "\x00".join(candidates.draft(index).texts.values())
            mask[index] = levenshtein(whole, text, self.limit) <= self.limit
        return mask


@dataclass(frozen=True, slots=True)
class MostPerWord:
    """At most the first `most` candidates for every place; those that edit several places are of none."""

    most: int

    def __post_init__(self) -> None:
        if self.most < 1:
            raise UsageError(f"at least one candidate a word must be allowed, not {self.most}")

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Number the candidates of each place as they come."""
        del trial
        alone = np.bincount(candidates.edits[:, 0], minlength=candidates.count)[candidates.edits[:, 0]] == 1
        seen: dict[tuple[int, int], int] = {}
        mask = np.ones(candidates.count, bool)
        for index, position, span, _ in candidates.edits[alone].tolist():
            seen[position, span] = number = seen.get((position, span), 0) + 1
            mask[index] = number <= self.most
        return mask


@dataclass(frozen=True, slots=True)
class WordMeaning:
    """The word vectors of the old and the new word are close; without a reader, a word that has no vector passes."""

    neighbours: Neighbours
    min_cosine: float | None = None
    max_distance: float | None = None
    """Of the squared Euclidean distance."""
    against: Against = "original"
    reader: DictionaryReader | None = None
    """With one, what is read as the old word passes, and a word that cannot be compared does not."""

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Look at every replacement."""
        mask = np.ones(candidates.count, bool)
        for index, old, new in _replacements(trial, candidates, self.against):
            mask[index] &= self.close(old, new) or (self.reader is not None and self.reader.reads_as(old, new))
        return mask

    def close(self, old: str, new: str) -> bool:
        """Whether the two words' vectors are close enough."""
        if self.min_cosine is not None:
            cosine = self.neighbours.cosine(old, new)
            if cosine is None and self.reader is not None:
                return False
            if cosine is not None and cosine < self.min_cosine:
                return False
        if self.max_distance is not None:
            distance = self.neighbours.distance(old, new)
            if distance is not None and distance > self.max_distance:
                return False
        return True


@dataclass(frozen=True, slots=True)
class PartOfSpeech:
    """Old and new word are of the same part of speech, or one is a noun and the other a verb."""

    tagger: Tagger

    def holds(self, trial: Trial, candidates: Candidates) -> Bools:
        """Tag the words, in the context of the original text where the tagger wants one."""
        mask = np.ones(candidates.count, bool)
        words = trial.original.words
        places = sorted(_list_replacements(trial, candidates), key=lambda place: place[1])
        for position, own in groupby(places, key=lambda place: place[1]):
            index, _, new = zip(*own, strict=True)
            np.logical_and.at(mask, list(index), self.tagger.fitting(words, position, new))
        return mask


@dataclass(frozen=True, slots=True)
class SentenceMeaning:
    """The candidate and the reference mean the same, by a sentence encoder.

    cosine = <u, v>,  angular = 1 - arccos(<u, v>) / pi,  over the words in a window around the edit or the whole text.

    Rough cosines decide where they are further from the threshold than their error; about the others it asks again.
    """

    threshold: float
    metric: Metric = "cosine"
    window: int | None = None
    against: Against = "original"
    skip_short: bool = True
    """Texts shorter than the window pass unseen."""

    def __post_init__(self) -> None:
        if not -1 <= self.threshold <= 1:
            raise UsageError(f"a similarity lies in [-1, 1], not {self.threshold}")
        if self.window is not None and self.window < 1:
            raise UsageError(f"the window holds at least one word, not {self.window}")

    def ask(self, trial: Trial, candidates: Candidates) -> Generator[Request, Any, Bools]:
        """Ask for the similarity, unless every text is too short for the window."""
        short = self._passing(candidates)
        if short.all():
            candidates.similarity, candidates.measured_by = np.ones(candidates.count, np.float32), None
            return np.ones(candidates.count, bool)
        request = self._request(trial, candidates, rough=True)
        cosines = yield request
        if request.error is not None:
            cosines = yield from self._settle(trial, candidates, cosines, request.error, short)
        similarity = np.where(short, np.float32(1), apply_metric(cosines, self.metric))
        candidates.similarity, candidates.measured_by = similarity, None if request.error is None else self
        return np.asarray(similarity >= self.threshold)

    def measure(self, trial: Trial, candidates: Candidates) -> Generator[Request, Any, Floats]:
        """The exact similarity of candidates that were asked about before."""
        cosines = yield self._request(trial, candidates)
        return np.where(self._passing(candidates), np.float32(1), apply_metric(cosines, self.metric))

    def _settle(
        self, trial: Trial, candidates: Candidates, cosines: Floats, error: float, short: Bools
    ) -> Generator[Request, Any, Floats]:
        """The cosines, with exact ones where a rough one is too near the threshold to decide."""
        least = self.threshold if self.metric == "cosine" else math.cos(math.pi * (1 - self.threshold))
        sure = short | (np.abs(cosines - least) > error)  # A cosine that is NaN is not sure.
        if sure.all():
            return cosines
        settled = cosines.copy()
        settled[~sure] = yield self._request(trial, candidates.keep(~sure))
        return settled

    def _passing(self, candidates: Candidates) -> Bools:
        """Texts that are too short to be looked at."""
        if self.window is None or not self.skip_short:
            return np.zeros(candidates.count, bool)
        return np.asarray(candidates.lengths() < self.window)

    def _request(self, trial: Trial, candidates: Candidates, rough: bool = False) -> Similarity:
        reference = trial.original if self.against == "original" else candidates.base
        return Similarity(candidates.base, candidates.edits, candidates.count, reference, self.window, rough)


def apply_metric(cosines: Floats, metric: Metric) -> Floats:
    """Cosines as they are, or as 1 - angle / pi."""
    if metric == "cosine":
        return cosines
    return np.asarray(1 - np.arccos(np.clip(cosines, -1, 1)) / np.pi, np.float32)


@dataclass(frozen=True, slots=True)
class Fluency:
    """The new word is not much less likely in its place than the old one, by a masked language model."""

    max_drop: float
    """Most that the mean log-probability of the word's pieces may fall."""

    def ask(self, trial: Trial, candidates: Candidates) -> Generator[Request, Any, Bools]:
        """Ask for new and old word in one request."""
        edits = candidates.edits
        # A word that was inserted or is left out has no word to be compared with.
        edits = edits[(edits[:, 2] == REPLACE) & (edits[:, 3] != DELETE) & (candidates.base.origin[edits[:, 1]] >= 0)]
        mask = np.ones(candidates.count, bool)
        if not len(edits):
            return mask
        positions, new = edits[:, 1], edits[:, 3]
        old = candidates.base.ids[positions]
        found = yield Likelihood(candidates.base, np.tile(positions, 2), np.concatenate([new, old]))
        np.logical_and.at(mask, edits[:, 0], found[: len(new)] - found[len(new) :] >= -self.max_drop)
        return mask


def _list_replacements(trial: Trial, candidates: Candidates) -> list[tuple[int, int, str]]:
    """Candidate, position in the original text and new word of every replacement of an original word by another."""
    strings, origin = trial.vocabulary.strings, candidates.base.origin
    return [
        (index, int(origin[position]), strings[word])
        for index, position, span, word in candidates.edits.tolist()
        if span == REPLACE and word != DELETE and origin[position] >= 0
    ]


def _replacements(trial: Trial, candidates: Candidates, against: Against) -> Sequence[tuple[int, str, str]]:
    """Candidate, old word and new word of every replacement."""
    if against == "original":
        return [(index, trial.original.word(at), new) for index, at, new in _list_replacements(trial, candidates)]
    strings = trial.vocabulary.strings
    return [
        (index, candidates.base.word(position), strings[word])
        for index, position, span, word in candidates.edits.tolist()
        if span == REPLACE
    ]
