"""How far a long piece of work is, told to whoever watches.

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
    """Whoever shows work that is done in between."""

    def on_work(self, title: str, done: int, total: int, figures: str) -> None:
        """`done` of `total` parts of `title` are done; `figures` are what is known so far."""

    def on_note(self, message: str) -> None:
        """Something worth knowing happened."""


_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watch(watcher: object) -> Iterator[None]:
    """Inside, `watcher` is told of all work, if it is a `Watcher` at all."""
    token = _watcher.set(watcher if isinstance(watcher, Watcher) else None)
    try:
        yield
    finally:
        _watcher.reset(token)


def tell(title: str, done: int, total: int, figures: str = "") -> None:
    """So much of `title` is done."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher.on_work(title, done, total, figures)


@contextlib.contextmanager
def announce(title: str) -> Iterator[None]:
    """A piece of work without parts: it begins, and it is done."""
    tell(title, 0, 1)
    yield
    tell(title, 1, 1)


def note(message: str) -> None:
    """Say something; where nobody watches it goes to the log."""
    watcher = _watcher.get()
    if watcher is None:
        _log.warning(message)
    else:
        watcher.on_note(message)
