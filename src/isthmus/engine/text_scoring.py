"""Scores for victims that only take texts: a function, a service, another library's pipeline."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import cast

import numpy as np

from isthmus.core.errors import VictimTimeout
from isthmus.core.types import Floats, Keys, Texts
from isthmus.engine.packing import Failures, as_victim_error, halves, not_finite
from isthmus.engine.requests import Score
from isthmus.engine.scoring import MOST_UNITS, AskedScore, Later, Scorer, hand_out, owners
from isthmus.text.draft import DELETE, REPLACE, Draft
from isthmus.text.vocabulary import Vocabulary
from isthmus.text.words import close_gap

_FEW = 4
"""Places in a draft that are counted out one by one; for more of them all are."""


class TextScorer(Scorer):
    """Scores of victims that take texts only."""

    @property
    def batch_size(self) -> int:
        """Texts asked for at once: more where the victim says that it likes more."""
        return int(getattr(self.victim, "texts_at_once", 64))

    def renew(self, vocabulary: Vocabulary) -> None:
        """Do nothing: no state is kept per word."""

    def rows_at_once(self, base: Draft) -> int:
        """Few, if the text is long: every candidate is written out and read whole."""
        return max(16, MOST_UNITS // max(1, len(base)))

    def _sizes(self, asked: Sequence[AskedScore]) -> list[int]:
        return [len(item.request.base) for item in asked]

    def _start(self, asked: list[AskedScore]) -> Later:
        texts = [text for item in asked for text in _render(item.request)]
        owner = owners(asked)
        if owner is not None:
            texts = [texts[candidate] for candidate in owner.tolist()]
        keys = np.array([_text_key(text) for text in texts], np.uint64)
        streams = self._streams(asked)
        plan = self._plan(asked, keys, streams)
        wanted = None if streams is None else streams[plan.wanted]
        answers, failed = self._evaluate([texts[row] for row in plan.wanted], wanted)
        scores, failures = self._settle(plan, answers, failed)
        result = hand_out(asked, scores, failures)
        return lambda: result

    def _evaluate(self, texts: Sequence[Texts], streams: Keys | None) -> tuple[Floats, Failures]:
        scores = np.zeros((len(texts), len(self.victim.labels)), np.float32)
        failed: Failures = {}
        began = time.perf_counter()
        for start in range(0, len(texts), self.batch_size):
            chosen = range(start, min(start + self.batch_size, len(texts)))
            self.statistics.batches += 1
            self.statistics.forwarded += len(chosen)
            for rows in halves(len(chosen)):
                own = [chosen[row] for row in range(rows.start, rows.stop)]
                keys = None if streams is None else streams[own]
                try:
                    scores[own] = self.victim.scores([texts[index] for index in own], keys)
                except VictimTimeout as error:
                    # Asking again for each half would wait as long again: all that was not answered is lost.
                    lost = own
                    if error.answered is not None:
                        scores[own] = error.answered
                        lost = [index for index in own if np.isnan(scores[index]).all()]
                    failed.update(dict.fromkeys(lost, error))
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # What is no `Exception` either must not end the command.
                    if len(own) > 1:
                        rows.split = True
                        continue
                    failed[own[0]] = as_victim_error(error)
        self.statistics.model_s += time.perf_counter() - began
        not_finite(scores, failed)
        return scores, failed


def _render(request: Score) -> Iterator[dict[str, str]]:
    """The candidates of a request as texts."""
    bounds = np.searchsorted(request.edits[:, 0], np.arange(request.count + 1))
    edits = request.edits[:, 1:].tolist()
    written = _Written.of(request.base) if request.count > 1 else None
    for candidate in range(request.count):
        own = [(position, span, word) for position, span, word in edits[bounds[candidate] : bounds[candidate + 1]]]
        found = None if written is None else written.edit(own)
        yield request.base.apply(own).texts if found is None else found


class _Written:
    """A draft written out, so that a candidate is cut out of its string and not joined of all its words."""

    def __init__(self, base: Draft) -> None:
        self.base, self.fields, self.gaps = base, base.structure.fields, base.structure.gaps
        self.pieces = [words.pieces() for words in base.to_words()]
        self.texts = {name: "".join(pieces) for name, pieces in zip(self.fields, self.pieces, strict=True)}
        self._ends: list[list[int]] | None = None
        self._asked: dict[tuple[int, int], int] = {}

    def _end_of_gap(self, field: int, word: int) -> int:
        """The end of the gap before a word."""
        if self._ends is None and len(self._asked) < _FEW:
            if (field, word) not in self._asked:
                self._asked[field, word] = sum(map(len, self.pieces[field][: 2 * word + 1]))
            return self._asked[field, word]
        if self._ends is None:
            self._ends = [list(accumulate(map(len, pieces))) for pieces in self.pieces]
        return self._ends[field][2 * word]

    @classmethod
    def of(cls, base: Draft) -> _Written:
        """Written once for as long as the draft lives."""
        found = base.note(cls)
        if found is None:
            base.keep_note(cls, found := cls(base))
        return cast("_Written", found)

    def edit(self, edits: list[tuple[int, int, int]]) -> dict[str, str] | None:
        """The text with words replaced, or with one word taken out; None for edits of other kinds."""
        if any(span != REPLACE for _, span, _ in edits) or (len(edits) > 1 and any(w == DELETE for *_, w in edits)):
            return None
        texts, strings = dict(self.texts), self.base.structure.vocabulary.strings
        for position, _, word in sorted(edits, reverse=True):
            field = self.base.field_of(position)
            at = position - self.base.structure.starts[field]
            start = self._end_of_gap(field, at)
            end = start + len(self.pieces[field][2 * at + 1])
            new = "" if word == DELETE else strings[word]
            if word == DELETE:
                before, after = self.gaps[field][at : at + 2]
                start, end, new = start - len(before), end + len(after), close_gap(before, after, first=not at)
            name = self.fields[field]
            texts[name] = texts[name][:start] + new + texts[name][end:]
        return texts


def _text_key(text: Texts) -> int:
    packed = "\x1f".join(text.values()).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") | 1
