"""GoodWords: add benign words until the text passes (Lowd & Meek, 2005)."""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.searches import Search, find_proposed, most_similar
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.engine.requests import Request, replacing
from isthmus.lexicon.benign import benign_words
from isthmus.text.words import Words

Place = Literal["end", "start"]


@dataclass(frozen=True, kw_only=True)
class GoodWords(WordAttack):
    """Add benign words until the prediction changes; the text itself stays unchanged.

        rank(w)  =  1 - p(y | x + w)                                           for every word w of the list, once
        x_{k+1}  =  x_k + argmax of  1 - p(y | x_k + w)  over the `look` best-ranked words left

    if that lowers p(y); otherwise those words are laid aside, and the next ones are looked at.

    References:
        Lowd, Meek: Good Word Attacks on Statistical Spam Filters. CEAS 2005.

    Where we depart:
        The paper first finds good words with a message that the filter barely lets through, then adds the best of them
        to every spam; we rank the words again for each text, and look again at each step, since a neural classifier is
        not linear in its words. With ``look=1`` words are added in the order of their rank.
        The shipped words are harmless to a filter of spam or abuse; some of them (pleased, sorry) speak for a
        sentiment, and added to a review they change what it says: give a list that suits the task.

    Relations:
        The only attack that leaves the original text untouched: whatever the text has to say it still says. CLARE and
        BAE insert words too, but inside the text and chosen by a language model.

    Example:
        ``isthmus attack runs/spam --attack goodwords -P max_words=30 -P place=start``
    """

    source: str = "benign"
    """Where words come from: `benign`, the list shipped here, or a file with one word per line."""
    words: tuple[str, ...] = ()
    """Words to add, instead of the source's."""
    place: Place = "end"
    """Where they are added: behind the text or in front of it; of a pair, the text that may be edited."""
    max_words: int = 20
    """Maximum number of added words."""
    max_share: float | None = None
    """Maximum number of added words, as a share of the text's words."""
    look: int = 10
    """Number of words tried at each step."""

    def __post_init__(self) -> None:
        if self.place not in get_args(Place):
            raise UnknownName("place", self.place, get_args(Place))
        if self.max_words < 1 or self.look < 1:
            raise UsageError(f"max_words and look must be at least 1, not {self.max_words} and {self.look}")
        if self.max_share is not None and self.max_share <= 0:
            raise UsageError(f"max_share must be above 0, not {self.max_share}")
        _check_words(self.words, "words")

    def resources(self) -> Mapping[str, str]:
        """The list of words."""
        if self.words:
            return {"benign words": f"{len(self.words)} given words"}
        return {"benign words": f"{len(self.list())} words, {'shipped' if self.source == 'benign' else self.source}"}

    def list(self) -> tuple[str, ...]:
        """The words that are tried."""
        return self.words or (benign_words() if self.source == "benign" else read_words(self.source))

    def search(self, trial: Trial) -> Search:
        """Rank the words, then add them."""
        field = self._field(trial)
        if field is None:
            return
        most = self.max_words
        if self.max_share is not None:
            most = min(most, math.ceil(self.max_share * len(trial.original)))
        left = yield from self._try_words(trial, field, trial.vocabulary.ids(dict.fromkeys(self.list())))
        while len(left) and trial.moves < most and not trial.reached:
            moves, rest = trial.moves, left[self.look :]
            left = yield from self._try_words(trial, field, left[: self.look])
            left = np.concatenate([left, rest]) if trial.moves > moves else rest

    def _field(self, trial: Trial) -> int | None:
        """The last (or first) field that may be edited; None if nothing may."""
        starts, editable = trial.original.structure.starts, trial.original.editable
        fields = [field for field in range(len(starts) - 1) if editable[starts[field] : starts[field + 1]].any()]
        if not fields:
            return None
        return fields[-1] if self.place == "end" else fields[0]

    def _try_words(
        self, trial: Trial, field: int, words: NDArray[np.int32]
    ) -> Generator[Request, Any, NDArray[np.int32]]:
        """Try each word, add the best if it helps; the others, best first."""
        front = self.place == "start"
        # One place is opened, and every candidate is another word in it.
        base = trial.draft.add(field, int(words[0]), front=front)
        at = base.structure.starts[field] if front else base.structure.starts[field + 1] - 1
        candidates = yield from find_proposed(trial, base, replacing(at, words))
        if not candidates.count:
            return words[:0]
        scores = yield candidates.score()
        progress = trial.judge(scores)
        order = np.argsort(-progress, kind="stable")
        if progress[order[0]] > trial.progress:
            best = int(order[0])
            if candidates.similarity is not None:
                best = yield from most_similar(trial, scores, progress, candidates)
            trial.accept(candidates.draft(best), scores[best], float(progress[best]))
            order = order[order != best]
        return np.asarray(candidates.edits[order, 3])


@functools.cache
def read_words(path: str) -> tuple[str, ...]:
    """The words of a file, one per line; empty lines and lines that start with # do not count."""
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read words from {path}: {error}; give `benign` or a file of one word per line"
        ) from error
    words = tuple(word for line in lines if (word := line.strip()) and not word.startswith("#"))
    if not words:
        raise DataError(f"{path} holds no words: give one word per line")
    return _check_words(words, path)


def _check_words(words: tuple[str, ...], where: str) -> tuple[str, ...]:
    for word in words:
        if Words.of(word).words != (word,):
            raise DataError(f"{where}: {word!r} is not one word")
    return words
