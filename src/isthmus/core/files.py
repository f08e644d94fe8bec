"""Writes files so that they are either complete or absent.

Everything is written to a temporary name in the same folder, flushed to the disk and renamed, so that a reader never
sees half a file and a process killed in between leaves the old one. What it leaves under the temporary name is deleted
by the next one that writes there. What the disk refuses becomes a `RunError` that says what to do about it.

A folder that came from elsewhere may hold links. Inside `guard_links` nothing is written, made or deleted in that
folder through a link that leads out of it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from isthmus.core.errors import RunError

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, or choose a folder on another disk",
    errno.EDQUOT: "the disk quota is used up: free some space, or choose a folder on another disk",
    errno.EACCES: "permission denied: choose a folder you may write to",
    errno.EPERM: "permission denied: choose a folder you may write to",
    errno.EROFS: "the file system is read-only: choose a folder you may write to",
    errno.ENOTDIR: "a part of the path is a file, not a folder: choose another folder",
    errno.EISDIR: "it is a folder, not a file: choose another name",
    errno.EEXIST: "a file is in the way: choose another folder",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.EMFILE: "too many open files: raise the limit with `ulimit -n`",
}


_guarded: Counter[Path] = Counter()
_PART = re.compile(r"(\d+)(?:\.\w+)?\.part")
"""How a temporary name goes on behind the name of its target: the process, something random, the ending."""
_parts_lock = threading.Lock()
_own_parts: set[str] = set()


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Inside, errors of the disk become a `RunError` about `path`; a link out of its run is refused."""
    refuse_link_out(path)
    with appending(path):
        yield


@contextlib.contextmanager
def appending(path: Path | str) -> Iterator[None]:
    """Inside, errors of the disk become a `RunError`, for a file that is already open."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {path}: {explain_error(error)}") from error


@contextlib.contextmanager
def guard_links(root: Path | str) -> Iterator[None]:
    """Inside, nothing in `root` is written through a link that leads out of it; `root` itself may be a link."""
    place = Path(os.path.abspath(root))  # noqa: PTH100 - as it is named: what its links lead to is the question
    _guarded[place] += 1
    try:
        yield
    finally:
        _guarded[place] -= 1
        if not _guarded[place]:
            del _guarded[place]


def refuse_link_out(path: Path | str) -> None:
    """Refuse a path in a guarded folder that a link leads out of it."""
    named = Path(os.path.abspath(path))  # noqa: PTH100
    for root in list(_guarded):
        real_root = os.path.realpath(root)
        if not (named.is_relative_to(root) or named.is_relative_to(real_root)):
            continue
        real = os.path.realpath(named)
        if not Path(real).is_relative_to(real_root):
            raise RunError(
                f"{path} leads out of {root} by a link, to {real}: nothing is written there. Remove the link, or "
                "choose another folder"
            )


def explain_error(error: OSError) -> str:
    """What the system refused, and how to solve it."""
    return _REMEDIES.get(error.errno or 0, error.strerror or str(error))


def make_folder(path: Path | str) -> Path:
    """Make a folder, with its parents, and check that files can be written in it."""
    folder = Path(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A folder may exist and still refuse files (another owner, a read-only mount).
        with tempfile.TemporaryFile(dir=folder):
            pass
    return folder


def write_atomic(path: Path | str, content: str | bytes) -> None:
    """Write a file so that it is complete or absent, even after a crash; its folder is made if missing."""
    data = content.encode("utf-8", errors="surrogatepass") if isinstance(content, str) else content
    with replacing(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def replacing(path: Path | str) -> Iterator[IO[bytes]]:
    """A stream whose content becomes the file when the block ends; if the block fails, the old file stays.

    What a user names may be a device or a pipe (``--export /dev/stdout``): it is written to, never replaced.
    """
    target = Path(path)
    if _is_device(target):
        with appending(target), target.open("wb") as stream:
            yield stream
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _parts_lock:
            _sweep(target)
            handle, temporary = tempfile.mkstemp(prefix=_part_prefix(target), suffix=".part", dir=target.parent)
            _own_parts.add(temporary)
        try:
            with os.fdopen(handle, "wb") as stream:
                _mark_as_used(handle)
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes private files; a shared results folder should follow the user's mask.
            os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - the name is a string here
            os.replace(temporary, target)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        finally:
            _own_parts.discard(temporary)
        sync_folder(target.parent)


def _is_device(path: Path) -> bool:
    """Whether a path outside of run folders is a device, a pipe, or an open file by its descriptor."""
    named = Path(os.path.abspath(path))  # noqa: PTH100
    if any(named.is_relative_to(place) for root in list(_guarded) for place in (root, os.path.realpath(root))):
        return False
    try:
        mode = named.stat().st_mode
    except OSError:
        return False
    # /dev/stdout is a link to /proc/self/fd/1, which may be a file that the shell has open.
    first = named.readlink() if named.is_symlink() else named
    by_number = any(Path(os.path.realpath(each.parent)).is_relative_to("/proc") for each in (named, first))
    return by_number or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def replacing_folder(path: Path | str) -> Iterator[Path]:
    """An empty folder that replaces `path` when the block ends; if the block fails, the old folder stays."""
    target = Path(path)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _parts_lock:
            _sweep(target)
            temporary = tempfile.mkdtemp(prefix=_part_prefix(target), suffix=".part", dir=target.parent)
            _own_parts.add(temporary)
        fresh, aside = Path(temporary), Path(temporary.removesuffix(".part") + "_old.part")
        _own_parts.add(str(aside))
        try:
            with mark_in_use(fresh):
                fresh.chmod(0o777 & ~_umask())
                yield fresh
                if target.exists():
                    os.replace(target, aside)  # noqa: PTH105
                os.replace(fresh, target)  # noqa: PTH105
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(aside, ignore_errors=True)
            _own_parts.difference_update((temporary, str(aside)))
        sync_folder(target.parent)


def remove_tree(path: Path) -> None:
    """Delete a folder and its contents as far as possible; a link out of its run is refused."""
    with writing(path):
        shutil.rmtree(path, ignore_errors=True)


def remove_file(path: Path) -> None:
    """Delete a file if it exists; in a folder that a link leads out of its run, refuse."""
    with writing(path.parent):
        path.unlink(missing_ok=True)


def _part_prefix(target: Path) -> str:
    return f".{target.name[:64]}.{os.getpid()}."


def _sweep(target: Path) -> None:
    """Delete what killed processes left beside `target` under temporary names."""
    prefix = f".{target.name[:64]}."
    with os.scandir(target.parent) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for name in found:
        match = _PART.fullmatch(Path(name).name, len(prefix))
        if match is not None and name not in _own_parts and _is_left(name, int(match[1])):
            with contextlib.suppress(OSError):
                if Path(name).is_dir() and not Path(name).is_symlink():
                    shutil.rmtree(name)
                else:
                    os.unlink(name)  # noqa: PTH108


def _is_left(name: str, pid: int) -> bool:
    """Whether no process uses a temporary file any more.

    In a container every process may have the same number: what has ours, and is not ours, was left too.
    """
    if pid != os.getpid() and is_running(pid):
        return False
    try:
        handle = os.open(name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return True
    try:
        return _mark_as_used(handle)
    finally:
        os.close(handle)


def _mark_as_used(handle: int) -> bool:
    """Lock an open file; False where another process has locked it."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # Windows, and some network file systems.
        pass
    return True


