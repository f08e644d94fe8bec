"""Reports the progress of long work to whoever watches.

Deep inside a training a defence may attack the model for an hour. It cannot know who wants to hear of it, and whoever
shows bars cannot know what there is to show: the one calls `tell`, the other listens inside a `watch` block.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol, runtime_checkable

_log = logging.getLogger("isthmus")


@runtime_checkable
class Watcher(Protocol):
    """Receives the progress of work."""

    def on_work(self, title: str, done: int, total: int, figures: str) -> None:
        """Called when `done` of `total` parts of `title` are done; `figures` are the results so far."""

    def on_note(self, message: str) -> None:
        """Called with a note for the user."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watch(watcher: object) -> Iterator[None]:
    """Inside, `watcher` receives the progress of all work, if it is a `Watcher`."""
    token = _watcher.set(watcher if isinstance(watcher, Watcher) else None)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(title: str, done: int, total: int, figures: str = "") -> None:
    """Report that `done` of `total` parts of `title` are done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.on_work(title, done, total, figures)


@contextlib.contextmanager
def announce(title: str) -> Iterator[None]:
    """Report the start, and at the end the completion, of work without parts."""
    tell(title, 0, 1)
    yield
    tell(title, 1, 1)


def note(message: str) -> None:
    """Send a note; without a watcher it goes to the log."""
    watcher = _watcher.get()
    if watcher is None:
        _log.warning(message)
    else:
        watcher.on_note(message)
