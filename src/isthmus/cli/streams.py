"""The standard streams of a command.

What the terminal's encoding cannot spell is escaped, since a result must not be lost to an arrow at the end of hours of
work. A reader who has left (``isthmus list | head -1``) is no error: nothing more is written, the work goes on, and the
exit code is that of the work. A stream that can take no more (a full disk) is an error for results, and none for
progress.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from isthmus.core.errors import RunError
from isthmus.core.files import explain_error


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Inside, stdout and stderr survive a limited encoding and a closed pipe."""
    before = sys.stdout, sys.stderr
    errors = [_escape(stream) for stream in before]
    sys.stdout = _Steady(before[0], "the standard output")
    sys.stderr = _Steady(before[1], None)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, mode in zip(before, errors, strict=True):
            if mode is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.reconfigure(errors=mode)  # type: ignore[union-attr]


def _escape(stream: Any) -> str | None:
    """Let a stream escape characters it cannot encode; returns the previous setting."""
    if not hasattr(stream, "reconfigure"):
        return None
    mode: str = stream.errors
    stream.reconfigure(errors="backslashreplace")
    return mode


class _Steady:
    """A text stream that survives a closed pipe. `name` is for the error message."""

    def __init__(self, stream: Any, name: str | None) -> None:
        # A process can be started without the stream.
        self._stream: Any = open(os.devnull, "w") if stream is None else stream  # noqa: PTH123, SIM115
        self._name, self._gone = name, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, as long as the pipe is open."""
        self._while_there(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush what was written."""
        self._while_there(self._stream.flush)

    def _while_there(self, act: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            act()
        except OSError as error:
            self._gone = True
            self._discard()
            if self._name is not None and not isinstance(error, BrokenPipeError):
                raise RunError(f"cannot write to {self._name}: {explain_error(error)}") from error

    def _discard(self) -> None:
        """Discard the buffer, which would be written again when the process ends."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
