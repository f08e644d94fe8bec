"""Answers `Similarity` requests: cosines of sentence vectors, batched across attacks.

An encoder that takes token ids gets rows that are spliced like those of the victim, every distinct row once, and works
on its own while the host goes on; one that takes texts gets texts. What candidates are compared with is encoded once
and kept for as long as the draft it belongs to. Whoever is content with rough cosines gets them where the encoder has
fast arithmetic, with their largest error.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from isthmus.core.errors import IsthmusError, VictimError
from isthmus.core.types import Floats, Ints, Pending, RoughEncoder, SentenceEncoder, TokenBatch, TokenEncoder
from isthmus.engine.assembly import Assembler
from isthmus.engine.changes import LaidTexts, changes_of, make_draft
from isthmus.engine.packing import Failures, as_victim_error, distinct, launch_batches, pack_rows
from isthmus.engine.requests import Similarity
from isthmus.engine.rows import TokenRows
from isthmus.engine.windows import Centres, window, words_within
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

SimilarityAnswer = Floats | IsthmusError
WaitingSimilarities = Callable[[], list[SimilarityAnswer]]
Launch = Callable[[Sequence[TokenBatch]], Pending]

_MOST_ROWS = 1 << 15
"""Candidates encoded at once; larger rounds are served in parts, so that memory stays bounded."""

_AHEAD = 3
"""Parts that may be launched before an earlier one is waited for."""


class Similarities(ABC):
    """Compares the candidates of all attacks with one sentence encoder."""

    def __init__(self, encoder: SentenceEncoder, spent: Callable[[float], None]) -> None:
        self.encoder, self.spent = encoder, spent

    def start(self, requests: Sequence[Similarity]) -> WaitingSimilarities:
        """Start comparing; the result waits for one answer per request."""
        pieces: dict[int, list[SimilarityAnswer]] = defaultdict(list)
        waiting: deque[tuple[list[tuple[int, Similarity]], WaitingSimilarities]] = deque()

        def settle(most: int) -> None:
            while len(waiting) > most:
                part, wait = waiting.popleft()
                for (index, _), answer in zip(part, wait(), strict=True):
                    pieces[index].append(answer)

        for part in _cut_into_parts(requests):
            waiting.append((part, self._start([request for _, request in part])))
            settle(_AHEAD)

        def finish() -> list[SimilarityAnswer]:
            settle(0)
            return [_join_pieces(pieces[index]) for index in range(len(requests))]

        return finish

    @abstractmethod
    def _start(self, requests: list[Similarity]) -> WaitingSimilarities: ...

    def _cosines(self, left: Floats, right: Floats, rough: bool = False) -> SimilarityAnswer:
        # Not by a matrix product, whose last bits may depend on the number of rows.
        cosines: Floats = np.einsum("ij,ij->i" if right.ndim == 2 else "ij,j->i", left, right)
        finite = np.isfinite(cosines)
        np.clip(cosines, -1.0, 1.0, out=cosines)
        if finite.all():
            return cosines
        if rough:
            return np.where(finite, cosines, np.float32(np.nan))
        return VictimError(f"the sentence encoder {self.encoder.name} returned NaN")


# ---------------------------------------------------------------------- encoders that take token ids


class TokenSimilarities(Similarities):
    """Similarities by encoders that take token ids."""

    encoder: TokenEncoder

    def __init__(self, encoder: TokenEncoder, vocabulary: Vocabulary, spent: Callable[[float], None]) -> None:
        super().__init__(encoder, spent)
        self.assembler = Assembler(encoder.tokenizer, vocabulary, encoder.max_tokens)
        self.on_gpu = encoder.device_type != "cpu"
        self.pad = encoder.tokenizer.pad_token_id or 0

    def _start(self, requests: list[Similarity]) -> WaitingSimilarities:
        fast = self._fast
        if fast is None or not any(request.rough for request in requests):
            return self._encode(requests, None)
        error, launch = fast
        kinds = [[at for at, request in enumerate(requests) if request.rough is rough] for rough in (True, False)]
        for at in kinds[0]:
            requests[at].is_within(error)
        waiting = [
            (own, self._encode([requests[at] for at in own], way))
            for own, way in zip(kinds, (launch, None), strict=True)
            if own
        ]

        def finish() -> list[SimilarityAnswer]:
            found = {at: answer for own, wait in waiting for at, answer in zip(own, wait(), strict=True)}
            return [found[at] for at in range(len(requests))]

        return finish

    @cached_property
    def _fast(self) -> tuple[float, Launch] | None:
        """The encoder's fast arithmetic and its error, if it has one."""
        encoder = self.encoder
        if not isinstance(encoder, RoughEncoder) or (error := encoder.rough_error) is None:
            return None
        return error, encoder.launch_roughly

    def _encode(self, requests: list[Similarity], fast: Launch | None) -> WaitingSimilarities:
        counts = np.fromiter((request.count for request in requests), np.int64, len(requests))
        centres = Centres.of(requests, counts)
        references = _References((self.assembler.number, fast is not None), requests, centres)
        rows = self._rows(requests, counts, centres, references)
        fresh, inverse = distinct(self.assembler.row_keys(rows))
        work = pack_rows(rows, fresh, on_gpu=self.on_gpu, pad=self.pad, half=fast is not None)
        places = work.places[inverse]
        wait = launch_batches(fast or self.encoder.launch, work, self.spent)
        if not self.on_gpu:  # what was launched is done: hand out the answers, and let go of the rows
            answers = self._compare(counts, places, *wait(), references)
            return lambda: answers
        return lambda: self._compare(counts, places, *wait(), references)

    def _rows(self, requests: list[Similarity], counts: Ints, centres: Centres, references: _References) -> TokenRows:
        """The rows of all candidates, then those of the references that are not known yet."""
        missing, laid = references.missing, self.assembler.lay
        texts = LaidTexts([laid(draft) for draft in (*(r.base for r in requests), *(part.draft for part in missing))])
        changes = changes_of(self.assembler.splicer, requests, texts, counts)
        low, high, odd = centres.ranges(texts)
        changes = words_within(changes, low, high, np.flatnonzero(odd).tolist())
        written = {row: [_cut_candidate(requests, counts, centres, row)] for row in changes.odd}
        own = [part.units(texts, len(requests) + index) for index, part in enumerate(missing)]
        written.update({len(low) + index: [str(missing[index])] for index, units in enumerate(own) if units is None})
        ranges = np.array([units or (0, 0) for units in own], np.int64).reshape(-1, 2)
        return self.assembler.join(
            texts,
            np.concatenate([low, ranges[:, 0]])[:, None],
            np.concatenate([high, ranges[:, 1]])[:, None],
            changes,
            self.assembler.encode(written),
        )

    def _compare(
        self, counts: Ints, places: Ints, vectors: Floats, failed: Failures, references: _References
    ) -> list[SimilarityAnswer]:
        rows, width = int(counts.sum()), self.encoder.width
        if vectors.shape[1] != width:  # Every row failed, and nobody knew how wide they are.
            vectors = np.full((len(vectors), width), np.nan, np.float32)
        references.take(vectors, places[rows:], failed)
        answers: list[SimilarityAnswer] = []
        start = 0
        for count in counts.tolist():
            own, of = places[start : start + count], references.of_row[start : start + count]
            start += count
            if not count:
                answers.append(np.zeros(0, np.float32))
                continue
            error = None
            if failed and not references.rough:  # A rough row that failed is NaN, and may be asked for exactly.
                error = next((failed[row] for row in own.tolist() if row in failed), None)
                error = error or next((references.failed[at] for at in of.tolist() if at in references.failed), None)
            right = references.vectors[of[0]] if (of == of[0]).all() else references.vectors[of]
            answers.append(error or self._cosines(vectors[own], right, references.rough))
        return answers


