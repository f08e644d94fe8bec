"""Saves the parts of long work line by line in a file, so that a killed process continues where it stopped.

Whoever may be killed names the file (`keep_in`); whoever works deep inside asks for it (`open_kept`) and finds the rows
of the last time. A torn last line is dropped, and so is a damaged one with all that follows it. Where nobody named a
file nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from isthmus.core.files import remove_file, writing
from isthmus.core.lines import seal, whole_lines

_place: ContextVar[Path | None] = ContextVar("unfinished", default=None)


@contextlib.contextmanager
def keep_in(path: Path) -> Iterator[None]:
    """Inside, finished parts are saved in `path`; it is deleted when all is done, and kept after an interruption."""
    token = _place.set(path)
    try:
        yield
        remove_file(path)
    finally:
        _place.reset(token)


class KeptRows:
    """The rows saved by an earlier process, and a file for more."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.is_file():
            whole, seen = 0, set()
            with writing(path), path.open("r+b") as stream:
                for line in whole_lines(stream):
                    if line.row is None or line.is_damaged:
                        break
                    if line.raw not in seen:
                        self.rows.append(line.row)
                    seen.add(line.raw)
                    whole = line.end
                stream.truncate(whole)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row; it has reached the operating system when this returns."""
        if self._path is not None:
            with writing(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("ab") as stream:
                    stream.write(seal(json.dumps(row).encode()))


def open_kept() -> KeptRows:
    """Open the saved rows of this work."""
    return KeptRows(_place.get())
