"""One row per example in one file: missing rows are computed, the others are read.

    claim      take the file of these settings; no other process may write it meanwhile
    outdated   drop rows that are to be made again
    lost       rows that stay, while what lies beside them is made again
    begin      look at the model before the first row is written
    header     write what decides the rows, before any of them
    produce    make the rows that are missing; each is safe from a kill before the next is made
    order      put the rows in the order of the data
    settle     the same for what lies beside the rows
    conclude   figures of all rows, into the header

A `RowsJob` walks these steps, and a verb says only what differs: `attack`, `evaluate` and `certify` are jobs. The same
command again ends with the same file, however often it was interrupted and by whatever.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, final

import isthmus
from isthmus.core.errors import RunError
from isthmus.core.records import write_record
from isthmus.runs.effort import measure_effort, sum_effort
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder
from isthmus.runs.journal import BusyError, Journal, is_being_written
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import short_hash, to_plain
from isthmus.verbs.observer import RowResult
from isthmus.verbs.prepared_model import PreparedModel

if TYPE_CHECKING:
    from isthmus.data import Rejected

Result = TypeVar("Result", bound=RowResult)
_WAIT_S = 0.1


@dataclass(frozen=True)
class RowsDone(Generic[Result]):
    """The requested results, and the header of their file."""

    file: AttackFile
    header: Mapping[str, Any]
    results: tuple[Result, ...]
    made: int
    """Results made now; the others were there."""
    total: int
    """Rows of the file, which may be more than were asked for."""


@dataclass(frozen=True)
class RowsReport(Generic[Result]):
    """Result of a command: the results of each of its files."""

    folder: RunFolder
    outcomes: tuple[RowsDone[Result], ...]
    probe_queries: int = 0
    """Queries made to check that the model is unchanged."""
    embeddings: tuple[RowsDone[Result], ...] = field(default=(), kw_only=True)
    """Attacks on embeddings of texts, which nobody can send: part of no union."""


@dataclass(eq=False)
class RowsJob(ABC, Generic[Result]):
    """The results of one file that one command needs."""

    ready: PreparedModel[Any]

    retried: ClassVar[tuple[str, ...]] = ("error",)
    """Outcomes that ``--retry-errors`` makes again."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The settings that decide the rows."""

    @property
    @abstractmethod
    def asked(self) -> Sequence[str]:
        """Ids of the requested examples."""

    @property
    @abstractmethod
    def unusable(self) -> Sequence[Rejected]:
        """Rows of the data that hold no example."""

    @abstractmethod
    def choose_file(self) -> AttackFile:
        """Choose the file of the rows; another process may take a free name in the meantime."""

    @abstractmethod
    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The header's entries before the work; `known` is the existing header."""

    @abstractmethod
    def read(self, row: Mapping[str, Any]) -> Result:
        """Read the result of a row."""

    @abstractmethod
    def reject(self, bad: Rejected) -> Result:
        """Make the result of an unusable row."""

    @abstractmethod
    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[Result, None, None]:
        """Yield results of the examples in `missing` as they finish; add their costs to `effort`.

        An example that is `find_lost` has its row already, and is among them for what lies beside the row.
        What is prepared before the generator is returned is not counted as time of the work.
        """

    @abstractmethod
    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        """Ids in the order of the finished file."""

    @abstractmethod
    def conclude(self, file: AttackFile, header: Mapping[str, Any], results: Sequence[Result]) -> dict[str, Any]:
        """The header's entries once all results are there."""

    @property
    def device_type(self) -> str | None:
        """The device of the model, as far as it is known."""
        return getattr(getattr(self.ready, "victim", None), "device_type", None)

    def begin(self) -> None:
        """Check the model before the first row of the file is made."""

    def find_outdated(self, file: AttackFile, results: Sequence[Result]) -> set[str]:
        """Ids of results to make again."""
        del file
        if not self.ready.request.retry_errors:
            return set()
        return {result.id for result in results if result.outcome in self.retried}

    def find_lost(self, file: AttackFile, results: Sequence[Result]) -> set[str]:
        """Ids of results whose rows exist but whose other files are missing."""
        del file, results
        return set()

    def settle(self, file: AttackFile, results: Sequence[Result]) -> None:
        """Sort the files beside the rows into their order."""

    def revise(self, header: dict[str, Any], results: Sequence[Result]) -> bool:
        """Called if no result is missing: update the header; True if nothing else is to be done.

        A header without figures is of work that was interrupted at its end.
        """
        del results
        return bool(header.get("summary"))

    @final
    def run(self) -> RowsDone[Result]:
        """Make the missing results, sort all, and compute their figures."""
        file, opened, known = claim(self.choose_file, self.settings)
        with opened as journal:
            there = self._read(journal)
            if again := self.find_outdated(file, there):
                journal.forget(sorted(again))
                there = [result for result in there if result.id not in again]
            missing = {key for key in self.asked if key not in journal.rows}
            lost = self.find_lost(file, there)
            header = dict(known)
            if not missing and not lost and self.revise(header, there):
                if header != known:
                    write_record(file.header_path, header)
                return self._make_done(file, header, there, 0)
            if missing and not there:
                self.begin()
            header = self._header(known)
            write_record(file.header_path, header)
            effort = self._make(file, journal, there, missing, lost) if missing or lost else {}
            journal.finish(self.order(header))
            every = self._read(journal)
            self.settle(file, every)
            header["effort"] = sum_effort(known.get("effort"), effort)
            header |= self.conclude(file, header, every)
            write_record(file.header_path, header)
            return self._make_done(file, header, every, len(missing))

    def _read(self, journal: Journal) -> list[Result]:
        try:
            return [self.read(row) for row in journal.rows.values()]
        except RunError as error:
            raise RunError(f"{journal.path}: {error}") from error

    def _make_done(
        self, file: AttackFile, header: Mapping[str, Any], every: Sequence[Result], made: int
    ) -> RowsDone[Result]:
        by_id = {result.id: result for result in every}
        return RowsDone(file, header, tuple(by_id[key] for key in self.asked), made, len(every))

    def _header(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "hash": short_hash(self.settings),
            "settings": to_plain(self.settings),
            "model": self.ready.source.shown,
            **self.about(known),
            "created": known.get("created") or now(),
            "command": self.ready.request.command,
            "versions": versions(),
            "machine": machine(self.device_type),
            "effort": known.get("effort"),
        }

    def _make(
        self, file: AttackFile, journal: Journal, there: Sequence[Result], missing: set[str], lost: set[str]
    ) -> dict[str, float]:
        """Make and write the results of `missing` and of `find_lost`, and return their cost."""
        observer, key = self.ready.observer, file.key
        observer.begin(key, len(missing) + len(there), there)

        def write(result: Result) -> None:
            journal.append(result.to_row())
            observer.result(key, result)

        for bad in self.unusable:
            if bad.id in missing:
                write(self.reject(bad))
        left = missing - set(journal.rows)
        effort: dict[str, float] = {"examples": len(left), "wall_s": 0.0, "cpu_s": 0.0, **self.ready.probe_effort()}
        if left or lost:
            with (
                contextlib.closing(self.produce(file, journal, left | lost, effort)) as results,
                measure_effort(effort),
            ):
                for result in results:
                    if result.id not in lost:
                        write(result)
        observer.end(key)
        return effort


def claim(choose: Callable[[], AttackFile], settings: Mapping[str, Any]) -> tuple[AttackFile, Journal, dict[str, Any]]:
    """Claim the file that `choose` names now: the file, its open journal, and its header, empty if it is new.

    Another process may have taken the name since it was found free. Whose it is stands in its header, which is written
    once the work has begun: other settings leave another name to this one, the same settings are worked on already.
    """
    code = short_hash(settings)
    while True:
        file = choose()
        try:
            journal = Journal(file.rows_path)
        except BusyError:
            while is_being_written(file.rows_path) and not file.header_path.exists():
                time.sleep(_WAIT_S)
            if choose() == file and is_being_written(file.rows_path):
                raise
            continue
        try:
            known = file.header() if file.header_path.exists() else {}
        except BaseException:
            journal.close()
            raise
        if known.get("hash") == code:
            return file, journal, known
        if not journal.rows or file.key.endswith(f"@{code}"):
            return file, journal, {}
        journal.close()  # Another process was quicker, and is done already.
