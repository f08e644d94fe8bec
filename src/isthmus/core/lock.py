"""Lets one process at a time train in a run folder.

    with hold(folder, "train", exclusive=True): ...     alone
    with hold(folder, "attack"): ...                    beside others that share it, but not beside a training

The lock is the system's (`flock`) on the file ``.lock``, so that it ends with the process, however that ends. The file
holds one line per holder, for the message of whoever is refused; the last one to leave deletes it. Where the file
system has no locks, the lines decide: who wrote first is first, and lines of processes that are dead on this machine
count for nothing. Inside the block nothing is written through a link that leads out of the folder
(`isthmus.core.files.guard_links`).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import RunError
from isthmus.core.files import explain_error, guard_links, is_running, is_same_file, make_folder, writing

FILE = ".lock"
_GRACE_S = 0.5
"""Another process holds the lock alone for a moment while it deletes the file."""
_PAUSE_S = 0.02
_held: dict[tuple[str, int], bool] = {}
"""By folder and thread of this process: whether it is held alone."""
_own_tokens: set[str] = set()


class FolderInUse(RunError):
    """Another process uses the folder."""

    def __init__(self, folder: Path, holder: Holder | None, lock: Path) -> None:
        who = "another process" if holder is None else holder.describe()
        super().__init__(
            f"{folder} is in use by {who}: wait for it to end, or choose another --out. If no such process runs any "
            f"more, delete {lock} and give the command again"
        )


@dataclass(frozen=True)
class Holder:
    """One process, as a line of the lock file."""

    verb: str
    pid: int
    host: str
    since: str
    exclusive: bool
    token: str

    def describe(self) -> str:
        """The holder, for a message."""
        return f"`isthmus {self.verb}` (process {self.pid} on {self.host}, since {self.since})"

    @property
    def is_alive(self) -> bool:
        """Whether the process may still be running; True for another machine, which cannot be asked."""
        if self.host != platform.node():
            return True
        return self.token in _own_tokens if self.pid == os.getpid() else is_running(self.pid)


@contextlib.contextmanager
def hold(folder: Path | str, verb: str, *, exclusive: bool = False) -> Iterator[None]:
    """Lock a folder, made if missing, while the block runs; `FolderInUse` if another process holds it."""
    place = Path(folder)
    key = (os.path.realpath(place), threading.get_ident())
    if key in _held:  # A verb within a verb.
        if exclusive and not _held[key]:
            raise FolderInUse(place, None, place / FILE)
        with guard_links(place):
            yield
        return
    is_new = not place.exists()
    make_folder(place)
    with guard_links(place):
        try:
            with _lock(place / FILE, place, verb, exclusive, _GRACE_S):
                _held[key] = exclusive
                try:
                    yield
                finally:
                    del _held[key]
        finally:
            if is_new:
                with contextlib.suppress(OSError):  # Something was written, as it should be.
                    place.rmdir()


def sweep(folder: Path) -> None:
    """Delete lock files that killed processes left and nobody holds; for commands that only read."""
    for file in (folder / FILE, *folder.glob(f".*{FILE}")):
        with contextlib.suppress(OSError):
            handle = os.open(file, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if _flock(handle, True) and is_same_file(file, handle):
                    file.unlink()
            finally:
                os.close(handle)


@contextlib.contextmanager
def serialise(path: Path, verb: str, patience: float = 60.0) -> Iterator[None]:
    """Run the block in one process at a time, for a file that is read and rewritten; others wait `patience` seconds."""
    with _lock(path.with_name(f".{path.name}.lock"), path, verb, True, patience):
        yield


@contextlib.contextmanager
def _lock(file: Path, subject: Path, verb: str, exclusive: bool, patience: float) -> Iterator[None]:
    since = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    me = Holder(verb, os.getpid(), platform.node(), since, exclusive, secrets.token_hex(4))
    _own_tokens.add(me.token)
    handle = -1
    try:
        deadline = time.monotonic() + patience
        while (handle := _take(file, me)) < 0:
            if time.monotonic() > deadline:
                others = [other for other in _holders(file) if other.is_alive and (exclusive or other.exclusive)]
                raise FolderInUse(subject, others[0] if others else None, file)
            time.sleep(_PAUSE_S)
        yield
    finally:
        _own_tokens.discard(me.token)
        if handle >= 0:
            _leave(file, handle, me)


def _take(file: Path, me: Holder) -> int:
    """The handle of the locked file, or -1 if another process holds it."""
    with writing(file):
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        got = _flock(handle, me.exclusive)
        if got is not False and is_same_file(file, handle):
            with writing(file):
                if got and me.exclusive:
                    os.ftruncate(handle, 0)  # What stands there was left by processes that were killed.
                _note(handle, asdict(me))
            if got or _is_first(file, me):
                return handle
            _note(handle, {"gone": me.token})
    except BaseException:
        _leave(file, handle, me)
        raise
    os.close(handle)
    return -1


def _flock(handle: int, exclusive: bool) -> bool | None:
    """Whether the system grants the lock; None if it has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # Some network file systems have no locks.
        return None
    return True


def _is_first(file: Path, me: Holder) -> bool:
    """Without the system's locks: whether no living process listed before this one excludes it."""
    for other in _holders(file):
        if other.token == me.token:
            return True
        if other.is_alive and (me.exclusive or other.exclusive):
            return False
    return False  # The file was deleted in the meantime.


def _leave(file: Path, handle: int, me: Holder) -> None:
    """Release the lock; the last process deletes the file."""
    with contextlib.suppress(OSError):  # On a full disk it can still be deleted.
        _note(handle, {"gone": me.token})
    with contextlib.suppress(OSError, RunError):
        alone = _flock(handle, True)
        if alone is None:
            alone = not any(other.is_alive for other in _holders(file))
        if alone and is_same_file(file, handle):
            file.unlink()
    os.close(handle)


def _note(handle: int, line: dict[str, Any]) -> None:
    os.write(handle, json.dumps(line).encode() + b"\n")


def _holders(file: Path) -> list[Holder]:
    """Processes listed in the file that have not released the lock."""
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"cannot read {file}: {explain_error(error)}") from error
    found: dict[str, Holder] = {}
    for line in lines:
        try:
            value = json.loads(line)
            if "gone" in value:
                found.pop(value["gone"], None)
            else:
                found[value["token"]] = Holder(**value)
        except (ValueError, TypeError, KeyError):
            continue  # Not ours.
    return list(found.values())
