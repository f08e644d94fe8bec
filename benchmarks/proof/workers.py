"""Processes beside each other on one GPU, each of which does one piece of work after the other.

A process that begins needs seconds for its libraries and its context on the GPU, so it is kept. One that fails or dies
is replaced: after an error the context may be useless, and would fail at everything that follows.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

_HEAVY = ("isthmus.models.storage", "isthmus.training.fit", "isthmus.verbs.attack", "transformers.trainer")
"""Imported before the fork. Nothing of it may touch the GPU."""
_TRIES = 2

Work = Callable[[int], str]
"""Does the work with this number and says how it went."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    number: int | None = None
    since: float = 0.0


@dataclass(frozen=True)
class Ended:
    """Numbers of the work that was done, that failed, and that was not begun or was cut off."""

    done: tuple[int, ...]
    failed: tuple[int, ...]
    left: tuple[int, ...]


def work_off(
    titles: Sequence[str],
    work: Work,
    *,
    workers: int = 1,
    deadline: float | None = None,
    stop: float | None = None,
    tell: Callable[[str], None] = lambda line: print(line, flush=True),
) -> Ended:
    """Do the work in its order, `workers` pieces at a time.

    After `deadline` (`time.monotonic`) nothing new is begun; after `stop` what still runs is ended. What fails is tried
    once more, after everything else has begun.
    """
    for name in _HEAVY:
        importlib.import_module(name)
    waiting = deque(range(len(titles)))
    tries = [0] * len(titles)
    done: list[int] = []
    failed: list[int] = []
    crew: list[_Worker] = []
    try:
        while True:
            now = time.monotonic()
            late = deadline is not None and now > deadline
            while waiting and not late and len(crew) < workers:
                crew.append(_begin(work, workers))
            for worker in [each for each in crew if each.number is None]:
                if waiting and not late:
                    _give(worker, waiting.popleft(), tries)
                else:
                    crew.remove(worker)
                    _dismiss(worker)
            if not crew or (stop is not None and now > stop):
                break
            for pipe in wait([each.pipe for each in crew], timeout=0.5):
                worker = next(each for each in crew if each.pipe is pipe)
                number, seconds = worker.number, time.monotonic() - worker.since
                assert number is not None
                ok, text = _heard(worker)
                tell(f"[{len(done) + ok}/{len(titles)}] {seconds:4.0f} s  {titles[number]}: {text}")
                worker.number = None
                if ok:
                    done.append(number)
                    continue
                crew.remove(worker)
                _dismiss(worker)
                (waiting if tries[number] < _TRIES else failed).append(number)
    finally:
        for worker in crew:
            worker.process.terminate()
        for worker in crew:
            worker.process.join()
    ended = {*done, *failed}
    return Ended(tuple(done), tuple(failed), tuple(number for number in range(len(titles)) if number not in ended))


def _begin(work: Work, workers: int) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, ours, work, workers), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, number: int, tries: list[int]) -> None:
    tries[number] += 1
    worker.number, worker.since = number, time.monotonic()
    with contextlib.suppress(OSError):  # It may have died between two pieces; `wait` tells.
        worker.pipe.send(number)


def _heard(worker: _Worker) -> tuple[bool, str]:
    try:
        ok, text = worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join()
        return False, f"the process ended with code {worker.process.exitcode}"
    return ok, text


def _dismiss(worker: _Worker) -> None:
    with contextlib.suppress(OSError):
        worker.pipe.send(None)
    worker.pipe.close()
    worker.process.join()


_MORE_THAN_EVEN = 1.25
"""Processes seldom need their whole share of the memory at once."""


def _serve(pipe: Connection, other: Connection, work: Work, workers: int) -> None:
    """A worker's life: a number comes, the work is done, a line goes back."""
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The first process ends the others.
    import torch

    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(min(1.0, _MORE_THAN_EVEN / workers))
    while True:
        try:
            number = pipe.recv()
        except (EOFError, OSError):
            return
        if number is None:
            return
        try:
            pipe.send((True, work(number)))
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            pipe.send((False, f"failed, {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"))
            return
