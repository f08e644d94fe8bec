"""Runs hundreds of attacks at once and keeps the model's batches full.

Every attack is a generator that yields requests (see `isthmus.engine.requests`). A round collects what all attacks in
flight ask for, answers it in a few large batches, and resumes each attack with its part:

    admit ─► collect requests ─► assemble, de-duplicate, batch ─► victim ─► resume every attack ─► finished results
       ▲                                                                            │
       └────────────────────────────────────────────────────────────────────────────┘

The engine counts queries, enforces budgets and time limits by throwing `BudgetSpent` or `TimeSpent` into the
generator, and turns a failing victim into an error of the attacks it concerned. On a GPU two cohorts take turns, so
that the host resumes one while the device scores the other.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from isthmus.core.errors import IsthmusError, UsageError, VictimError
from isthmus.core.types import Floats, MaskedLM, SentenceEncoder, TokenVictim, Victim
from isthmus.engine.cache import ScoreCache
from isthmus.engine.changes import edited
from isthmus.engine.requests import Request, Score, Similarity
from isthmus.engine.scoring import Asked, Later, Reached, Scorer, ScoreStatistics, sliced
from isthmus.engine.services import KINDS, Services
from isthmus.engine.text_scoring import TextScorer
from isthmus.engine.token_scoring import TokenScorer
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

Value = TypeVar("Value", covariant=True)
Steps = Generator[Request, Any, Value]


Trace = Callable[[int, Mapping[str, str], Floats], None]


class Stop(Exception):
    """Thrown into an attack that must end; it should conclude with the best it has."""


class BudgetSpent(Stop):
    """Nothing is left of the query budget. A request that fits in part is answered in part: what was not asked about
    comes back as the true class with certainty, which no search takes for progress."""


class TimeSpent(Stop):
    """The example's share of the time is used up."""


class Program(Protocol[Value]):
    """One attack on one example, ready to run."""

    @property
    def key(self) -> int:
        """Names its stream of randomness (64 bits)."""

    @property
    def budget(self) -> int | None:
        """Most queries it may ask for."""

    @property
    def label(self) -> int:
        """True class of its text."""

    def start(self, vocabulary: Vocabulary) -> Steps[Value]:
        """The generator to be run."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine works; none of this changes a result on a CPU, except the limits."""

    in_flight: int | None = None
    """Attacks run at once; by default 256 on a CPU and 8,192 on a GPU."""
    cache_megabytes: float = 64.0
    """Memory for scores already seen; 0 turns the cache off."""
    cache_stochastic: bool = False
    """Answer a stochastic victim's repeated texts from the cache (never done unless asked for)."""
    time_limit: float | None = None
    """Seconds an example may use: its own steps plus its share of the batches."""
    confirm: bool = True
    """Check successes found in bfloat16 again in float32 before they count."""
    vocabulary_limit: int = 2_000_000
    """Distinct words held before the engine drains and starts afresh."""
    trace: Trace | None = field(default=None, repr=False, compare=False)
    """Told of every query that was answered, in the order in which each attack asked: key, texts, scores [classes]."""

    def __post_init__(self) -> None:
        if self.in_flight is not None and self.in_flight < 1:
            raise UsageError(f"in_flight must be at least 1, not {self.in_flight}")
        if self.time_limit is not None and self.time_limit <= 0:
            raise UsageError(f"the time limit must be positive, not {self.time_limit}")


@dataclass(frozen=True, slots=True)
class Finished(Generic[Value]):
    """A program that ended: its value, or why it has none."""

    program: Program[Value]
    value: Value | None
    error: str | None
    logical: int  # queries asked for
    physical: int  # distinct texts among them


@dataclass(slots=True)
class EngineStatistics:
    """What a run cost. `host_s` is everything but waiting for models."""

    scores: ScoreStatistics
    examples: int = 0
    rounds: int = 0
    total_s: float = 0.0
    service_s: float = 0.0  # in models other than the victim, and in its gradient

    def spent_on_services(self, seconds: float) -> None:
        """Count time spent in models other than the victim."""
        self.service_s += seconds

    @property
    def host_s(self) -> float:
        """Seconds spent outside models."""
        return max(0.0, self.total_s - self.scores.model_s - self.service_s)


@dataclass(slots=True, eq=False)
class _Task(Generic[Value]):
    program: Program[Value]
    steps: Steps[Value]
    asked: Asked
    request: Request | None = None
    served: list[Floats] = field(default_factory=list)  # answers to the first candidates of a request served in parts
    logical: int = 0
    seconds: float = 0.0
    unasked: int = 0  # candidates of the present request for which the budget does not reach

    def within(self, request: Request, budget: int) -> Request:
        """The request, or as many of its first candidates as the budget still reaches for."""
        left = budget - self.logical
        if not isinstance(request, Score) or request.count <= left:
            return request
        request.asked, self.unasked = left, request.count - left
        return sliced(request, 0, left)


