"""One command, broken at each of its writes, given again, and compared with the same command left in peace."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fault_cases import CASES, Case, fresh, make_inputs
from fault_compare import difference, tree
from fork_server import Ended, Server
from write_shim import Fault

SEED = int(os.environ.get("FAULTS_SEED", "0"))
"""Chooses other samples and other damage; by default both are the same every time."""


@dataclass(frozen=True)
class Whole:
    """A command that nothing broke."""

    template: Path
    tree: dict[str, Any]
    events: list[str]
    code: int


class Laboratory:
    """Templates of folders, by what was done in them, and the trials."""

    def __init__(self, server: Server, place: Path) -> None:
        self.server, self.place, self.work = server, place, place / "work"
        self._wholes: dict[str, Whole] = {}
        make_inputs(place / "inputs")

    def template(self, before: tuple[str, ...]) -> Path:
        """A folder in which these commands have run."""
        if not before:
            return self.place / "inputs"
        folder = self.place / "-".join(("after", *before))
        if not folder.exists():
            fresh(self.template(before[:-1]), self.work)
            ended = self._run(CASES[before[-1]], warm=True)
            assert ended.code == 0, ended.err
            self.work.rename(folder)
        return folder

    def whole(self, case: Case) -> Whole:
        """The command left in peace."""
        if case.name not in self._wholes:
            template = self.template(case.before)
            fresh(template, self.work)
            self._run(case, warm=True)
            fresh(template, self.work)
            ended = self._run(case)
            assert ended.code == 0, ended.err
            self._wholes[case.name] = Whole(template, tree(self.work), ended.events, ended.code)
        return self._wholes[case.name]

    def _run(self, case: Case, fault: Fault = Fault(), *, same_pid: bool = False, warm: bool = False) -> Ended:  # noqa: B008
        argv = list(case.argv)
        return self.server.run(argv, self.work, fault, function=case.call, same_pid=same_pid, warm=warm)

    def trial(self, case: Case, fault: Fault, *, same_pid: bool = False) -> str | None:
        """Break one write, give the command again; what went wrong that should not have, or None."""
        whole = self.whole(case)
        fresh(whole.template, self.work)
        first = self._run(case, fault, same_pid=same_pid)
        problem = _broken_badly(first, fault)
        if problem is None:
            again = self._run(case, same_pid=same_pid)
            problem = again.fault
            is_done = case.is_refused_when_done and "is there already" in again.said
            if problem is None and again.code != whole.code and not is_done:
                problem = f"given again it ends with {again.code}: {again.said[-400:]}"
            problem = problem or difference(whole.tree, tree(self.work))
        where = whole.events[fault.at] if fault.at < len(whole.events) else "?"
        return None if problem is None else f"{case.name}, {fault.kind} at write {fault.at} ({where}): {problem}"


def _broken_badly(ended: Ended, fault: Fault) -> str | None:
    """A killed command must die; one that finds the disk full must say so, or do without what it could not write."""
    if fault.kind in ("kill", "torn"):
        return None if ended.was_killed else f"it was not killed: {ended.code}, {ended.said[-400:]}"
    if ended.fault is not None:
        return f"{ended.fault}: {ended.said[-400:]}"
    if ended.code == 0:
        return None
    if ended.code != 2 or not any(
        word in ended.said for word in ("disk is full", "No space left", "Input/output error")
    ):
        return f"with a broken disk it ends with {ended.code}: {ended.said[-400:]}"
    return None


class Fuzzer:
    """Sound files for every reader, and what becomes of damaged copies."""

    READY = (
        "train", "attack-run", "attack-embeddings", "evaluate", "certify", "measure", "explain", "attack",
        "train-images", "attack-images",
    )  # fmt: skip

    def __init__(self, laboratory: Laboratory) -> None:
        self._server, self._work = laboratory.server, laboratory.place / "fuzz"
        after = laboratory.template(self.READY)
        made = self._server.call("fuzz_files:make", laboratory.place, folder="sound", after=str(after))
        assert made.code == 0, made.err
        self._sound: dict[str, str] = made.value

    def fuzz(self, reader: str, seed: int, count: int) -> tuple[dict[str, int], list[str]]:
        """How often a reader gave the same, something else or an error of ours, and what it did that it must not."""
        self._work.mkdir(exist_ok=True)
        options = {"reader": reader, "sound": self._sound[reader], "seed": seed, "count": count}
        ended = self._server.call("fuzz_targets:fuzz", self._work, **options)
        if ended.code != 0:
            at = (self._work / "progress").read_text() if (self._work / "progress").exists() else reader
            return {}, [f"{at}: {ended.fault or ended.code}: {ended.said[-600:]}"]
        return ended.value["counts"], ended.value["problems"]
