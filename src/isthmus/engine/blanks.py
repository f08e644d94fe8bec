"""Answers `Fill` and `Likelihood` requests with a masked language model's predictions for blanks.

    words          = the k words w of the largest  p(w | text with a blank)
    likelihood     = mean over the sub-words s of a word of  log p(s | text with as many blanks)

Equal rows are one, rows of equal length go together, and of a row only the blanks reach the vocabulary-wide product.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import IsthmusError, VictimError
from isthmus.core.types import Bools, Filling, Floats, Ints, MaskedLM, Pending, TokenBatch, TokenMaskedLM
from isthmus.engine.contexts import Around, Contexts
from isthmus.engine.packing import as_victim_error, distinct, pack_rows
from isthmus.engine.requests import Fill, Fills, Likelihood
from isthmus.engine.spelling import Spelling
from isthmus.text.vocabulary import DELETE, Vocabulary

_CONTEXT = 128
"""Most tokens around a blank that the masked language model reads."""

_MOST_ROWS = 1 << 12
"""Rows filled at once; larger rounds are served in parts, so that memory stays bounded."""

Asked = TypeVar("Asked", Fill, Likelihood)
Waiting = Callable[[], list[Any]]


class Blanks:
    """Serves the blanks of all attacks with one masked language model."""

    def __init__(self, model: MaskedLM, vocabulary: Vocabulary, spent: Callable[[float], None]) -> None:
        self.name, self.spent = model.name, spent
        self.model = model if isinstance(model, TokenMaskedLM) else _ByFill(model)
        self.on_gpu = self.model.device_type != "cpu"
        context = min(_CONTEXT, getattr(model, "max_tokens", _CONTEXT))
        self.contexts = Contexts(model.tokenizer, vocabulary, context)
        self.spelling = Spelling(model.tokenizer, vocabulary)
        self.anything: Bools = np.ones(len(self.spelling), bool)
        self.pad = model.tokenizer.pad_token_id or 0

    def fill(self, requests: Sequence[Fill]) -> Waiting:
        """Start filling the blanks of all requests; the result waits for one answer per request."""
        kinds: dict[tuple[int, bool, bool], list[int]] = defaultdict(list)
        started: list[tuple[list[int], Waiting]] = []
        for index, request in enumerate(requests):
            if len(request.positions):
                kinds[request.k, request.keep, request.strip].append(index)
            else:
                started.append(([index], partial(_fill_nothing, request, self.spelling)))
        for (_, keep, _), chosen in kinds.items():
            launch = self._start_kept_fills if keep else self._start_fills
            for part in _cut_into_parts([len(requests[index].positions) for index in chosen]):
                own = [chosen[index] for index in part]
                started.append((own, self._each([requests[index] for index in own], launch)))
        return lambda: _put_in_order(started, len(requests))

    def likelihood(self, requests: Sequence[Likelihood]) -> Waiting:
        """Start finding the likelihood of the words of all requests; the result waits for one answer per request."""
        asked = [index for index, request in enumerate(requests) if len(request.positions)]
        started: list[tuple[list[int], Waiting]] = [
            ([index], lambda: [np.zeros(0, np.float32)]) for index in set(range(len(requests))).difference(asked)
        ]
        for part in _cut_into_parts([len(requests[index].positions) for index in asked]):
            own = [asked[index] for index in part]
            started.append((own, self._each([requests[index] for index in own], self._likelihoods)))
        return lambda: _put_in_order(started, len(requests))

    def _each(self, requests: list[Asked], launch: Callable[[list[Asked]], Waiting]) -> Waiting:
        """Launch several requests together; if that fails, one by one, so that only the faulty one fails."""

        wait: Waiting | None = None

        def alone() -> list[Any]:
            answers: list[Any] = []
            for request in requests:
                try:
                    answers += launch([request])()
                except Exception as error:
                    answers.append(as_victim_error(error))
            return answers

        def finish() -> list[Any]:
            try:
                return alone() if wait is None else wait()
            except Exception:
                return alone()

        with suppress(Exception):
            wait = launch(requests)
        if self.on_gpu:
            return finish
        ready = finish()
        return lambda: ready

    # ------------------------------------------------------------------ what is asked

    def _start_fills(self, requests: list[Fill]) -> Waiting:
        k, spelling = requests[0].k, self.spelling
        allowed = spelling.one_word if requests[0].strip else spelling.whole
        wait = self._best(self.contexts.blank(requests), k, allowed)

        def finish() -> list[Any]:
            tokens, chances = wait()
            words = np.where(allowed[tokens], spelling.words_of(tokens), DELETE)
            words, weights = _once(words, chances)
            return [
                self._finite(own, Fills(words[own], weights[own], None, spelling), chances) for own in _slices(requests)
            ]

        return finish

    def _start_kept_fills(self, requests: list[Fill]) -> Waiting:
        k, spelling = requests[0].k, self.spelling
        around = self.contexts.keep_words(requests)
        wait = self._best(around, k, self.anything)

        def finish() -> list[Any]:
            tokens, chances = wait()
            cuts = np.searchsorted(around.entry, np.arange(1, len(around.rows)))
            pieces = list(zip(np.split(tokens, cuts), np.split(chances, cuts), strict=True))
            single = np.array([len(best) == 1 for best, _ in pieces])
            words = np.full((len(pieces), k), DELETE, np.int32)
            weights = np.zeros((len(pieces), k), np.float32)
            if single.any():
                best = np.concatenate([pieces[at][0] for at in np.flatnonzero(single)])
                words[single] = np.where(spelling.whole[best], spelling.words_of(best), DELETE)
                weights[single] = np.concatenate([pieces[at][1] for at in np.flatnonzero(single)])
            words, weights = _once(words, weights)
            return [
                self._finite(blanks, Fills(words[own], weights[own], tuple(pieces[own]), spelling), chances)
                for own in _slices(requests)
                for blanks in [slice(*np.searchsorted(around.entry, [own.start, own.stop]).tolist())]
            ]

        return finish

    def _likelihoods(self, requests: list[Likelihood]) -> Waiting:
        around = self.contexts.put_words(requests)
        batches, row = self._pack(around)
        assert around.tokens is not None
        began = time.perf_counter()
        pending = self.model.launch_likelihood(batches, row, around.place, around.tokens)
        self.spent(time.perf_counter() - began)

        def finish() -> list[Any]:
            began = time.perf_counter()
            values = pending().astype(np.float64)
            self.spent(time.perf_counter() - began)
            entries = len(around.rows)
            number = np.bincount(around.entry, minlength=entries)
            total = np.bincount(around.entry, values, entries)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = np.where(number > 0, total / number, -np.inf).astype(np.float32)
            nan = VictimError(f"the masked language model {self.name} returned NaN")
            return [nan if np.isnan(mean[own]).any() else mean[own] for own in _slices(requests)]

        return finish

    def _finite(self, blanks: slice, fills: Fills, chances: Floats) -> Fills | IsthmusError:
        if np.isfinite(chances[blanks]).all():
            return fills
        return VictimError(f"the masked language model {self.name} returned NaN")

    # ------------------------------------------------------------------ the model

    def _best(self, around: Around, k: int, allowed: Bools) -> Filling:
        batches, row = self._pack(around)
        began = time.perf_counter()
        pending = self.model.launch_fill(batches, row, around.place, k, allowed)
        self.spent(time.perf_counter() - began)

        def finish() -> tuple[Ints, Floats]:
            began = time.perf_counter()
            tokens, chances = pending()
            self.spent(time.perf_counter() - began)
            if (chances[:, 1:] == chances[:, :-1]).any():  # ties: the smaller id first
                order = np.lexsort((tokens, -chances), axis=1)
                tokens, chances = np.take_along_axis(tokens, order, 1), np.take_along_axis(chances, order, 1)
            return tokens, chances

        return finish

    def _pack(self, around: Around) -> tuple[list[TokenBatch], Ints]:
        """Batches of the distinct rows, and for every blank its row in them."""
        fresh, inverse = distinct(self.contexts.assembler.row_keys(around.rows))
        work = pack_rows(around.rows, fresh, on_gpu=self.on_gpu, pad=self.pad)
        return work.batches, work.places[inverse[around.row]]


class _ByFill:
    """A masked language model that can only fill one blank a row and waits for it."""

    device_type = "cpu"

    def __init__(self, model: MaskedLM) -> None:
        self.model = model
        self.size = len(model.tokenizer)

    def launch_fill(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, k: int, allowed: Bools) -> Filling:
        """The best `k` of the tokens that are allowed; more than are wanted are asked for, and all if need be."""
        tokens, chances = np.zeros((len(rows), k), np.int64), np.zeros((len(rows), k), np.float32)
        first = k if allowed.all() else 4 * k
        for own, batch in _expand(batches, rows):
            wanted = min(first, self.size)
            best, weights = self.model.fill(batch, places[own], wanted)
            # Where too few are allowed, look at all of them, unless those not seen are impossible.
            short = (allowed[best].sum(axis=1) < k) & (weights[:, -1] > 0)
            tokens[own], chances[own] = _choose_allowed(best, weights, allowed, k)
            if wanted < self.size and short.any():
                few = TokenBatch(batch.ids[short], None if batch.mask is None else batch.mask[short])
                best, weights = self.model.fill(few, places[own[short]], self.size)
                tokens[own[short]], chances[own[short]] = _choose_allowed(best, weights, allowed, k)
        return lambda: (tokens, chances)

    def launch_likelihood(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, tokens: Ints) -> Pending:
        """Log-probabilities of the tokens in the blanks."""
        values = np.zeros(len(rows), np.float32)
        for own, batch in _expand(batches, rows):
            best, weights = self.model.fill(batch, places[own], self.size)
            chance = weights[best == tokens[own, None]]
            with np.errstate(divide="ignore"):
                values[own] = np.log(chance)
        return lambda: values


def _expand(batches: Sequence[TokenBatch], rows: Ints) -> Iterator[tuple[Ints, TokenBatch]]:
    """For every batch the blanks in it, and a batch with a row for each of them."""
    first = 0
    for batch in batches:
        own = np.flatnonzero((rows >= first) & (rows < first + len(batch.ids)))
        at = rows[own] - first
        first += len(batch.ids)
        if len(own):
            yield own, TokenBatch(batch.ids[at], None if batch.mask is None else batch.mask[at])


def _choose_allowed(best: Ints, weights: Floats, allowed: Bools, k: int) -> tuple[Ints, Floats]:
    """The first `k` allowed tokens of every row; where there are fewer, others at probability 0."""
    fits = allowed[best]
    order = np.argsort(~fits, axis=1, kind="stable")[:, :k]
    weights = np.where(np.take_along_axis(fits, order, axis=1), np.take_along_axis(weights, order, axis=1), 0)
    return np.take_along_axis(best, order, axis=1), weights.astype(np.float32)


def _once(words: NDArray[np.int32], chances: Floats) -> tuple[NDArray[np.int32], Floats]:
    """Every row's words without repetitions and gaps, padded with DELETE at probability 0."""
    order = np.argsort(words, axis=1, kind="stable")
    ordered = np.take_along_axis(words, order, axis=1)
    new = np.ones(words.shape, bool)
    np.put_along_axis(new, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)
    new &= words != DELETE
    order = np.argsort(~new, axis=1, kind="stable")
    kept = np.take_along_axis(new, order, axis=1)
    words = np.where(kept, np.take_along_axis(words, order, axis=1), DELETE).astype(np.int32)
    return words, np.where(kept, np.take_along_axis(chances, order, axis=1), 0).astype(np.float32)


def _fill_nothing(request: Fill, spelling: Spelling) -> list[Fills]:
    shape = 0, request.k
    pieces = () if request.keep else None
    return [Fills(np.zeros(shape, np.int32), np.zeros(shape, np.float32), pieces, spelling)]


def _slices(requests: Sequence[Fill | Likelihood]) -> list[slice]:
    ends = np.cumsum([len(request.positions) for request in requests]).tolist()
    return [slice(end - len(request.positions), end) for request, end in zip(requests, ends, strict=True)]


def _cut_into_parts(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Requests in parts of not much more than `_MOST_ROWS` rows."""
    part, filled = list[int](), 0
    for index, size in enumerate(sizes):
        part.append(index)
        filled += size
        if filled >= _MOST_ROWS:
            yield part
            part, filled = [], 0
    if part:
        yield part


def _put_in_order(started: Sequence[tuple[Sequence[int], Waiting]], count: int) -> list[Any]:
    answers: list[Any] = [None] * count
    for chosen, wait in started:
        for index, answer in zip(chosen, wait(), strict=True):
            answers[index] = answer
    return answers
