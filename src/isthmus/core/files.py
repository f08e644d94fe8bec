"""Files that are either whole or not there.

Everything is written to a temporary name in the same folder, flushed to the disk and renamed, so that a reader never
sees half a file and a process killed in between leaves the old one. What the disk refuses becomes a `RunError` that
says what to do about it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """Turn what the disk refuses inside the block into a `RunError` about `path`."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {path}: {explain(error)}") from error


def explain(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    return _REMEDIES.get(error.errno or 0, error.strerror or str(error))


def make_folder(path: Path | str) -> Path:
    """Make a folder, parents included, and check that files can be written in it."""
    folder = Path(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # A folder may exist and still refuse files (another owner, a read-only mount).
        with tempfile.TemporaryFile(dir=folder):
            pass
    return folder


def write_atomic(path: Path | str, content: str | bytes) -> None:
    """Write a file so that it is either whole or not there, even after a crash; its folder is made if need be."""
    target = Path(path)
    data = content.encode("utf-8", errors="surrogatepass") if isinstance(content, str) else content
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".part", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            # mkstemp makes private files; a shared results folder should follow the user's mask.
            os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - the name is a string here
            os.replace(temporary, target)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108
            raise
        sync_folder(target.parent)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows and some network file systems cannot open a folder.
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as readable JSON, keys in the order given."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=True) + "\n")


def read_json(path: Path | str) -> Any:
    """Read a JSON file written by anybody; a missing, unreadable or broken one is a `RunError`."""
    source = Path(path)
    try:
        return json.loads(source.read_text(encoding="utf-8", errors="surrogatepass"))
    except FileNotFoundError as error:
        raise RunError(f"no file {source}") from error
    except OSError as error:
        raise RunError(f"cannot read {source}: {explain(error)}") from error
    except json.JSONDecodeError as error:
        raise RunError(f"{source} is not valid JSON: line {error.lineno}: {error.msg}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise RunError(f"{source} is not valid JSON: {error}") from error
