"""Answers `Score` requests: de-duplicated, cached, in full batches.

The steps that both kinds of victim share are here; `token_scoring` serves victims that take token ids, `text_scoring`
those that take texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import VictimError
from isthmus.core.hashing import splitmix
from isthmus.core.types import Floats, Ints, Keys, Victim
from isthmus.engine.cache import ScoreCache
from isthmus.engine.packing import Failures, distinct
from isthmus.engine.requests import Score, take_edits
from isthmus.engine.rows import TokenRows
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

Reached = Callable[[Floats, Ints], NDArray[np.bool_]]
"""Which rows of scores count as success, given the label of each row."""

ScoreAnswer = Floats | VictimError
ScoreAnswers = list[ScoreAnswer]
Later = Callable[[], Any]
"""Waits and gives `ScoreAnswers`; for whoever is patient also `Doubtful` ones."""

MOST_UNITS = 1 << 22
"""Words or units assembled at once; larger requests are served in parts, so that memory stays bounded."""

_JUDGE = 0x6A756467655F6B65
"""Keeps the judge's stream apart from the attack's."""
_SHARED = 0x7368617265645F6B
"""Keeps draws that stay the same apart from those of single queries."""


@dataclass(slots=True)
class ScoreStatistics:
    """The cost of scoring."""

    logical: int = 0  # rows asked for
    forwarded: int = 0  # rows the victim really saw
    repeated: int = 0  # rows that another row of the same round answered
    cached: int = 0  # rows that the cache answered
    batches: int = 0
    tokens: int = 0  # tokens of forwarded rows
    padded_tokens: int = 0  # the same, padding included
    model_s: float = 0.0
    confirmed: int = 0  # successes checked in full precision
    unconfirmed: int = 0  # of those, the ones that did not hold

    def add_time(self, seconds: float) -> None:
        """Count time spent in the model."""
        self.model_s += seconds

    @property
    def mean_batch(self) -> float:
        """Rows per batch."""
        return self.forwarded / self.batches if self.batches else 0.0

    @property
    def padding_waste(self) -> float:
        """Share of forwarded tokens that were padding."""
        return 1 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0


@dataclass(slots=True)
class AskedScore:
    """A `Score` request, and what the engine must know of its task."""

    request: Score
    label: int = 0  # true class of its text
    key: int = 0  # names the asker's randomness
    first_query: int = 0  # queries it made before
    seen: set[int] = field(default_factory=set)  # keys of the distinct texts it asked for
    done: int = 0  # candidates of the present request that earlier rounds have served; 0 if this one ends it

    def take(self, request: Score, first_query: int, most: int) -> int:
        """Turn to a request: to all of its candidates, or to those that the next `most` rows hold. The rows taken."""
        start, stop = self.done, min(request.count, self.done + max(1, most // request.each))
        self.first_query = first_query
        self.request = request if stop - start == request.count else take_candidates(request, start, stop)
        self.done = 0 if stop == request.count else stop
        return (stop - start) * request.each


@dataclass(slots=True)
class Claims:
    """Requests of a round with rows that must be scored again in full precision, before anybody sees an answer."""

    places: list[int]  # of the requests among those of the round
    asked: list[AskedScore]
    scores: Floats  # of all their rows [rows, classes]
    labels: Ints  # [rows]
    again: Ints  # the rows to be scored again
    claimed: NDArray[np.bool_]  # [again] which of these claim a success; the others are asked for exactly
    work: TokenRows  # the tokens of each of these
    streams: Keys | None  # [again]


@dataclass(slots=True)
class Doubtful:
    """Answers of a round, None where a second look is needed."""

    answers: list[ScoreAnswer | None]
    claims: Claims


@dataclass(slots=True)
class ScoringPlan:
    """The rows that must be scored, and which row answers which."""

    fresh: Ints  # one row of each set of equal rows
    inverse: Ints  # [rows] index into `fresh`
    missing: Ints  # indices into `fresh` that the cache does not hold
    cache: ScoreCache | None  # what remembers the answers
    keys: Keys  # by which it knows them
    scores: Floats  # [fresh, classes]

    @property
    def wanted(self) -> Ints:
        """The rows to be scored."""
        return self.fresh[self.missing]


class Scorer(ABC):
    """Shared steps of scoring: cut into parts, de-duplicate, look up, distribute."""

    ahead = 0
    """Parts that may be launched before an earlier one is waited for."""

    def __init__(self, victim: Victim, cache: ScoreCache | None, statistics: ScoreStatistics | None = None) -> None:
        self.victim, self.cache = victim, cache
        self.statistics = statistics or ScoreStatistics()

    def start(self, asked: Sequence[AskedScore], *, patient: bool = False) -> Later:
        """Start answering; call the result to wait for one answer per request.

        Whoever is `patient` may get answers that are `Doubtful`, and asks for a second look when it likes; for others
        that is done at once.
        """
        parts = list(self._parts(asked))
        if len(parts) == 1 and len(parts[0]) == len(asked):
            wait = self._start(list(asked))
            return wait if patient else partial(self._settled, wait)
        pieces: dict[int, list[ScoreAnswer]] = defaultdict(list)
        waiting: deque[tuple[list[tuple[int, AskedScore]], Later]] = deque()

        def settle(most: int) -> None:
            while len(waiting) > most:
                part, wait = waiting.popleft()
                for (index, _), answer in zip(part, self._settled(wait), strict=True):
                    pieces[index].append(answer)

        for part in parts:
            waiting.append((part, self._start([item for _, item in part])))
            settle(self.ahead)  # rows are held until their answers are there: let go of them early

        def finish() -> ScoreAnswers:
            settle(0)
            return [_join_pieces(pieces[index]) for index in range(len(asked))]

        return finish

    def look(self, claims: Sequence[Claims]) -> Callable[[], list[ScoreAnswers]]:
        """Start a second look at the claims of several rounds; the result waits for the answers of each."""
        raise NotImplementedError("only what is scored in low precision needs a second look")

    def _settled(self, wait: Later) -> ScoreAnswers:
        """The answers once they are certain."""
        found = wait()
        if not isinstance(found, Doubtful):
            return found  # type: ignore[no-any-return]
        (looked,) = self.look([found.claims])()
        for place, answer in zip(found.claims.places, looked, strict=True):
            found.answers[place] = answer
        return found.answers  # type: ignore[return-value]

    def find_known(self, request: Score) -> Floats | None:
        """The scores of candidates that need not be scored; None if that cannot be told at once."""
        del request
        return None

    @abstractmethod
    def renew(self, vocabulary: Vocabulary) -> None:
        """Forget every word."""

    @abstractmethod
    def rows_at_once(self, base: Draft) -> int:
        """Candidates of one text that a round may serve, so that limits are looked at in between."""

    @abstractmethod
    def _sizes(self, asked: Sequence[AskedScore]) -> list[int]:
        """Units that one candidate of each request takes while it is assembled."""

    @abstractmethod
    def _start(self, asked: list[AskedScore]) -> Later: ...

    def _parts(self, asked: Sequence[AskedScore]) -> Iterator[list[tuple[int, AskedScore]]]:
        """The work in parts that fit in memory; a request may be spread over several."""
        sizes = self._sizes(asked)
        if max(sizes, default=0) * sum([item.request.rows for item in asked]) <= MOST_UNITS:
            yield list(enumerate(asked))
            return
        part: list[tuple[int, AskedScore]] = []
        filled = 0
        for index, item in enumerate(asked):
            size = max(1, sizes[index]) * item.request.each
            pieces = [item]
            if size * item.request.count > MOST_UNITS:
                pieces = list(_split(item, max(1, MOST_UNITS // size)))
            for piece in pieces:
                if part and filled + size * piece.request.count > MOST_UNITS:
                    yield part
                    part, filled = [], 0
                part.append((index, piece))
                filled += size * piece.request.count
        if part:
            yield part

    def _plan(self, asked: Sequence[AskedScore], keys: Keys, streams: Keys | None) -> ScoringPlan:
        at, names = 0, keys.tolist()
        for item in asked:
            request = item.request
            stop = at + request.rows
            item.seen.update(names[at : stop : request.each])
            at = stop
        cache = None if asked and asked[0].request.fresh else self.cache
        if cache is not None and streams is not None:
            keys = _key_draws(asked, keys, streams)
        if cache is None and self.victim.stochastic:
            fresh = inverse = np.arange(len(keys))
        else:
            fresh, inverse = distinct(keys)
        if cache is None:
            scores = np.zeros((len(fresh), len(self.victim.labels)), np.float32)
            missing = np.arange(len(fresh))
        else:
            held, scores = cache.find(keys[fresh])
            missing = np.flatnonzero(~held)
        statistics = self.statistics
        statistics.logical += len(keys)
        statistics.repeated += len(keys) - len(fresh)
        statistics.cached += len(fresh) - len(missing)
        return ScoringPlan(fresh, inverse, missing, cache, keys, scores)

    def _settle(self, plan: ScoringPlan, answers: Floats, failed: Failures) -> tuple[Floats, Failures]:
        """Scores of all rows, and the rows that failed, once the wanted rows are scored."""
        plan.scores[plan.missing] = answers
        if plan.cache is not None:
            good = np.ones(len(answers), bool)
            good[list(failed)] = False
            plan.cache.put(plan.keys[plan.wanted[good]], answers[good])
        failures: Failures = {}
        if failed:
            bad = {int(plan.missing[index]): error for index, error in failed.items()}
            failures = {row: bad[at] for row, at in enumerate(plan.inverse.tolist()) if at in bad}
        return plan.scores[plan.inverse], failures

    def _streams(self, asked: Sequence[AskedScore]) -> Keys | None:
        """A key for the randomness of every row, from the asker and the number of the query, or of the draw where all
        queries are to share some.

        A judge's keys come from another stream than those of the attack it judges.
        """
        if not self.victim.stochastic:
            return None
        counts = [item.request.rows for item in asked]
        own = [shared(item.key) if item.request.draws else item.key for item in asked]
        key = np.repeat(np.array(own, np.uint64), counts)
        return splitmix(key + splitmix(np.concatenate([_number_rows(item) for item in asked])))


def owners(asked: Sequence[AskedScore]) -> Ints | None:
    """For every row the candidate that it is a draw of; None where each candidate is one row."""
    if not any(item.request.draws for item in asked):
        return None
    each = [item.request.each for item in asked]
    counts = [item.request.count for item in asked]
    return np.repeat(np.arange(sum(counts)), np.repeat(each, counts))


def _key_draws(asked: Sequence[AskedScore], keys: Keys, streams: Keys) -> Keys:
    """The keys of the rows; of rows that are draws which stay the same, those of the text and the draw."""
    drawn = np.repeat([item.request.draws > 0 for item in asked], [item.request.rows for item in asked])
    return np.where(drawn, splitmix(keys ^ streams) | np.uint64(1), keys)


def _number_rows(item: AskedScore) -> Keys:
    """Numbers that tell the rows of a request apart: of the query, or of the draw."""
    rows = np.arange(item.request.rows, dtype=np.uint64)
    return rows % np.uint64(item.request.draws) if item.request.draws else rows + np.uint64(item.first_query)


def hand_out(asked: Sequence[AskedScore], scores: Floats, failures: Failures) -> list[ScoreAnswer]:
    """Each request's own rows; if one of its rows failed, the request gets the failure."""
    ends = list(accumulate([item.request.rows for item in asked]))
    answers: list[ScoreAnswer] = [scores[at:stop] for at, stop in zip([0, *ends], ends, strict=False)]
    if failures:
        for index, (at, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            answers[index] = next((failures[row] for row in range(at, stop) if row in failures), answers[index])
    return answers


def take_candidates(request: Score, start: int, stop: int) -> Score:
    """The candidates start to stop of a request, as a request."""
    edits = take_edits(request.edits, start, stop)
    how = request.exact, request.fresh, request.draws, request.as_deployed
    return Score(request.base, edits, stop - start, *how)


def _split(item: AskedScore, most: int) -> Iterator[AskedScore]:
    """A request in parts of at most `most` candidates."""
    for start in range(0, item.request.count, most):
        part = take_candidates(item.request, start, min(start + most, item.request.count))
        yield AskedScore(part, item.label, item.key, item.first_query + start, item.seen)


def _join_pieces(pieces: list[ScoreAnswer]) -> ScoreAnswer:
    scores: list[Floats] = []
    for piece in pieces:
        if isinstance(piece, VictimError):
            return piece
        scores.append(piece)
    return scores[0] if len(scores) == 1 else np.concatenate(scores)


def derive_judge_key(key: int) -> int:
    """Names the randomness of whoever judges the asker with this key."""
    return int(splitmix(np.array([key], np.uint64) ^ np.uint64(_JUDGE))[0])


def shared(key: int) -> int:
    """Names the draws that all queries of the asker with this key may share."""
    return int(splitmix(np.array([key], np.uint64) ^ np.uint64(_SHARED))[0])


def shared_streams(key: int, draws: int) -> Keys:
    """The keys of those draws."""
    return splitmix(np.uint64(shared(key)) + splitmix(np.arange(draws, dtype=np.uint64)))
