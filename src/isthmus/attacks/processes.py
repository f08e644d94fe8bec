"""One attack in several processes: each has its own models, and gets cohorts of examples from this process.

    this process        hands out cohorts, takes results, starts another process in the place of one that was killed
    the others          open the victim, attack cohorts, send the results of every round

Results are those of one process. What an example gets depends on its own id, and on a GPU, where kernels depend on
shapes, on what it is packed with: so cohorts are fixed, whatever the number of processes, and a cohort that was cut
short is attacked again as a whole. A process learns by its closed pipe that this one is gone, and ends.

Processes are started from scratch, because a process that has used a GPU must not be forked. They import nothing of
the main module, so that a script needs no guard. Examples, settings and results travel as pickles between processes of
one user; nothing else is read.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol, Self

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import IsthmusError, RunError, UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Example, Floats, Victim

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackSettings, WordAttack
    from isthmus.engine.settings import EngineStatistics
    from isthmus.text.vocabulary import Vocabulary

COHORTS, SMALLEST, LARGEST = 4, 256, 2048
"""On a GPU: cohorts that an attack is cut into, and the bounds of their sizes. A round costs the host as much for few
examples as for many, so that large cohorts halve its work; fewer than four would leave processes without any."""
AT_ONCE = 2
"""On a GPU: cohorts that a process attacks in turns, so that it prepares a round of one while the card scores that of
the other. Each is packed by itself."""
_LOST = 2
"""How often a cohort may lose its process before the attack ends."""
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from isthmus.attacks.processes import serve; serve()"
)

Query = tuple[int, Mapping[str, str], Floats]
"""What a trace is told: the key of the example, the text, the scores."""


class AttackSource(Protocol):
    """Opens the models of an attack in another process; it travels there as a pickle."""

    def victim(self) -> Victim:
        """The victim, loaded."""

    def models(self, names: Any) -> Mapping[str, Any]:
        """The auxiliary models, as keyword arguments of an attack."""


@dataclass(frozen=True)
class Job:
    """An attack, as sent to another process."""

    attack: WordAttack
    settings: AttackSettings
    names: Any = None
    """Of the auxiliary models, as `Source.models` knows them."""
    traced: bool = False
    """Whether every query is wanted."""


@dataclass
class AttackWatch:
    """Receives events of an attack in several processes, and its cost."""

    queries: Callable[[int], None] = lambda count: None
    """The number of queries so far."""
    trace: Callable[[int, Mapping[str, str], Floats], None] | None = None
    """Every query of an example, before its result comes."""
    statistics: list[EngineStatistics] = field(default_factory=list)
    """Of every cohort."""
    cpu_s: float = 0.0
    """Processor seconds of the other processes."""


def cohorts_of(examples: Sequence[Example], processes: int, *, on_gpu: bool) -> list[list[Example]]:
    """Split examples into cohorts.

    On a GPU always the same ones together, whatever the number of processes; on a CPU, where a result does not depend
    on that, as few as keep all processes busy to the end.
    """
    if on_gpu:
        size = max(SMALLEST, min(LARGEST, -(-len(examples) // COHORTS)))
    else:
        size = max(1, min(32, -(-len(examples) // (4 * processes))))
    return [list(examples[start : start + size]) for start in range(0, len(examples), size)]


class Workers:
    """Processes that hold the models of a `source`; kept from one attack to the next.

    `processes` may be changed between two attacks; those beyond it then rest.
    """

    def __init__(self, source: AttackSource, processes: int) -> None:
        if processes < 1:
            raise UsageError(f"processes is the number of processes that attack, and at least 1, not {processes}")
        self.source, self.processes = source, processes
        self._workers: list[_WorkerProcess] = []
        self._inbox: queue.SimpleQueue[tuple[_WorkerProcess, Any]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def attack(
        self,
        job: Job,
        cohorts: Sequence[Sequence[Example]],
        wanted: set[str],
        watch: AttackWatch | None = None,
        *,
        at_once: int = 1,
    ) -> Iterator[AttackResult]:
        """Attack every cohort; yield the results of the examples whose ids are `wanted`, each once, as they come.

        A process attacks up to `at_once` cohorts in turns, if there are more of them than processes.
        """
        watch = AttackWatch() if watch is None else watch
        chosen = [cohort for cohort in cohorts if any(each.id in wanted for each in cohort)]
        waiting = deque(_Cohort(number, list(cohort)) for number, cohort in enumerate(chosen))
        left = len(waiting)
        asked: dict[int, int] = {}
        done: set[str] = set()
        try:
            while left:
                self._employ(job, waiting, left, at_once)
                worker, message = self._inbox.get()
                if worker not in self._workers:
                    continue
                if isinstance(message, _Round):
                    asked[message.cohort] = message.asked
                    watch.queries(sum(asked.values()))
                    for place, result in enumerate(message.results):
                        if result.id in wanted and result.id not in done:
                            done.add(result.id)
                            for query in message.queries[place] if watch.trace is not None and message.queries else ():
                                watch.trace(*query)  # type: ignore[misc]
                            yield result
                elif isinstance(message, _Done):
                    left -= 1
                    del worker.cohorts[message.cohort]
                    watch.statistics.append(message.statistics)
                    watch.cpu_s += message.cpu_s
                elif isinstance(message, _Failed):
                    raise message.error(worker.number, self.processes)
                else:
                    self._replace(worker, waiting)
        except BaseException:
            self.close()  # Whatever was under way is of no use to the next attack.
            raise

    def _employ(self, job: Job, waiting: deque[_Cohort], left: int, at_once: int) -> None:
        """Give work to processes, first to idle ones; start one if there is work for it."""
        while len(self._workers) < min(self.processes, left):
            taken = {worker.number for worker in self._workers}
            number = next(number for number in range(1, self.processes + 1) if number not in taken)
            self._workers.append(_WorkerProcess(number, self.source, self._inbox))
        for most in range(1, at_once + 1):
            for worker in self._workers[: self.processes]:
                if waiting and len(worker.cohorts) < most:
                    worker.take(job, waiting.popleft())

    def _replace(self, worker: _WorkerProcess, waiting: deque[_Cohort]) -> None:
        """Replace a killed process; others get its cohorts."""
        self._workers.remove(worker)
        status = worker.end()
        if any(cohort.lost >= _LOST for cohort in worker.cohorts.values()):
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            when = "over the same examples" if worker.began else "while it loaded the models"
            raise RunError(
                f"process {worker.number} of {self.processes} {how} {when}, for the third time. Is there "
                f"memory for {self.processes} copies of the models? The same command again continues, also with fewer "
                "--processes"
            )
        for cohort in worker.cohorts.values():
            cohort.lost += 1
            waiting.appendleft(cohort)


def attack_in_processes(
    source: AttackSource,
    job: Job,
    examples: Sequence[Example],
    processes: int,
    *,
    on_gpu: bool = False,
    watch: AttackWatch | None = None,
) -> Iterator[AttackResult]:
    """Attack examples in several processes, which are started for it and end with it."""
    with Workers(source, processes) as workers:
        cohorts = cohorts_of(examples, processes, on_gpu=on_gpu)
        wanted, at_once = {example.id for example in examples}, AT_ONCE if on_gpu else 1
        yield from workers.attack(job, cohorts, wanted, watch, at_once=at_once)


@dataclass
class _Cohort:
    number: int
    examples: list[Example]
    lost: int = 0


# Messages.


@dataclass(frozen=True)
class _Opening:
    source: AttackSource
    threads: int | None


@dataclass(frozen=True)
class _Task:
    job: Job
    cohort: int
    examples: list[Example]


@dataclass(frozen=True)
class _Begun:
    """Message: the models are loaded."""


@dataclass(frozen=True)
class _Round:
    """Message: what a round of a cohort has brought."""

    cohort: int
    asked: int  # queries so far
    results: list[AttackResult]
    queries: list[list[Query]]  # of each result, if they are wanted


@dataclass(frozen=True)
class _Done:
    cohort: int
    statistics: EngineStatistics
    cpu_s: float


@dataclass(frozen=True)
class _Failed:
    kind: type[BaseException]
    message: str
    details: str

    def error(self, number: int, processes: int) -> Exception:
        """The error, with the process it comes from."""
        said = f"process {number} of {processes}: {self.message}"
        if not issubclass(self.kind, IsthmusError):
            return RunError(f"{said}\n{self.details}")
        # An error whose constructor asks for more than a message is told as the one it is a kind of.
        kinds: list[type[IsthmusError]] = [kind for kind in self.kind.__mro__ if issubclass(kind, IsthmusError)]
        plain = next(kind for kind in kinds if kind.__init__ is Exception.__init__)
        return plain(said)


# On this side.


class _WorkerProcess:
    """A handle on another process."""

    def __init__(self, number: int, source: AttackSource, inbox: queue.SimpleQueue[tuple[_WorkerProcess, Any]]) -> None:
        self.number, self.began = number, False
        self.cohorts: dict[int, _Cohort] = {}
        self._process = subprocess.Popen([sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._send(sys.path)
        self._send(_Opening(source, _threads()))
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def take(self, job: Job, cohort: _Cohort) -> None:
        """Send work."""
        self.cohorts[cohort.number] = cohort
        self._send(_Task(job, cohort.number, cohort.examples))

    def end(self) -> int:
        """Stop the process; return its exit status."""
        with contextlib.suppress(OSError):
            self._to.close()
        if self._process.poll() is None:
            self._process.kill()
        return self._process.wait()

    def _send(self, message: Any) -> None:
        # One that is gone is noticed by its silence.
        with contextlib.suppress(BrokenPipeError):
            _write(self._to, message)

    def _listen(self, inbox: queue.SimpleQueue[tuple[_WorkerProcess, Any]]) -> None:
        while True:
            try:
                message = pickle.load(self._from)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):
                inbox.put((self, None))
                return
            if isinstance(message, _Begun):
                self.began = True
            else:
                inbox.put((self, message))


def _write(stream: IO[bytes], message: Any) -> None:
    stream.write(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
    stream.flush()


def _threads() -> int | None:
    """Number of torch threads here: another number could change the last bits of sums.

    None where nobody has needed torch so far; loading it takes longer than a small attack.
    """
    torch = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


# On the other side.


def serve() -> None:
    """Attack the examples from standard input until it is closed; prints go to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one.
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        try:
            opening: _Opening = pickle.load(incoming)
            _serve(opening, incoming, outgoing)
        except (EOFError, BrokenPipeError):
            raise
        except BaseException as error:
            _write(outgoing, _Failed(type(error), str(error) or type(error).__name__, traceback.format_exc()))
    # What is left, threads of libraries and all, has nobody to work for.
    with contextlib.suppress(OSError):
        outgoing.flush()
    os._exit(0)


