"""Answers `Fill` and `Likelihood` requests: what a masked language model finds likely in a blank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import IsthmusError, VictimError
from isthmus.core.types import Floats, Ints, MaskedLM, TokenBatch
from isthmus.engine.requests import INSERT, MERGE, REPLACE, Fill, Fills, Likelihood
from isthmus.engine.spelling import Spelling
from isthmus.engine.template import Template
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import DELETE, Vocabulary

_CONTEXT = 128
"""Tokens around a blank that the masked language model reads."""


class Blanks:
    """Serves the blanks of all attacks with one masked language model."""

    def __init__(self, model: MaskedLM, vocabulary: Vocabulary, spent: Callable[[float], None]) -> None:
        self.model, self.spent = model, spent
        self.template = Template(model.tokenizer, 1, _CONTEXT)
        self.spelling = Spelling(model.tokenizer, vocabulary)

    def fill(self, requests: Sequence[Fill]) -> Callable[[], list[Fills | IsthmusError]]:
        """Likeliest words for every blank of every request."""
        answers: list[Fills | IsthmusError] = []
        for request in requests:
            try:
                answers.append(self._kept(request) if request.keep else self._filled(request))
            except IsthmusError as error:
                answers.append(error)
        return lambda: answers

    def likelihood(self, requests: Sequence[Likelihood]) -> Callable[[], list[Floats | IsthmusError]]:
        """Mean log-probability of every word of every request."""
        answers: list[Floats | IsthmusError] = []
        for request in requests:
            try:
                answers.append(self._likelihood(request))
            except IsthmusError as error:
                answers.append(error)
        return lambda: answers

    def _filled(self, request: Fill) -> Fills:
        rows, places = [], []
        for position in request.positions.tolist():
            ids, own = self._row(request.base, position, request.span, 1)
            rows.append(ids)
            places.append(own[0])
        tokens, probabilities = self._best(rows, places, min(4 * request.k, len(self.model.tokenizer)))
        spelling = self.spelling
        allowed = spelling.whole[tokens]
        if request.strip:
            counted = np.cumsum(spelling.holds_word[tokens], axis=1) <= request.k
            allowed = spelling.one_word[tokens] & counted
        words = np.where(allowed, spelling.words_of(tokens), DELETE)
        return _compact(words, probabilities, request.k, spelling)

    def _kept(self, request: Fill) -> Fills:
        rows, places, counts = list[list[int]](), list[int](), list[int]()
        for position in request.positions.tolist():
            ids, own = self._row(request.base, position, REPLACE, 0)
            rows += [ids] * len(own)
            places += own
            counts.append(len(own))
        tokens, probabilities = self._best(rows, places, request.k)
        cuts = np.cumsum(counts)[:-1]
        pieces = tuple(zip(np.split(tokens, cuts), np.split(probabilities, cuts), strict=True))
        spelling = self.spelling
        words = np.full((len(counts), request.k), DELETE, np.int32)
        chances = np.zeros(words.shape, np.float32)
        for index, (best, weights) in enumerate(pieces):
            if len(best) == 1:
                words[index] = np.where(spelling.whole[best[0]], spelling.words_of(best[0]), DELETE)
                chances[index] = weights[0]
        compact = _compact(words, chances, request.k, spelling)
        return Fills(compact.words, compact.probabilities, pieces, spelling)

    def _likelihood(self, request: Likelihood) -> Floats:
        logarithms = np.zeros(len(request.positions), np.float32)
        mask = self.model.tokenizer.mask_token_id
        for index, (position, word) in enumerate(zip(request.positions.tolist(), request.words.tolist(), strict=True)):
            ids, places = self._row(request.base.replace(position, word), position, REPLACE, 0)
            subwords = [ids[place] for place in places]
            blanked = [mask if at in places else token for at, token in enumerate(ids)]
            tokens, chances = self._best([blanked] * len(places), places, len(self.model.tokenizer))
            own = [chances[row, np.flatnonzero(tokens[row] == token)[0]] for row, token in enumerate(subwords)]
            logarithms[index] = np.log(np.maximum(own, np.finfo(np.float32).tiny)).mean()
        return logarithms

    def _row(self, base: Draft, position: int, span: int, blanks: int) -> tuple[list[int], list[int]]:
        """Token ids around the blanks (or around the word itself), and where in them the blanks (or sub-words) are."""
        tokenizer = self.model.tokenizer
        field = base.field_of(position)
        text = base.parsed()[field]
        local = position - base.structure.starts[field]
        mask = " ".join([str(tokenizer.mask_token)] * blanks)
        if span == INSERT:
            text = text.insert(local, mask)
        elif span == MERGE:
            text = text.merge(local, mask)
        elif blanks:
            text = text.replace({local: mask})
        start, end = text.offsets()[local]
        encoding = tokenizer(str(text), add_special_tokens=False, return_offsets_mapping=True)
        whole = list(encoding["input_ids"])
        found = [at for at, (left, right) in enumerate(encoding["offset_mapping"]) if left < end and right > start]
        room, (before, after) = self.template.room, self.template.specials
        place = found[0] if found else 0
        first = max(0, min(place - room // 2, len(whole) - room))
        ids = [*before, *whole[first : first + room], *after]
        shift = len(before) - first
        return ids, [at + shift for at in (found or [0]) if at - first < room]

    def _best(self, rows: Sequence[Sequence[int]], places: Sequence[int], k: int) -> tuple[Ints, Floats]:
        """The `k` likeliest tokens at one place of each row; rows of equal length go together."""
        tokens = np.zeros((len(rows), k), np.int64)
        probabilities = np.zeros((len(rows), k), np.float32)
        lengths = np.array([len(row) for row in rows])
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length).tolist()
            batch = TokenBatch(np.array([rows[index] for index in same], np.int64))
            positions = np.array([places[index] for index in same], np.int64)
            tokens[same], probabilities[same] = self.model.fill(batch, positions, k)
        if not np.isfinite(probabilities).all():
            raise VictimError(f"the masked language model {self.model.name} returned NaN")
        return tokens, probabilities


def _compact(words: NDArray[np.int32], probabilities: Floats, k: int, spelling: Spelling) -> Fills:
    """The first `k` words of every row, without gaps and without repetitions."""
    chosen = np.full((len(words), k), DELETE, np.int32)
    weights = np.zeros((len(words), k), np.float32)
    for row, candidates in enumerate(words):
        first = np.zeros(len(candidates), bool)
        first[np.unique(candidates, return_index=True)[1]] = True
        kept = np.flatnonzero(first & (candidates != DELETE))[:k]
        chosen[row, : len(kept)] = candidates[kept]
        weights[row, : len(kept)] = probabilities[row, kept]
    return Fills(chosen, weights, None, spelling)
