"""Runs commands in children of a process that has everything imported, so that a trial costs tenths of a second.

    with Server() as server:
        server.run(["attack", ...], cwd, warm=True)
        ended = server.run(["attack", ...], cwd, Fault("kill", 17))

Run as a script it is that process: requests are JSON lines on its standard input, answers on its standard output. The
children are real processes: they hold the system's locks, are killed by real signals, and nothing of theirs is kept.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

sys.path[:0] = [str(Path(__file__).parent)]

from write_shim import Fault, broken  # noqa: E402

SECONDS = 60
"""After so long a command counts as hung."""
PID = 4242
"""In a container every process may have the same number."""


@dataclass(frozen=True)
class Ended:
    """What one command left."""

    code: int
    """Its exit code; negative where a signal ended it."""
    out: str
    err: str
    events: list[str]
    """What it wrote, as far as it got to say so."""
    value: Any = None
    """What a function returned."""
    seconds: float = 0.0

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def said(self) -> str:
        """Its messages in one line."""
        return " ".join(self.err.split())

    @property
    def fault(self) -> str | None:
        """What no user may see, whatever is wrong with the input."""
        if self.code == -signal.SIGALRM:
            return f"it hung for {SECONDS} s"
        if self.code < 0:
            return f"it was ended by {signal.Signals(-self.code).name}"
        for word in ("bug in isthmus", "Traceback (most recent call last)"):
            if word in self.err + self.out:
                return f"it says {word!r}"
        return None


class Server:
    """The warm process, as its user sees it."""

    def __init__(self, *, environment: dict[str, str] | None = None) -> None:
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **(environment or {})}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(timeout=60)

    def _ask(self, **request: Any) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def run(
        self,
        argv: list[str],
        cwd: Path,
        fault: Fault = Fault(),  # noqa: B008
        *,
        function: str | None = None,
        same_pid: bool = False,
        warm: bool = False,
    ) -> Ended:
        """One command line in a child, with what it writes below `cwd` watched.

        `function` (``module:function``) gets the command line instead of isthmus; with `warm` the server imports what
        the command imported, so that the next ones are faster.
        """
        options = {"function": function, "same_pid": same_pid, "warm": warm}
        return self._ask(argv=argv, cwd=str(cwd), kind=fault.kind, at=fault.at, **options)

    def call(self, function: str, cwd: Path, fault: Fault = Fault(), **arguments: Any) -> Ended:  # noqa: B008
        """``module:function`` of this folder in a child; what it returns is `Ended.value`."""
        return self._ask(call=function, arguments=arguments, cwd=str(cwd), kind=fault.kind, at=fault.at)


# ---------------------------------------------------------------------- the server's side


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    importlib.import_module("isthmus.cli.app")._prepare_libraries()
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        with tempfile.TemporaryDirectory(prefix="isthmus-trial-") as place:
            began = time.monotonic()
            child = os.fork()
            if child == 0:
                _child(request, Path(place))
            _, status = os.waitpid(child, 0)
            answer = _read(Path(place))
        answer |= {"code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - began}
        _import(answer.pop("modules", []))
        print(json.dumps(answer), file=answers, flush=True)


def _read(place: Path) -> dict[str, Any]:
    answer: dict[str, Any] = {
        name: (place / name).read_text(errors="replace") if (place / name).exists() else "" for name in ("out", "err")
    }
    left = place / "left.json"
    return {"events": [], **answer, **(json.loads(left.read_text()) if left.exists() else {})}


def _import(modules: list[str]) -> None:
    for name in modules:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


def _child(request: dict[str, Any], place: Path) -> None:
    """Run the request and end; nothing of the server goes on in this process."""
    code = 70
    try:
        for number, name in ((1, "out"), (2, "err")):
            handle = os.open(place / name, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, number)
            os.close(handle)
        sys.stdin = open(os.devnull)  # noqa: PTH123, SIM115
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        signal.alarm(SECONDS)
        os.chdir(request["cwd"])
        sys.path.insert(0, request["cwd"])
        if request.get("same_pid"):
            os.getpid = lambda: PID
        code = _work(request, place)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _work(request: dict[str, Any], place: Path) -> int:
    known, value, code = set(sys.modules), None, 0
    # By the clock a slow machine would flush more often, and number its writes otherwise.
    setattr(importlib.import_module("isthmus.runs.journal"), "_SYNC_EVERY_S", 0.0)  # noqa: B010
    with broken(Path(request["cwd"]), Fault(request["kind"], request["at"])) as shim:
        if "call" in request:
            module, _, function = request["call"].partition(":")
            value = getattr(importlib.import_module(module), function)(**request["arguments"])
        else:
            module, _, function = (request.get("function") or "isthmus.cli.app:run").partition(":")
            sys.argv = ["isthmus", *request["argv"]]
            code = getattr(importlib.import_module(module), function)(request["argv"])
    left = {"events": shim.events, "value": value}
    if request.get("warm"):
        left["modules"] = [name for name in sys.modules if name not in known]
    (place / "left.json").write_text(json.dumps(left))
    return code


if __name__ == "__main__":
    _serve()