def is_used(folder: Path) -> bool:
    """Whether a process may be inside `mark_in_use`; True if the system does not tell."""
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except (ImportError, OSError):
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def mark_in_use(folder: Path) -> Iterator[None]:
    """Mark a folder as in use for other processes, if the system has locks."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows
        yield
        return
    try:
        _mark_as_used(handle)
        yield
    finally:
        os.close(handle)


def is_same_file(path: Path, handle: int) -> bool:
    """Whether an open file still has its name: it was neither deleted nor replaced after it was opened."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def is_running(pid: int) -> bool:
    """Whether a process of this machine is alive; True if the system does not tell."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, if the system can."""
    with contextlib.suppress(OSError):  # Windows and some network file systems cannot open a folder.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as readable JSON, keys in the order given."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_whole(path: Path) -> bytes:
    """The content of a file; an `OSError` for a pipe or a device, which may never end."""
    mode = path.stat().st_mode  # One look: between two of them another process may make the file.
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path.read_bytes()


def read_json(path: Path | str) -> Any:
    """Read a JSON file; a missing, unreadable or damaged one is a `RunError`."""
    source = Path(path)
    try:
        return json.loads(read_whole(source).decode("utf-8", errors="surrogatepass"))
    except FileNotFoundError as error:
        raise RunError(f"no file {source}") from error
    except OSError as error:
        raise RunError(f"cannot read {source}: {explain_error(error)}") from error
    except json.JSONDecodeError as error:
        raise RunError(f"{source} is not valid JSON: line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # Not UTF-8, too many digits, too deep.
        raise RunError(f"{source} is not valid JSON: {error}") from error
