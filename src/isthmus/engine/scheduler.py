"""Runs hundreds of attacks at once and keeps the model's batches full.

Every attack is a generator that yields requests (see `isthmus.engine.requests`). A round collects what all attacks in
flight ask for, answers it in a few large batches, and resumes each attack with its part:

    admit ─► collect requests ─► assemble, de-duplicate, batch ─► victim ─► resume every attack ─► finished results
       ▲                                                                            │
       └────────────────────────────────────────────────────────────────────────────┘

The engine counts queries, enforces budgets and time limits by throwing `BudgetSpent` or `TimeSpent` into the
generator, and turns a failing victim into an error of the attacks it concerned. On a GPU two lanes of attacks take
turns, so that the host resumes one while the device scores the other. What must be scored again in full precision
waits for that of other rounds, while the rest of its lane goes on.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from isthmus.core.errors import IsthmusError, VictimError, VictimTimeout
from isthmus.core.hashing import splitmix
from isthmus.core.types import Floats, Keys, MaskedLM, SentenceEncoder, TokenVictim, Victim, Voting
from isthmus.engine.cache import ScoreCache
from isthmus.engine.changes import make_draft
from isthmus.engine.garbage import freeze_garbage
from isthmus.engine.lanes import Lane
from isthmus.engine.requests import Gradient, Request, Score, Similarity
from isthmus.engine.scoring import (
    AskedScore,
    Claims,
    Doubtful,
    Later,
    Reached,
    Scorer,
    ScoreStatistics,
    derive_judge_key,
    shared_streams,
)
from isthmus.engine.services import KINDS, Services
from isthmus.engine.settings import EngineSettings, EngineStatistics, QueryHook
from isthmus.engine.tasks import BudgetSpent, EngineTask, Program, Steps, Stop, TimeSpent, Value, no_progress
from isthmus.engine.text_scoring import TextScorer
from isthmus.engine.token_scoring import TokenScorer
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_NOTHING_YET = Score(Draft.of({}, Vocabulary()), count=0)


class Engine:
    """Runs programs against one victim.

    `reached` says which rows of scores count as success: where the victim scores in bfloat16, those are confirmed in
    float32 before anybody sees them. A `vocabulary` of an earlier engine spares it the words that it knows.
    """

    def __init__(
        self,
        victim: Victim,
        settings: EngineSettings | None = None,
        *,
        reached: Reached | None = None,
        encoder: SentenceEncoder | None = None,
        masked_lm: MaskedLM | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self.victim, self.settings, self.reached = victim, settings or EngineSettings(), reached
        unknown = getattr(getattr(victim, "tokenizer", None), "unk_token", None)
        unknown = unknown if isinstance(unknown, str) else "[UNK]"
        fits = vocabulary is not None and vocabulary.unknown == unknown
        if vocabulary is None or not fits or 2 * len(vocabulary) > self.settings.vocabulary_limit:
            vocabulary = Vocabulary(unknown)
        self.vocabulary = vocabulary
        self.scorer = self._scorer(victim)
        graded = victim.graded if isinstance(victim, Voting) else None
        self.graded = None if graded is None else self._scorer(graded, self.scorer.statistics)
        self.statistics = EngineStatistics(self.scorer.statistics)
        self.services = Services(victim, encoder, masked_lm, self.vocabulary, self.statistics.add_service_time)
        on_gpu = isinstance(victim, TokenVictim) and victim.device_type != "cpu"
        self.lanes = 2 if on_gpu else 1
        self._counted = 0.0
        """When the time of the run was last counted."""
        self.after_round: Callable[[], None] | None = None
        """Called after every round, by whoever shows how a run comes along."""
        self.in_flight = self.settings.in_flight or (8192 if on_gpu else 256)
        # Of a long text a victim of tokens reads the beginning: the rest weighs nothing.
        self.reads = victim.max_tokens if isinstance(victim, TokenVictim) else sys.maxsize
        self.tokens_at_once = 1 << (24 if on_gpu else 17)  # in a round
        # Rows of a request that a round serves whatever the text, so that small ones need not be looked into.
        self.always = 0
        if isinstance(victim, TokenVictim):
            most = self.scorer.rows_at_once(_NOTHING_YET.base)
            self.always = min(most, max(16, self.tokens_at_once // (self.reads + 2)))

    def _scorer(self, victim: Victim, statistics: ScoreStatistics | None = None) -> Scorer:
        settings, cache = self.settings, None
        if settings.cache_megabytes > 0 and (settings.cache_stochastic or not victim.stochastic):
            cache = ScoreCache(len(victim.labels), settings.cache_megabytes)
        if isinstance(victim, TokenVictim):
            reached = self.reached if settings.confirm else None
            return TokenScorer(victim, self.vocabulary, cache, reached=reached, statistics=statistics)
        return TextScorer(victim, cache, statistics)

    def run(self, programs: Iterable[Program[Value]]) -> Iterator[EngineTask[Value]]:
        """Run programs to their ends, yielding the task of each as it ends."""
        return (task for task in self.run_in_turns(programs) if task is not None)

    def run_in_turns(self, programs: Iterable[Program[Value]]) -> Iterator[EngineTask[Value] | None]:
        """The same, yielding None whenever there is nothing to do but to wait: others may have their turn."""
        source = iter(programs)
        with freeze_garbage(), self._measure_time():
            while True:
                began = yield from self._run_until_full(source)
                if not began:
                    return
                # The vocabulary was full: nothing is in flight now, so every id may be forgotten.
                self.vocabulary = Vocabulary(self.vocabulary.unknown)
                for scorer in (self.scorer, self.graded):
                    if scorer is not None:
                        scorer.renew(self.vocabulary)
                self.services.renew(self.vocabulary)

    def _run_until_full(self, source: Iterator[Program[Value]]) -> Generator[EngineTask[Value] | None, None, bool]:
        """Run until the source is empty (False) or the vocabulary is full and everything in flight has ended (True)."""
        lanes: deque[Lane[Value]] = deque()
        share = max(1, self.in_flight // self.lanes)
        empty = False
        for _ in range(self.lanes):
            lane: Lane[Value] = Lane()
            empty = yield from self._admit(source, lane.tasks, share)
            if self._start_round(lane):
                lanes.append(lane)
        while lanes:
            self._count_time()
            yield None
            self._counted = time.perf_counter()  # What has passed since was the turn of others.
            lane = lanes.popleft()
            yield from self._end_round(lane)
            if self.after_round is not None:
                self.after_round()
            if not empty and len(self.vocabulary) < self.settings.vocabulary_limit:
                empty = yield from self._admit(source, lane.tasks, share - lane.waiting)
            if self._start_round(lane):
                lanes.append(lane)
        return not empty

    @contextmanager
    def _measure_time(self) -> Iterator[None]:
        self._counted = time.perf_counter()
        try:
            yield
        finally:
            self._count_time()

    def _count_time(self) -> None:
        """Add the time since it was last counted."""
        before, self._counted = self._counted, time.perf_counter()
        self.statistics.total_s += self._counted - before

    def _start_round(self, lane: Lane[Value]) -> bool:
        """Start a round, with a second look at what waits for one if that is due; False if the lane is at its end."""
        if lane.is_due:
            lane.look = self.scorer.look([claims for _, claims in lane.held])
            lane.looked, lane.held, lane.age = [tasks for tasks, _ in lane.held], [], 0
        lane.age += bool(lane.held)
        if lane.tasks:
            lane.served, lane.tasks, lane.wait = self._start_requests(lane.tasks)
        return lane.wait is not None or lane.look is not None

    def _end_round(self, lane: Lane[Value]) -> Generator[EngineTask[Value], None, None]:
        """Wait for a round, and pass on its answers but for those that are in doubt."""
        tasks, answers = list[EngineTask[Value]](), list[Any]()
        if lane.wait is not None:
            began = time.perf_counter()
            tasks, found = lane.served, lane.wait()
            self._charge(tasks, time.perf_counter() - began)
            if isinstance(found, Doubtful):
                lane.held.append(([tasks[place] for place in found.claims.places], found.claims))
                tasks = [task for task, answer in zip(tasks, found.answers, strict=True) if answer is not None]
                found = [answer for answer in found.answers if answer is not None]
            answers = found
        if lane.look is not None:
            began, looked = time.perf_counter(), [task for own in lane.looked for task in own]
            answers = [*answers, *(answer for own in lane.look() for answer in own)]
            self._charge(looked, time.perf_counter() - began)
            tasks = tasks + looked
        lane.wait, lane.look, lane.served, lane.looked = None, None, [], []
        going = yield from self._resume(tasks, answers)
        lane.tasks = going + lane.tasks

    def _start_requests(
        self, cohort: list[EngineTask[Value]]
    ) -> tuple[list[EngineTask[Value]], list[EngineTask[Value]], Later]:
        """Start answering: the tasks that the round serves, those that are left for later, and what to wait for.

        The oldest come first, so that attacks that ask for much end one after the other instead of all at the end. One
        request may go beyond the limit; it does not keep smaller ones behind it from being served in the same round.
        """
        if (light := self._light(cohort)) is not None:
            return cohort, [], light
        left, beyond = self.tokens_at_once, False
        served, later = list[EngineTask[Value]](), list[EngineTask[Value]]()
        reads = self.reads
        for task in cohort:
            cost = task.cost(reads)
            if cost <= left:
                left -= cost
                served.append(task)
            elif not beyond:
                beyond = True
                served.append(task)
            else:
                later.append(task)
        return served, later, self._launch(served)

    def _light(self, cohort: list[EngineTask[Value]]) -> Later | None:
        """Launch the usual round: every task asks for the scores of a few candidates. None for other rounds."""
        always, rows = self.always, 0
        for task in cohort:
            request = task.request
            if type(request) is not Score or request.fresh or request.rows > always or task.asked.done:
                return None
            rows += request.rows
        if rows * (self.reads + 2) > self.tokens_at_once or self.graded is not None or not rows:
            return None
        asked = []
        for task in cohort:
            own, request = task.asked, task.request
            assert request is not None
            own.request, own.first_query = request, task.logical  # type: ignore[assignment]
            task.logical += request.rows  # type: ignore[union-attr]
            asked.append(own)
        began = time.perf_counter()
        wait = self.scorer.start(asked, patient=True)
        self._charge(cohort, time.perf_counter() - began)
        return wait

    def _admit(
        self, source: Iterator[Program[Value]], cohort: list[EngineTask[Value]], share: int
    ) -> Generator[EngineTask[Value], None, bool]:
        """Start programs until the cohort has its share; True if the source is empty."""
        while len(cohort) < share:
            program = next(source, None)
            if program is None:
                return True
            key = program.key if self.victim.stochastic else 0
            task = EngineTask(
                program, program.start(self.vocabulary), AskedScore(_NOTHING_YET, program.label, key), program.budget
            )
            if self._advance(task, task.steps.send, None):
                yield task
            else:
                cohort.append(task)
        return False

    def _resume(
        self, cohort: list[EngineTask[Value]], answers: Sequence[Any]
    ) -> Generator[EngineTask[Value], None, list[EngineTask[Value]]]:
        """Pass every task its answer; return the tasks that continue."""
        limit, trace = self.settings.time_limit, self.settings.trace
        unwatched, step = limit is None and trace is None, self._step
        going = []
        for task, answer in zip(cohort, answers, strict=True):
            if unwatched and type(answer) is np.ndarray and not (task.asked.done or task.served or task.unasked):
                # The usual case: nothing but an answer to all that was asked for.
                send = task.steps.send
                ended = step(task, send, answer)
                while not ended and (told := self._answer_known(task)) is not None:
                    ended = step(task, send, told)
                if ended:
                    yield task
                else:
                    going.append(task)
                continue
            # Told once: what an attack asks for to conclude is still answered.
            late = limit is not None and task.seconds > limit and not task.late and not _is_fresh(task)
            failed = isinstance(answer, IsthmusError)
            if trace is not None and not failed and isinstance(task.request, Score) and not task.request.fresh:
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
                answer = np.concatenate([answer, no_progress(answer, task.program.label, task.unasked)])
            task.unasked = 0
            if late:
                task.late = True
                ended = self._advance(task, task.steps.throw, TimeSpent(f"more than {limit:g} s"))
            else:
                ended = self._advance(task, task.steps.throw if failed else task.steps.send, answer)
            if ended:
                yield task
            else:
                going.append(task)
        self.statistics.rounds += 1
        return going

    def _answer_known(self, task: EngineTask[Value]) -> Floats | None:
        """The answer to a task's request if no round is needed to know it; it counts as a query."""
        request = task.request
        if type(request) is not Score or request.base.notes is None or task.unasked:
            return None
        if (answer := self.scorer.find_known(request)) is None:
            return None
        task.logical += request.rows
        return answer

    def _charge(self, cohort: list[EngineTask[Value]], seconds: float) -> None:
        if self.settings.time_limit is None:
            return
        # The time of whoever judges is not the attack's.
        sizes = [0 if _is_fresh(task) else _weigh_request(task.request) for task in cohort]
        total = max(1, sum(sizes))
        for task, size in zip(cohort, sizes, strict=True):
            task.seconds += seconds * size / total

    def _advance(self, task: EngineTask[Value], step: Callable[[Any], Request], answer: Any) -> bool:
        """Advance a task to its next request, and count its time if it is limited; True if it ended instead."""
        if self.settings.time_limit is None:
            return self._step(task, step, answer)
        began = time.perf_counter()
        try:
            return self._step(task, step, answer)
        finally:
            task.seconds += time.perf_counter() - began

    def _step(self, task: EngineTask[Value], step: Callable[[Any], Request], answer: Any) -> bool:
        try:
            request = step(answer)
            budget = task.budget
            if budget is not None and not (type(request) is Score and task.logical + request.rows <= budget):
                while task.beyond(request, budget):
                    request = task.steps.throw(BudgetSpent())
                request = task.within(request, budget)
            task.request = request
            return False
        except StopIteration as ended:
            task.value = ended.value
        except (TimeSpent, VictimTimeout) as late:  # It did not catch it: not even the clean text was answered in time.
            task.error, task.timed_out = str(late), True
        except Exception as error:
            task.error = f"{type(error).__name__}: {error}"
        self.statistics.examples += 1
        return True

    # ------------------------------------------------------------------ answering

    def _launch(self, cohort: list[EngineTask[Value]]) -> Later:
        """Launch the cohort's requests; the result waits for one answer per task."""
        scores, scoring = list[int](), list[int]()
        rows_at_once, tokens, always = self.scorer.rows_at_once, self.tokens_at_once, self.always
        for index, task in enumerate(cohort):
            request = task.request
            if not isinstance(request, Score):
                continue
            scores.append(index)
            if request.fresh:
                continue
            scoring.append(index)
            asked = task.asked
            if request.rows <= always and not asked.done:
                asked.request, asked.first_query = request, task.logical
                task.logical += request.rows
                continue
            words = min(len(request.base.ids), self.reads)
            most = min(rows_at_once(request.base), max(16, tokens // (words + 2)))
            task.logical += asked.take(request, task.logical, most)
        began = time.perf_counter()
        climbing = [index for index in scoring if self.graded is not None and _climbs(cohort[index])]
        deployed = [index for index in scoring if not _climbs(cohort[index])] if climbing else scoring
        started: list[tuple[list[int], Later]] = []
        for chosen, scorer in ((deployed, self.scorer), (climbing, self.graded)):
            if chosen and scorer is not None:
                whole = len(chosen) == len(cohort)
                asking = cohort if whole else [cohort[index] for index in chosen]
                patient = scorer is self.scorer
                started.append((chosen, scorer.start([task.asked for task in asking], patient=patient)))
        if len(scoring) < len(scores):
            looked_at = [index for index in scores if _is_fresh(cohort[index])]
            started.append((looked_at, self.scorer.start([self._look(cohort[index]) for index in looked_at])))
        if len(scores) < len(cohort):
            for kind in KINDS:
                chosen = [index for index, task in enumerate(cohort) if type(task.request) is kind]
                if chosen:
                    tasks = [cohort[index] for index in chosen]
                    keys = self._keys(tasks) if kind is Gradient and self.victim.stochastic else None
                    started.append(
                        (chosen, self.services.start(kind, [self._next_request(task) for task in tasks], keys))
                    )
        self._charge(cohort, time.perf_counter() - began)
        if len(started) == 1:
            return started[0][1]
        return partial(_gather_answers, started, len(cohort))

    def _look(self, task: EngineTask[Value]) -> AskedScore:
        """The request of a task for confirmation, with its own randomness."""
        request = task.request
        assert isinstance(request, Score)
        first, task.looks = task.looks, task.looks + request.count
        return AskedScore(request, task.program.label, derive_judge_key(task.asked.key), first)

    def _keys(self, tasks: Sequence[EngineTask[Value]]) -> list[Keys]:
        """For each gradient a key for randomness that no query uses, or those of the draws that all queries share."""
        numbers = np.array([task.logical for task in tasks], np.uint64) | np.uint64(1 << 63)
        unused = splitmix(np.array([task.asked.key for task in tasks], np.uint64) + splitmix(numbers))
        return [
            shared_streams(task.asked.key, task.request.draws)
            if isinstance(task.request, Gradient) and task.request.shared
            else unused[index : index + 1]
            for index, task in enumerate(tasks)
        ]

    def _next_request(self, task: EngineTask[Value]) -> Request:
        """The request of a task in this round."""
        assert task.request is not None
        return task.turn(self._rows_of) if type(task.request) is Similarity else task.request

    def _rows_of(self, words: int) -> int:
        """Maximum candidates of one task per round, for texts of this number of words, so that limits are checked."""
        return max(16, self.tokens_at_once // (words + 2))


def _weigh_request(request: Request | None) -> int:
    """The weight of a request when several share the time of a round."""
    if isinstance(request, Score):
        return request.rows
    if isinstance(request, Gradient):
        return request.draws
    return request.count if isinstance(request, Similarity) else 1


def _is_fresh(task: EngineTask[Value]) -> bool:
    """Whether a task asks for fresh draws, which only judge a text."""
    return isinstance(task.request, Score) and task.request.fresh


def _climbs(task: EngineTask[Value]) -> bool:
    """Whether a task is a search that needs to know which candidates make progress."""
    request = task.request
    return isinstance(request, Score) and request.draws > 0 and not request.as_deployed


def _tell(trace: QueryHook, key: int, request: Score, scores: Floats) -> None:
    for candidate in range(request.count):
        texts = make_draft(request, candidate).texts
        for row in range(candidate * request.each, (candidate + 1) * request.each):
            trace(key, texts, scores[row])


def _gather_answers(started: list[tuple[list[int], Later]], count: int) -> list[Any] | Doubtful:
    """Wait for answers of several kinds; those of one kind may be in doubt."""
    answers: list[Any] = [None] * count
    claims: Claims | None = None
    for chosen, wait in started:
        served = wait()
        if isinstance(served, Doubtful):
            claims, served = served.claims, served.answers
            claims.places = [chosen[place] for place in claims.places]
        for index, answer in zip(chosen, served, strict=True):
            answers[index] = answer
    return answers if claims is None else Doubtful(answers, claims)


__all__ = [
    "BudgetSpent",
    "Engine",
    "EngineSettings",
    "EngineStatistics",
    "EngineTask",
    "Program",
    "QueryHook",
    "Steps",
    "Stop",
    "TimeSpent",
    "VictimError",
]  # fmt: skip
