"""A file of JSON lines that survives a killed process.

Each finished piece of work is one line, handed to the system in one write before the next begins, so a killed process
loses at most the work in flight. A line torn by the kill is dropped when the journal is opened again. Each line carries
a checksum (`isthmus.core.lines`): one that does not fit is an error that names the line. `finish` puts the lines in the
order asked for, which makes the file independent of the order in which the work happened to end and of how often it was
interrupted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from isthmus.core.errors import RunError
from isthmus.core.files import appending, is_same_file, read_whole, replacing, writing
from isthmus.core.lines import PlacedLine, encode, make_damage_error, seal, seal_row, whole_lines

JournalRow = Mapping[str, Any]

_SYNC_EVERY_S = 0.5


class BusyError(RunError):
    """Another process holds a journal open."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"another process is writing {path}: wait for it to end, or choose another --out")


def read_rows(path: Path, remedy: str = "") -> list[dict[str, Any]]:
    """Read a journal without changing it: each row once, without an incomplete last line; damage is an error.

    Rows of the same ``id``, and lines that are equal, are one. `remedy` says what follows from deleting a damaged line.
    """
    rows: dict[Any, dict[str, Any]] = {}
    for row, line in _scan(path, remedy):
        rows.setdefault(str(row["id"]) if "id" in row else line.raw, row)
    return list(rows.values())


def read_every_row(path: Path) -> list[dict[str, Any]]:
    """Read all rows of a journal, also those that repeat an id."""
    return [row for row, _ in _scan(path)]


def _scan(path: Path, remedy: str = "") -> Iterator[tuple[dict[str, Any], PlacedLine]]:
    """Yield each complete row with its line; a damaged line is an error."""
    try:
        content = read_whole(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    blank: int | None = None
    sealed_before: bool | None = None
    for line in whole_lines(io.BytesIO(content)):
        if not line.raw.strip():  # At the end of a file that is nothing.
            blank = blank or line.number
            continue
        if blank is not None:
            raise make_damage_error(path, blank, "is not a JSON object", remedy)
        if line.is_damaged:
            raise make_damage_error(path, line.number, "does not match its checksum", remedy)
        if line.row is None:
            raise make_damage_error(path, line.number, "is not a JSON object", remedy)
        if sealed_before is not None and sealed_before != line.is_sealed:
            fault = f"has {'a' if line.is_sealed else 'no'} checksum, unlike those before"
            raise make_damage_error(path, line.number, fault, remedy)
        sealed_before = line.is_sealed
        yield line.row, line


class Journal:
    """Rows of finished work, keyed by their ``id``; one process at a time may hold it open.

    Opening it reads what is there and cuts off a torn last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, dict[str, Any]] = {}
        self._unread: dict[str, bytes] = {}  # lines that were appended and that nobody has asked for yet
        self._handle = _open_locked(path)
        try:
            end, self._is_sealed = 0, True
            for row, line in _scan(path):
                self.rows.setdefault(str(row.get("id")), row)
                end, self._is_sealed = line.end, line.is_sealed
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
        return len(self._rows.keys() | self._unread.keys()) if self._unread else len(self._rows)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows by id: what a resumed run would read."""
        if self._unread:
            self._rows |= {key: json.loads(line) for key, line in self._unread.items()}
            self._unread = {}
        return self._rows

    def append(self, row: JournalRow) -> None:
        """Append one row; it survives a kill when this returns, and a power cut half a second later."""
        if not self._is_sealed:  # Written before there were checksums: all of its lines get theirs now.
            self._rewrite(list(self.rows))
        plain = encode(row)
        self._write(seal(plain))
        self._unread[str(row["id"])] = plain

    def _write(self, line: bytes) -> None:
        start = -1
        try:
            start = os.lseek(self._handle, 0, os.SEEK_END)
            while line:
                line = line[os.write(self._handle, line) :]
        except OSError:
            # A full disk may take half a line; the rows before it stay good.
            with appending(self.path):
                if start >= 0:
                    with contextlib.suppress(OSError):
                        os.ftruncate(self._handle, start)
                raise
        # Waiting for the disk after every row would cost more than a fast attack itself.
        if time.monotonic() - self._synced > _SYNC_EVERY_S:
            with appending(self.path):
                self._sync()

    def forget(self, ids: Sequence[str]) -> None:
        """Drop rows so that their work is done again."""
        for gone in ids:
            self.rows.pop(gone, None)
        self._rewrite(list(self.rows))

    def finish(self, order: Sequence[str]) -> None:
        """Rewrite the file in the order of `order`; rows that are not in it follow in their old order."""
        first = [key for key in order if key in self.rows]
        named = set(first)
        self._rewrite([*first, *(key for key in self.rows if key not in named)])

    def close(self) -> None:
        """Flush to the disk and release the file."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._sync()
            os.close(self._handle)
            self._handle = -1

    def _rewrite(self, keys: Sequence[str]) -> None:
        rows = self.rows
        self._rows = {key: rows[key] for key in keys}
        content = b"".join(seal_row(row) for row in self.rows.values())
        fresh = -1
        try:
            with replacing(self.path) as stream:
                stream.write(content)
                # Locked before it has the name: in between, another process would find the journal free.
                fresh = _lock_again(stream.fileno(), self.path)
            if fresh < 0:
                with writing(self.path):
                    fresh = os.open(self.path, os.O_RDWR | os.O_APPEND)
        except BaseException:
            if fresh >= 0:
                os.close(fresh)
            raise
        self._is_sealed = True
        os.close(self._handle)
        self._handle = fresh

    def _sync(self) -> None:
        os.fsync(self._handle)
        self._synced = time.monotonic()


def is_being_written(path: Path) -> bool:
    """Whether another process, or another journal of this one, has the file open."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:
            return False
        try:
            _lock(handle, path, shared=True)  # Two that only look are not in each other's way.
            # Its writer may have put a new file in its place since it was opened: the free lock is then on the old one.
            if is_same_file(path, handle):
                return False
        except RunError:
            return True
        finally:
            os.close(handle)


def _open_locked(path: Path) -> int:
    """Open the file, made if missing, while nobody else has it open."""
    while True:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            _lock(handle, path)
            # Whoever held it may have put a new file in its place since it was opened: the lock is then on the old one.
            with writing(path):
                if is_same_file(path, handle):
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _lock_again(handle: int, path: Path) -> int:
    """A second handle that keeps the lock when the first is closed; -1 without such locks."""
    try:
        import fcntl
    except ImportError:
        return -1
    _lock(handle, path)
    again = os.dup(handle)
    fcntl.fcntl(again, fcntl.F_SETFL, fcntl.fcntl(again, fcntl.F_GETFL) | os.O_APPEND)
    return again


def _lock(handle: int, path: Path, *, shared: bool = False) -> None:
    """Lock the file; the system releases the lock when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two writers at once are then the user's care.
        return
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(path) from None
    except OSError:  # Some network file systems have no locks.
        return
