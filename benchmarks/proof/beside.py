"""Work that many processes do beside each other on one machine.

Small models leave most of a GPU idle: a dozen trainings beside each other take little longer than three. Each task runs
in a process of its own, forked from one that has everything imported; a task waits for those it needs.
"""

from __future__ import annotations

import importlib
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from rich.console import Console

console = Console(width=150)


_HEAVY = ("isthmus.models", "isthmus.training.fit", "isthmus.runs.attack", "transformers.trainer")
"""What every process would import by itself, for seconds. Nothing of it may touch the GPU before the fork."""


@dataclass(frozen=True)
class Task:
    """Something to do once everything it needs is done."""

    name: str
    work: Callable[[], object]
    needs: tuple[str, ...] = ()


def work_off(tasks: Iterable[Task], *, workers: int = 1, minutes: float = 1e6) -> list[str]:
    """Do the tasks, first come first served among those that can begin; the names of those that were not done.

    With one worker they are done in this process, one after the other. After `minutes` nothing new is begun. What
    fails is said, and what needs it is left out; the same call again goes on where tasks keep what they have done.
    """
    for name in _HEAVY if workers > 1 else ():
        importlib.import_module(name)
    waiting = list(tasks)
    end = time.monotonic() + 60 * minutes
    done: set[str] = set()
    running: dict[str, BaseProcess] = {}
    left: list[str] = []
    while waiting or running:
        known = {task.name for task in waiting} | running.keys() | done
        orphans = [task for task in waiting if not known.issuperset(task.needs)]
        late = waiting if time.monotonic() > end else orphans
        left += [task.name for task in late]
        waiting = [task for task in waiting if task not in late]
        for task in list(_ready(waiting, done, workers - len(running))):
            waiting.remove(task)
            if workers == 1:
                (done.add if _tried(task) else left.append)(task.name)
            else:
                running[task.name] = multiprocessing.get_context("fork").Process(target=_in_child, args=(task,))
                running[task.name].start()
        for name, process in list(running.items()):
            if process.exitcode is not None:
                del running[name]
                (left.append if process.exitcode else done.add)(name)
        if running:
            time.sleep(0.05)
    if left:
        console.print(f"{len(left)} not done (the same command again goes on): {', '.join(left)}")
    return left


def _ready(waiting: list[Task], done: set[str], most: int) -> Iterator[Task]:
    """The first tasks that need nothing more, as many as there are hands."""
    can_begin = (task for task in waiting if done.issuperset(task.needs))
    for task, _ in zip(can_begin, range(most), strict=False):
        yield task


def _tried(task: Task) -> bool:
    try:
        task.work()
    except Exception:
        console.print(f"[red]{task.name} failed[/red]\n{traceback.format_exc()}", markup=True, highlight=False)
        return False
    return True


def _in_child(task: Task) -> None:
    raise SystemExit(0 if _tried(task) else 1)
