"""Runs several requests at once, answered in order, at a pace common to all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Sequence[Item], workers: int) -> list[Answer]:
    """The results of `work` for every item, in order, with `workers` at a time.

    The first failure, by the order of the items, is raised here; what has not begun by then is not begun. The threads
    are daemons, so that an interrupted command does not wait for a service that does not answer.
    """
    if workers == 1 or len(items) < 2:
        return [work(item) for item in items]
    answers: list[Future[Answer]] = [Future() for _ in items]
    numbers, lock, stop = iter(range(len(items))), threading.Lock(), threading.Event()

    def labour() -> None:
        while not stop.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                answers[number].set_result(work(items[number]))
            except BaseException as error:  # Handed to the caller's thread.
                answers[number].set_exception(error)

    for _ in range(min(workers, len(items))):
        threading.Thread(target=labour, name="isthmus-request", daemon=True).start()
    try:
        return [answer.result() for answer in answers]
    finally:
        stop.set()


class Pace:
    """Allows one request every `pause` seconds, however many threads ask."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self._next = self._held = 0.0
        self._lock = threading.Lock()

    def wait_for_turn(self) -> None:
        """Sleep until the next request may be sent."""
        with self._lock:
            turn = max(time.monotonic(), self._next)
            self._next = turn + self.pause
        # Somebody may have been told to wait while this thread slept: all of them wait then.
        while (left := max(turn, self._held) - time.monotonic()) > 0:
            time.sleep(left)

    def hold(self, seconds: float) -> None:
        """Stop all requests for some seconds, as the service asked."""
        with self._lock:
            self._held = max(self._held, time.monotonic() + seconds)