class Part(NamedTuple):
    """Some words of one field of a draft; all of it if `last` is -1."""

    draft: Draft
    field: int
    first: int
    last: int

    def units(self, texts: LaidTexts, index: int) -> tuple[int, int] | None:
        """First and last (exclusive) unit, or None where it has to be written out."""
        if self.last < 0:
            low, high = texts.bounds()
            return None if texts.laid[index].whole else (int(low[index, self.field]), int(high[index, self.field]))
        owner = np.array([index, index])
        words = np.array([self.first, self.last]) + self.draft.structure.starts[self.field]
        if not texts.alone(owner, words).all():
            return None
        first, last = texts.unit(owner, words).tolist()
        return first, last + 1

    def __str__(self) -> str:
        text = self.draft.to_words()[self.field]
        if self.last < 0:
            return str(text)
        offsets = text.offsets()
        return str(text)[offsets[self.first][0] : offsets[self.last][1]]


class _References:
    """The references of a round's candidates: known vectors, and parts to be encoded."""

    def __init__(self, kind: tuple[int, bool], requests: Sequence[Similarity], centres: Centres) -> None:
        self.kind = kind
        self.rough = kind[1]
        first, last = centres.reference_words(requests)
        width, fields = 1 << 21, len(requests[0].base.structure.fields)
        codes = ((centres.owner * fields + centres.field) * width + first) * width + last + 1
        distinct, self.of_row = np.unique(codes, return_inverse=True)
        self.parts = [
            Part(requests[owner // fields].reference, owner % fields, code // width % width, code % width - 1)
            for code in distinct.tolist()
            for owner in [code // width**2]
        ]
        self.known: list[Floats | None] = [
            part.draft.note((*kind, part.field, part.first, part.last)) for part in self.parts
        ]
        self.places = [at for at, vector in enumerate(self.known) if vector is None]
        self.missing = [self.parts[at] for at in self.places]
        self.failed: Failures = {}
        self.vectors = np.zeros((0, 1), np.float32)

    def take(self, vectors: Floats, rows: Ints, failed: Failures) -> None:
        """Take in the vectors of the missing parts, and note them."""
        for at, row in zip(self.places, rows.tolist(), strict=True):
            if row in failed:
                self.failed[at] = failed[row]
            self.known[at] = vector = vectors[row]
            if row not in failed:
                draft, *key = self.parts[at]
                draft.keep_note((*self.kind, *key), vector.copy())
        if self.known:
            self.vectors = np.stack([vector for vector in self.known if vector is not None])


def _cut_candidate(requests: Sequence[Similarity], counts: Ints, centres: Centres, row: int) -> str:
    """The part of a candidate that is compared, cut out of its text."""
    index = int(centres.owner[row])
    candidate = row - int(counts[:index].sum())
    return _cut_out(
        requests[index], make_draft(requests[index], candidate), int(centres.field[row]), int(centres.local[row])
    )


def _cut_out(request: Similarity, draft: Draft, field: int, local: int) -> str:
    text = draft.to_words()[field]
    return str(text) if request.window is None else window(text, local, request.window)


# ---------------------------------------------------------------------- encoders that take texts


class TextSimilarities(Similarities):
    """Similarities by encoders that take texts only."""

    def _start(self, requests: list[Similarity]) -> WaitingSimilarities:
        pairs = [_make_pairs(request) for request in requests]
        distinct = list(dict.fromkeys(text for own in pairs for pair in own for text in pair))
        place = {text: index for index, text in enumerate(distinct)}
        began = time.perf_counter()
        try:
            vectors = self.encoder.encode(distinct)
        except Exception as error:
            failure = as_victim_error(error)
            return lambda: [failure] * len(requests)
        finally:
            self.spent(time.perf_counter() - began)
        answers = [
            self._cosines(
                vectors[[place[candidate] for candidate, _ in own]], vectors[[place[reference] for _, reference in own]]
            )
            for own in pairs
        ]
        return lambda: answers


def _make_pairs(request: Similarity) -> list[tuple[str, str]]:
    """Each candidate's text and the reference it is compared with."""
    pairs, base = [], request.base
    firsts = np.searchsorted(request.edits[:, 0], np.arange(request.count + 1)).tolist()
    for candidate in range(request.count):
        position = int(request.edits[firsts[candidate], 1]) if firsts[candidate] < firsts[candidate + 1] else 0
        field = min(base.field_of(position), len(base.structure.fields) - 1)
        local = position - base.structure.starts[field]
        texts = (
            _cut_out(request, draft, field, local) for draft in (make_draft(request, candidate), request.reference)
        )
        pairs.append((next(texts), next(texts)))
    return pairs


# ---------------------------------------------------------------------- parts


def _cut_into_parts(requests: Sequence[Similarity]) -> Iterator[list[tuple[int, Similarity]]]:
    """The work in parts of at most `_MOST_ROWS` candidates; a request may be spread over several."""
    part: list[tuple[int, Similarity]] = []
    filled = 0
    for index, request in enumerate(requests):
        done = 0
        while done < request.count or request.count == 0:
            taken = min(request.count - done, _MOST_ROWS - filled)
            part.append((index, request if taken == request.count else request.take(done, done + taken)))
            filled, done = filled + taken, done + taken
            if filled == _MOST_ROWS:
                yield part
                part, filled = [], 0
            if request.count == 0:
                break
    if part:
        yield part


def _join_pieces(pieces: Sequence[SimilarityAnswer]) -> SimilarityAnswer:
    cosines: list[Floats] = []
    for piece in pieces:
        if isinstance(piece, IsthmusError):
            return piece
        cosines.append(piece)
    return cosines[0] if len(cosines) == 1 else np.concatenate(cosines)
