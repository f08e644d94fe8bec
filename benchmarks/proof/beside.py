"""Work that many processes do beside each other on one machine.

Small models leave most of a GPU idle: a dozen trainings beside each other take little longer than three. Each task runs
in a process of its own, forked from one that has everything imported; a task waits for those it needs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from rich.console import Console

console = Console(width=150)


_HEAVY = ("isthmus.models", "isthmus.training.fit", "isthmus.verbs.attack", "transformers.trainer")
"""What every process would import by itself, for seconds. Nothing of it may touch the GPU before the fork."""


@dataclass(frozen=True)
class Task:
    """Something to do once everything it needs is done."""

    name: str
    work: Callable[[], object]
    needs: tuple[str, ...] = ()
    """Names of other tasks; one that is not given with it was done by an earlier command."""


def work_off(tasks: Iterable[Task], *, workers: int = 1, minutes: float = 1e6) -> None:
    """Do the tasks, first come first served among those that can begin; end the program where some were not done.

    With one worker they are done in this process, one after the other. After `minutes` nothing new is begun. What
    fails is said and, among several workers, tried once more after all others have begun: a neighbour may have taken
    the memory. What needs it is left out; the same call again goes on where tasks keep what they have done.
    """
    for name in _HEAVY if workers > 1 else ():
        importlib.import_module(name)
    waiting = list(tasks)
    names = {task.name for task in waiting}
    end = time.monotonic() + 60 * minutes
    done: set[str] = set()
    running: dict[str, tuple[Task, BaseProcess]] = {}
    failed: set[str] = set()
    left: list[str] = []
    while waiting or running:
        late = time.monotonic() > end
        hopeless = [task for task in waiting if late or not set(left).isdisjoint(task.needs)]
        left += [task.name for task in hopeless]
        waiting = [task for task in waiting if task not in hopeless]
        ready = [task for task in waiting if done.issuperset(names.intersection(task.needs))]
        for task in ready[: workers - len(running)]:
            waiting.remove(task)
            if workers == 1:
                (done.add if _tried(task) else left.append)(task.name)
            else:
                share = min(1.0, _MORE_THAN_EVEN / workers)
                process: BaseProcess = multiprocessing.get_context("fork").Process(target=_in_child, args=(task, share))
                running[task.name] = task, process
                process.start()
        for name, (task, process) in list(running.items()):
            if process.exitcode is not None:
                del running[name]
                if not process.exitcode:
                    done.add(name)
                elif name in failed:
                    left.append(name)
                else:
                    failed.add(name)
                    waiting.append(task)
        if running:
            time.sleep(0.05)
    if left:
        sys.exit(f"{len(left)} not done (the same command again goes on): {', '.join(left)}")


def _tried(task: Task) -> bool:
    """Whether it was done; one that fails must not end the hours of work beside it."""
    try:
        task.work()
    except Exception:
        console.print(f"[red]{task.name} failed[/red]\n{traceback.format_exc()}", markup=True, highlight=False)
        return False
    return True


_MORE_THAN_EVEN = 1.25
"""Processes seldom need their whole share of the memory at once."""


def _in_child(task: Task, share: float) -> None:
    """Do a task with a share of the GPU's memory: what one process keeps for later must not be another's failure.

    Products in float32 round their factors to TF32: answers that are asked for exactly would otherwise take most of the
    time of an attack in bf16.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
        torch.set_float32_matmul_precision("high")
    raise SystemExit(0 if _tried(task) else 1)
