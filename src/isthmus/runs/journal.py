"""A file of JSON lines that survives being killed.

Each finished piece of work is one line, handed to the system in one write before the next begins, so a killed process
loses at most the work in flight. A line torn by the kill is dropped when the journal is opened again. `finish` puts the
lines in the order asked for, which makes the file independent of the order in which the work happened to end and of how
often it was interrupted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from isthmus.core.errors import RunError
from isthmus.core.files import write_atomic, writing

Row = Mapping[str, Any]

_SYNC_EVERY_S = 0.5


class BusyError(RunError):
    """Another process holds a journal open."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"another process is writing {path}: wait for it to end, or choose another --out")


def encode(row: Row) -> bytes:
    """One line that any JSON reader takes: keys in the order given, NaN as null, half a surrogate pair escaped."""
    try:
        line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    except ValueError:
        line = json.dumps(_finite(row), ensure_ascii=False, allow_nan=False)
    # The backslash form of a lone surrogate is also its JSON escape.
    return line.encode("utf-8", errors="backslashreplace") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a journal, without touching it: a torn last line is left out, a broken line elsewhere is an error."""
    return [row for row, _ in _scan(path)]


def _scan(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each whole row with the offset at which it ends."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    lines = content.split(b"\n")
    end = 0
    for number, line in enumerate(lines, start=1):
        whole = number < len(lines)  # What follows the last line break is empty, or torn.
        row = _parse(line) if whole else None
        if row is None:
            if any(rest.strip() for rest in lines[number:]):
                raise RunError(f"{path} line {number} is not a JSON object: the file was changed; remove that line")
            return
        end += len(line) + 1
        yield row, end


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


class Journal:
    """Rows of finished work, keyed by their ``id``; one process at a time may hold it open.

    Opening it reads what is there and cuts off a torn last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(self._handle, path)
            end = 0
            for row, end in _scan(path):  # noqa: B007 - the last offset is where the whole rows end
                self.rows.setdefault(str(row.get("id")), row)
            with writing(path):
                os.ftruncate(self._handle, end)
        except BaseException:
            os.close(self._handle)
            raise
        self._synced = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.rows)

    def append(self, row: Row) -> None:
        """Write one row; it is safe from a kill when this returns, and from a power cut half a second later."""
        line = encode(row)
        with writing(self.path):
            start = os.lseek(self._handle, 0, os.SEEK_END)
            try:
                _write_all(self._handle, line)
            except OSError:
                # A full disk may take half a line; the rows before it stay good.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._handle, start)
                raise
            # Waiting for the disk after every row would cost more than a fast attack itself.
            if time.monotonic() - self._synced > _SYNC_EVERY_S:
                self._sync()
        # What was written is what a resumed run would read.
        self.rows[str(row["id"])] = json.loads(line)

    def forget(self, ids: Sequence[str]) -> None:
        """Drop rows so that their work is done again."""
        for gone in ids:
            self.rows.pop(gone, None)
        self._rewrite(list(self.rows))

    def finish(self, order: Sequence[str]) -> None:
        """Rewrite the file in the order of `order`; rows it does not name follow in the order they have."""
        first = [key for key in order if key in self.rows]
        named = set(first)
        self._rewrite([*first, *(key for key in self.rows if key not in named)])

    def close(self) -> None:
        """Flush to the disk and let go of the file."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._sync()
            os.close(self._handle)
            self._handle = -1

    def _rewrite(self, keys: Sequence[str]) -> None:
        self.rows = {key: self.rows[key] for key in keys}
        content = b"".join(encode(row) for row in self.rows.values())
        write_atomic(self.path, content)
        # The lock belongs to the file that was just replaced: take the new one.
        fresh = os.open(self.path, os.O_RDWR | os.O_APPEND)
        _lock(fresh, self.path)
        os.close(self._handle)
        self._handle = fresh

    def _sync(self) -> None:
        os.fsync(self._handle)
        self._synced = time.monotonic()


def is_being_written(path: Path) -> bool:
    """Whether another process, or another journal of this one, holds the file open."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(handle, path)
    except RunError:
        return True
    finally:
        os.close(handle)
    return False


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _lock(handle: int, path: Path) -> None:
    """The system frees the lock when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two writers at once are then the user's care.
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(path) from None
    except OSError:  # Some network file systems have no locks.
        return
