"""What is done of a long piece of work, line by line in a file, so that a killed process goes on where it was.

Whoever may be killed names the file (`kept_in`); whoever works deep inside asks for it (`kept`) and finds the rows of
the last time. A torn last line is dropped. Where nobody named a file nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from isthmus.core.files import writing

_place: ContextVar[Path | None] = ContextVar("unfinished", default=None)


@contextlib.contextmanager
def kept_in(path: Path) -> Iterator[None]:
    """Inside, finished parts are kept in `path`; it is deleted when all is done, and stays where the work broke off."""
    token = _place.set(path)
    try:
        yield
        path.unlink(missing_ok=True)
    finally:
        _place.reset(token)


class Kept:
    """The rows of the last time, and a place for more."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.is_file():
            whole = 0
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    row = json.loads(line) if line.endswith(b"\n") else None
                except ValueError:
                    row = None
                if not isinstance(row, dict):
                    break
                self.rows.append(row)
                whole += len(line)
            with writing(path), path.open("r+b") as stream:
                stream.truncate(whole)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row; it has reached the operating system when this returns."""
        if self._path is not None:
            with writing(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")


def kept() -> Kept:
    """What was kept of this work."""
    return Kept(_place.get())
