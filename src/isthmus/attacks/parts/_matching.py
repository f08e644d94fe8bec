"""Finds matches of a user's regular expression within a time limit.

Some expressions take time exponential in the text: ``(a+)+$`` on thirty letters that end in another one. Python's
engine cannot be stopped from another thread, so a child process matches, with the same engine and so with the same
meaning, and is ended where it takes too long. It is started once per expression and answers in a fraction of a
millisecond.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import queue
import re
import subprocess
import sys
import threading
from typing import Any

from isthmus.core.errors import UsageError

SECONDS = 5.0
"""For one text; an expression without nested repeats needs milliseconds for a whole book."""

_CHILD = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    print(json.dumps([match.span() for match in pattern.finditer(json.loads(line))]), flush=True)
"""

Spans = tuple[tuple[int, int], ...]
_stopped: dict[str, str] = {}
"""Patterns that took too long, and what was said of each."""


@functools.lru_cache(maxsize=4096)
def find_spans(pattern: str, text: str) -> Spans:
    """The matches of `pattern`, as `re.finditer` finds them; one that takes too long is a `UsageError`."""
    if pattern in _stopped:  # One text was enough; every further one would take as long.
        raise UsageError(_stopped[pattern])
    matcher = _matcher(pattern)
    if matcher is None:
        return tuple(match.span() for match in re.finditer(pattern, text))
    try:
        return matcher.find(text, SECONDS)
    except TimeoutError:
        _matcher.cache_clear()
        _stopped[pattern] = (
            f"the pattern {pattern!r} took more than {SECONDS:g} s on a text of {len(text):,} characters and was "
            "stopped: avoid repeats inside repeats such as (a+)+"
        )
        raise UsageError(_stopped[pattern]) from None


@functools.lru_cache(maxsize=4)
def _matcher(pattern: str) -> _Matcher | None:
    """The child process for a pattern; None if this system cannot start one."""
    with contextlib.suppress(OSError, ValueError):
        return _Matcher(pattern)
    return None


class _Matcher:
    """A child process that matches one pattern."""

    def __init__(self, pattern: str) -> None:
        if not sys.executable:
            raise ValueError("no interpreter to start")
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="ascii",
        )
        self._answers: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="isthmus-matches", daemon=True).start()
        atexit.register(self.close)
        self._send(pattern)

    def find(self, text: str, seconds: float) -> Spans:
        """The spans in `text`; `TimeoutError` if that takes longer."""
        with self._lock:
            try:
                self._send(text)
                answer = self._answers.get(timeout=seconds)
                return tuple((start, end) for start, end in json.loads(answer))
            except (queue.Empty, OSError, ValueError):
                self.close()
                raise TimeoutError from None

    def close(self) -> None:
        """End the child."""
        atexit.unregister(self.close)
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, value: str) -> None:
        stream: Any = self._child.stdin
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    def _listen(self) -> None:
        stream: Any = self._child.stdout
        with contextlib.suppress(OSError, ValueError):
            for line in stream:
                self._answers.put(line)
        self._answers.put("")