def _serve(opening: _Opening, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    if opening.threads is not None:
        import torch

        torch.set_num_threads(opening.threads)
    victim = opening.source.victim()
    _write(outgoing, _Begun())
    tasks: queue.SimpleQueue[_Task | BaseException] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(incoming, tasks), daemon=True).start()
    running: deque[_RunningCohort] = deque()
    vocabulary: Vocabulary | None = None
    while True:
        while not running or not tasks.empty():
            task = tasks.get()
            if isinstance(task, BaseException):
                raise task
            running.append(_RunningCohort(opening.source, victim, task, vocabulary))
            vocabulary = running[-1].run.engine.vocabulary
        cohort = running.popleft()
        if cohort.take_turn(outgoing):
            running.append(cohort)


def _receive(incoming: IO[bytes], tasks: queue.SimpleQueue[_Task | BaseException]) -> None:
    """Pass on tasks as they come, and at last the error that ends them."""
    while True:
        try:
            tasks.put(pickle.load(incoming))
        except BaseException as error:
            tasks.put(error)
            return


class _RunningCohort:
    """A cohort under attack, round by round."""

    def __init__(self, source: AttackSource, victim: Victim, task: _Task, vocabulary: Vocabulary | None) -> None:
        from isthmus.attacks.base import AttackRun

        began = time.process_time()
        self.task, self.seed = task, task.job.settings.seed
        self.queries: dict[int, list[Query]] = {}
        settings = task.job.settings
        if task.job.traced:
            # Not a method of this object: in a circle with its run, it would outlive its end.
            settings = replace(settings, engine=replace(settings.engine, trace=partial(_note, self.queries)))
        models = source.models(task.job.names)
        self.run = AttackRun(task.job.attack, victim, task.examples, settings, vocabulary=vocabulary, **models)
        self.turns = self.run.in_turns()
        self.cpu_s = time.process_time() - began

    def take_turn(self, outgoing: IO[bytes]) -> bool:
        """Attack until there is nothing to do but to wait, and send what was found; False at the end."""
        began = time.process_time()
        found, waits = list[AttackResult](), False
        for result in self.turns:
            if result is None:
                waits = True
                break
            found.append(result)
        names = [derive(self.seed, "victim", result.id) for result in found] if self.task.job.traced else []
        queries = [self.queries.pop(name, []) for name in names]
        number, statistics = self.task.cohort, self.run.statistics
        _write(outgoing, _Round(number, statistics.scores.logical, found, queries))
        self.cpu_s += time.process_time() - began
        if not waits:
            _write(outgoing, _Done(number, statistics, self.cpu_s))
        return waits


def _note(queries: dict[int, list[Query]], key: int, texts: Mapping[str, str], scores: Floats) -> None:
    queries.setdefault(key, []).append((key, dict(texts), scores.copy()))