def _no_progress(answer: Floats, label: int, count: int) -> Floats:
    """Scores of candidates that nobody asked about: certain of the true class, so that no search takes one."""
    scores = np.zeros((count, answer.shape[1]), answer.dtype)
    scores[:, label] = 1
    return scores


_NOTHING_YET = Score(Draft.of({}, Vocabulary()), count=0)


class Engine:
    """Runs programs against one victim.

    `reached` says which rows of scores count as success: where the victim scores in bfloat16, those are confirmed in
    float32 before anybody sees them.
    """

    def __init__(
        self,
        victim: Victim,
        settings: EngineSettings | None = None,
        *,
        reached: Reached | None = None,
        encoder: SentenceEncoder | None = None,
        masked_lm: MaskedLM | None = None,
    ) -> None:
        self.victim, self.settings, self.reached = victim, settings or EngineSettings(), reached
        self.vocabulary = Vocabulary(_unknown_token(victim))
        self.scorer = self._scorer()
        self.statistics = EngineStatistics(self.scorer.statistics)
        self.services = Services(victim, encoder, masked_lm, self.vocabulary, self.statistics.spent_on_services)
        on_gpu = isinstance(victim, TokenVictim) and victim.device_type != "cpu"
        self.cohorts = 2 if on_gpu else 1
        self.in_flight = self.settings.in_flight or (8192 if on_gpu else 256)

    def _scorer(self) -> Scorer:
        settings, victim = self.settings, self.victim
        cache = None
        if settings.cache_megabytes > 0 and (settings.cache_stochastic or not victim.stochastic):
            cache = ScoreCache(len(victim.labels), settings.cache_megabytes)
        if isinstance(victim, TokenVictim):
            reached = self.reached if settings.confirm else None
            return TokenScorer(victim, self.vocabulary, cache, reached=reached)
        return TextScorer(victim, cache)

    def run(self, programs: Iterable[Program[Value]]) -> Iterator[Finished[Value]]:
        """Run programs to their ends, yielding each as it finishes."""
        source = iter(programs)
        with _frozen_garbage(), _timed(self.statistics):
            while True:
                began = yield from self._run_until_full(source)
                if not began:
                    return
                # The vocabulary was full: nothing is in flight now, so every id may be forgotten.
                self.vocabulary = Vocabulary(self.vocabulary.unknown)
                self.scorer.renew(self.vocabulary)
                self.services.renew(self.vocabulary)

    def _run_until_full(self, source: Iterator[Program[Value]]) -> Generator[Finished[Value], None, bool]:
        """Run until the source is empty (False) or the vocabulary is full and everything in flight has ended (True)."""
        waiting: deque[tuple[list[_Task[Value]], Later]] = deque()
        share = max(1, self.in_flight // self.cohorts)
        empty = False
        for _ in range(self.cohorts):
            cohort, empty = yield from self._admit(source, [], share)
            if cohort:
                waiting.append((cohort, self._launch(cohort)))
        while waiting:
            cohort, wait = waiting.popleft()
            began = time.perf_counter()
            answers = wait()
            self._charge(cohort, time.perf_counter() - began)
            if callable(answers):  # A second look was started: let another cohort go on meanwhile.
                waiting.append((cohort, answers))
                continue
            cohort = yield from self._resume(cohort, answers)
            if not empty and len(self.vocabulary) < self.settings.vocabulary_limit:
                cohort, empty = yield from self._admit(source, cohort, share)
            if cohort:
                waiting.append((cohort, self._launch(cohort)))
        return not empty

    def _admit(
        self, source: Iterator[Program[Value]], cohort: list[_Task[Value]], share: int
    ) -> Generator[Finished[Value], None, tuple[list[_Task[Value]], bool]]:
        """Start programs until the cohort is full; True if the source is empty."""
        while len(cohort) < share:
            program = next(source, None)
            if program is None:
                return cohort, True
            key = program.key if self.victim.stochastic else 0
            task = _Task(program, program.start(self.vocabulary), Asked(_NOTHING_YET, program.label, key))
            finished = self._advance(task, task.steps.send, None)
            if finished is None:
                cohort.append(task)
            else:
                yield finished
        return cohort, False

    def _resume(
        self, cohort: list[_Task[Value]], answers: Sequence[Any]
    ) -> Generator[Finished[Value], None, list[_Task[Value]]]:
        """Give every task its answer; the ones that go on."""
        limit, trace = self.settings.time_limit, self.settings.trace
        going = []
        for task, answer in zip(cohort, answers, strict=True):
            late = limit is not None and task.seconds > limit
            failed = isinstance(answer, IsthmusError)
            if trace is not None and not failed and isinstance(task.request, Score):
                _tell(trace, task.program.key, task.asked.request, answer)
            if task.asked.done and not (late or failed):
                task.served.append(answer)
                going.append(task)
                continue
            if task.served:
                answer = answer if failed else np.concatenate([*task.served, answer])
                task.served = []
            task.asked.done = 0
            if task.unasked and not failed:
                answer = np.concatenate([answer, _no_progress(answer, task.program.label, task.unasked)])
            task.unasked = 0
            if late:
                finished = self._advance(task, task.steps.throw, TimeSpent())
            elif failed:
                finished = self._advance(task, task.steps.throw, answer)
            else:
                finished = self._advance(task, task.steps.send, answer)
            if finished is None:
                going.append(task)
            else:
                yield finished
        self.statistics.rounds += 1
        return going

    def _charge(self, cohort: list[_Task[Value]], seconds: float) -> None:
        if self.settings.time_limit is None:
            return
        sizes = [task.request.count if isinstance(task.request, Score | Similarity) else 1 for task in cohort]
        total = sum(sizes)
        for task, size in zip(cohort, sizes, strict=True):
            task.seconds += seconds * size / total

    def _advance(self, task: _Task[Value], step: Callable[[Any], Request], answer: Any) -> Finished[Value] | None:
        """Take a task to its next request; its result if it ended instead."""
        timed = self.settings.time_limit is not None
        began = time.perf_counter() if timed else 0.0
        try:
            request = step(answer)
            budget = task.program.budget
            if budget is not None:
                while isinstance(request, Score) and task.logical >= budget and request.count:
                    request = task.steps.throw(BudgetSpent())
                request = task.within(request, budget)
            task.request = request
        except StopIteration as ended:
            return self._finished(task, ended.value, None)
        except Exception as error:
            return self._finished(task, None, f"{type(error).__name__}: {error}")
        finally:
            if timed:
                task.seconds += time.perf_counter() - began
        return None

    def _finished(self, task: _Task[Value], value: Value | None, error: str | None) -> Finished[Value]:
        self.statistics.examples += 1
        return Finished(task.program, value, error, task.logical, len(task.asked.seen))

    # ------------------------------------------------------------------ answering

    def _launch(self, cohort: list[_Task[Value]]) -> Later:
        """Start answering what the cohort asks for; the result waits for one answer per task."""
        scoring = [index for index, task in enumerate(cohort) if isinstance(task.request, Score)]
        asked = []
        for index in scoring:
            task = cohort[index]
            request = task.request
            assert isinstance(request, Score)
            task.logical += task.asked.take(request, task.logical, self.scorer.rows_at_once(request.base))
            asked.append(task.asked)
        began = time.perf_counter()
        started: list[tuple[list[int], Later]] = [(scoring, self.scorer.start(asked))] if asked else []
        if len(scoring) < len(cohort):
            for kind in KINDS:
                chosen = [index for index, task in enumerate(cohort) if type(task.request) is kind]
                if chosen:
                    requests = [cohort[index].request for index in chosen]
                    started.append((chosen, self.services.start(kind, requests)))
        self._charge(cohort, time.perf_counter() - began)
        if len(started) == 1:
            return started[0][1]
        return partial(_gathered, started, [None] * len(cohort))


def _tell(trace: Trace, key: int, request: Score, scores: Floats) -> None:
    for candidate in range(request.count):
        trace(key, edited(request, candidate).texts, scores[candidate])


def _gathered(started: list[tuple[list[int], Later]], answers: list[Any]) -> list[Any] | Later:
    """Wait for answers of several kinds; where a second look was started, that is to be waited for next."""
    again: list[tuple[list[int], Later]] = []
    for chosen, wait in started:
        served = wait()
        if callable(served):
            again.append((chosen, served))
            continue
        for index, answer in zip(chosen, served, strict=True):
            answers[index] = answer
    return partial(_gathered, again, answers) if again else answers


def _unknown_token(victim: Victim) -> str:
    token = getattr(getattr(victim, "tokenizer", None), "unk_token", None)
    return token if isinstance(token, str) else "[UNK]"


@contextmanager
def _timed(statistics: EngineStatistics) -> Iterator[None]:
    began = time.perf_counter()
    try:
        yield
    finally:
        statistics.total_s += time.perf_counter() - began


@contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Let the collector leave alone what exists now: walking it again and again would cost more than the attacks."""
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


__all__ = [
    "BudgetSpent", "Engine", "EngineSettings", "EngineStatistics", "Finished", "Program", "Steps", "Stop", "TimeSpent",
    "VictimError",
]  # fmt: skip
