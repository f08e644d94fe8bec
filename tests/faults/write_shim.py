"""Counts what a process writes below a folder, and breaks one write of it.

    with broken(folder, Fault("kill", 17)): ...

Writes are numbered from 0: files opened for writing, bytes, truncations, flushes to the disk, renames, deletions,
folders made and removed, and files that native code (safetensors, torch) writes as a whole. The faults:

    kill    SIGKILL instead of write number `at`
    torn    the first half of its bytes reach the disk, then SIGKILL
    full    the disk is full from this write on: nothing new is made and no bytes are taken (ENOSPC)
    failing the disk fails from this write on, whatever is asked of it (EIO)

`points` names the writes at which a fault differs from the same fault one write earlier or later.
"""

# The functions of `os` are what is replaced here: pathlib would call the replacements.
# ruff: noqa: PTH100, PTH112, PTH118, PTH119, PTH120, PTH208
from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REAL_PID = os.getpid
_NAMES = ("replace", "rename", "unlink", "remove", "rmdir", "chmod")
"""What changes names only."""
_OTHERS = ("open", "close", "write", "mkdir", "truncate", "ftruncate", "fsync")
_BYTES = ("write", "native")
_SPACE = ("create", "mkdir", "fsync", *_BYTES)
"""What a full disk refuses."""
_STAY = ("open", "fsync", "chmod")
"""What leaves the disk as it was, as far as a reader can tell."""
_CODES = {"full": errno.ENOSPC, "failing": errno.EIO}


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and at which write; ``count`` is nothing at all."""

    kind: str = "count"
    at: int = -1


def points(events: Sequence[str], kind: str) -> list[int]:
    """The writes of a command that are worth breaking."""
    kinds = [event.split()[0] for event in events]
    if kind == "kill":
        return [number for number in range(len(kinds)) if number == 0 or kinds[number - 1] not in _STAY]
    return [number for number, each in enumerate(kinds) if each in {"torn": _BYTES, "full": _SPACE}.get(kind, kinds)]


class Shim:
    """The writes of this process below `root`."""

    def __init__(self, root: Path, fault: Fault) -> None:
        self.root, self.fault = os.path.realpath(root), fault
        self.events: list[str] = []
        self._paths: dict[int, str] = {}
        self._code = 0
        self.real = {name: getattr(os, name) for name in (*_NAMES, *_OTHERS)}
        self.real_open = io.open

    def is_inside(self, path: Any, dir_fd: int | None = None) -> bool:
        """Whether a path, or an open file, lies below the root."""
        if isinstance(path, int):
            return path in self._paths
        if dir_fd is not None:
            return dir_fd in self._paths
        try:
            named = os.path.abspath(os.fsdecode(path))
        except (TypeError, ValueError):
            return False
        parent = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))
        return parent == self.root or parent.startswith(self.root + os.sep)

    def note(self, kind: str, path: Any, done: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """One write: count it, and do it unless it is the one to break."""
        number = len(self.events)
        self.events.append(f"{kind} {self._shown(path)}")
        if number == self.fault.at:
            if self.fault.kind == "kill":
                self.die()
            if self.fault.kind == "torn":
                (half or done)()
                self.die()
            self._code = _CODES.get(self.fault.kind, 0)
        if self._code == errno.EIO or (self._code and kind in _SPACE):
            if half is not None and number == self.fault.at:
                half()
            raise OSError(self._code, os.strerror(self._code), *([path] if isinstance(path, str) else []))
        return done()

    def _shown(self, path: Any) -> str:
        named = self._paths.get(path, "?") if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        return os.path.relpath(named, self.root)

    def die(self) -> None:
        """What a kill, or the system when memory runs out, does."""
        os.kill(_REAL_PID(), signal.SIGKILL)

    # ------------------------------------------------------------------ what stands in for the functions of `os`

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        def done() -> int:
            handle: int = self.real["open"](path, flags, mode, dir_fd=dir_fd)
            if inside:
                self._paths[handle] = os.path.abspath(os.fsdecode(path))
            return handle

        inside = self.is_inside(path, dir_fd)
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        return int(self.note(self._opens(path, flags), path, done) if inside and writes else done())

    def _opens(self, path: Any, flags: int) -> str:
        if os.path.isdir(path) or not os.path.lexists(path):  # A nameless file in a folder is new as well.
            return "create"
        return "truncate" if flags & os.O_TRUNC else "open"

    def close(self, handle: int) -> None:
        self._paths.pop(handle, None)
        self.real["close"](handle)

    def write(self, handle: int, data: Any) -> int:
        if handle not in self._paths:
            return int(self.real["write"](handle, data))
        held = bytes(data)
        return int(
            self.note(
                "write",
                handle,
                lambda: self.real["write"](handle, held),
                lambda: self.real["write"](handle, held[: len(held) // 2]),
            )
        )

    def named(self, name: str) -> Callable[..., Any]:
        """Stands in for a function of `os` whose first argument is a path or an open file."""
        real = self.real[name]

        def stand_in(path: Any, *rest: Any, **options: Any) -> Any:
            where = options.get("dir_fd", options.get("src_dir_fd"))
            inside = self.is_inside(path, where) or (name in ("replace", "rename") and self.is_inside(rest[0]))
            if not inside or _has_no_effect(name, path, where):
                return real(path, *rest, **options)
            return self.note(name, path, lambda: real(path, *rest, **options))

        return stand_in

    # ------------------------------------------------------------------ streams and native code

    def open_stream(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not set(mode) & set("wax+") or not self.is_inside(file):
            return self.real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        flat = mode.replace("b", "").replace("t", "").replace("U", "")

        def make() -> _Counted:
            return _Counted(self, file, flat, closefd, opener)

        if isinstance(file, int) or opener is not None:
            raw = make()  # What opened it was counted.
        else:
            kind = self._opens(file, os.O_TRUNC if "w" in flat else 0)
            raw = self.note(kind, os.fspath(file), make)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        stream: Any = (io.BufferedRandom if "+" in flat else io.BufferedWriter)(raw, size)
        if "b" in mode:
            return stream
        text = io.TextIOWrapper(stream, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def native(self, real: Callable[..., Any], place: int, error: Callable[[str], Exception]) -> Callable[..., Any]:
        """Stands in for native code that writes a whole file, named by its argument number `place`."""

        def stand_in(*given: Any, **options: Any) -> Any:
            path = given[place] if len(given) > place else options.get("f", options.get("filename"))
            if not isinstance(path, str | os.PathLike) or not self.is_inside(path):
                return real(*given, **options)

            def half() -> None:
                real(*given, **options)
                self.real["truncate"](path, Path(path).stat().st_size // 2)

            try:
                return self.note("native", os.fspath(path), lambda: real(*given, **options), half)
            except OSError as problem:
                raise error(f"I/O error: {problem.strerror} (os error {problem.errno})") from None

        return stand_in


def _has_no_effect(name: str, path: Any, dir_fd: int | None) -> bool:
    """Folders that are there are not made, and full ones not removed."""
    if dir_fd is not None or isinstance(path, int):
        return False
    if name == "mkdir":
        return os.path.lexists(path)
    if name in ("unlink", "remove"):
        return not os.path.lexists(path)
    return name == "rmdir" and (not os.path.isdir(path) or bool(os.listdir(path)))


class _Counted(io.FileIO):
    """A file whose writes are counted; buffers above it write through it."""

    def __init__(self, shim: Shim, file: Any, mode: str, closefd: bool, opener: Any) -> None:
        super().__init__(file, mode, closefd, opener)
        self._shim = shim
        self._owns = closefd
        if not isinstance(file, int):
            shim._paths[self.fileno()] = os.path.abspath(os.fsdecode(file))

    def write(self, data: Any) -> int:
        held = bytes(data)
        real = super().write
        return int(
            self._shim.note("write", self.fileno(), lambda: real(held), lambda: real(held[: len(held) // 2])) or 0
        )

    def truncate(self, size: int | None = None) -> int:
        real = super().truncate
        return int(self._shim.note("truncate", self.fileno(), lambda: real(size)))

    def close(self) -> None:
        if not self.closed and self._owns:
            self._shim._paths.pop(self.fileno(), None)
        super().close()


@contextlib.contextmanager
def broken(root: Path, fault: Fault) -> Iterator[Shim]:
    """Inside, what this process writes below `root` is counted, and one write of it breaks."""
    import safetensors
    import safetensors.torch
    import torch

    shim = Shim(root, fault)
    # By the module's own name for it, which is not one of its front page.
    serialise = getattr(safetensors.torch, "serialize_file")  # noqa: B009
    saved = [
        (os, name, getattr(os, name)) for name in shim.real
    ] + [
        (io, "open", io.open), (builtins, "open", builtins.open), (shutil, "_USE_CP_SENDFILE", False),
        (torch, "save", torch.save), (safetensors.torch, "serialize_file", serialise),
    ]  # fmt: skip
    for name in shim.real:
        own = name in ("open", "close", "write")
        setattr(os, name, getattr(shim, name) if own else shim.named(name))
    io.open = builtins.open = shim.open_stream
    shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
    torch.save = shim.native(torch.save, 1, RuntimeError)
    setattr(safetensors.torch, "serialize_file", shim.native(serialise, 1, safetensors.SafetensorError))  # noqa: B010
    try:
        yield shim
    finally:
        for owner, name, real in saved:
            setattr(owner, name, real)
