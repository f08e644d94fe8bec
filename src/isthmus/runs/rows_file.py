"""One row per example in one file: what has no row yet is computed, the rest is read.

    claim      take the file of these settings; no other process may write it meanwhile
    outdated   drop rows that are to be made again
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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import isthmus
from isthmus.core.records import write_record
from isthmus.runs.effort import measured, summed
from isthmus.runs.folder import SCHEMA, AttackFile
from isthmus.runs.journal import BusyError, Journal, is_being_written
from isthmus.runs.observer import Row
from isthmus.runs.prepared import PreparedModel
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import plain, short_hash

if TYPE_CHECKING:
    from isthmus.data import Rejected

_WAIT_S = 0.1


@dataclass(frozen=True)
class RowsDone:
    """The rows that a command asked for, and the header of their file."""

    file: AttackFile
    header: Mapping[str, Any]
    rows: tuple[Row, ...]
    made: int
    """Rows made now; the others were there."""
    total: int
    """Rows of the file, which may be more than were asked for."""


@dataclass(eq=False)
class RowsJob(ABC):
    """The rows of one file, as one command asks for them."""

    ready: PreparedModel[Any]

    retried: ClassVar[tuple[str, ...]] = ("error",)
    """Outcomes that ``--retry-errors`` makes again."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What decides the rows."""

    @property
    @abstractmethod
    def asked(self) -> Sequence[str]:
        """Ids of the examples asked for."""

    @property
    @abstractmethod
    def unusable(self) -> Sequence[Rejected]:
        """Rows of the data that hold no example."""

    @abstractmethod
    def choose_file(self) -> AttackFile:
        """Where the rows belong, as things stand: another process may take a name that is free now."""

    @abstractmethod
    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """What the header of this verb says before the work; `known` is the header that is there."""

    @abstractmethod
    def reject(self, bad: Rejected) -> Row:
        """The row of something that is no example."""

    @abstractmethod
    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[Row, None, None]:
        """Rows of the examples in `missing` as they finish; counts of what they cost go to `effort`.

        What is prepared before the generator is returned is not counted as time of the work.
        """

    @abstractmethod
    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        """Ids in the order of the finished file."""

    @abstractmethod
    def conclude(self, file: AttackFile, header: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
        """What the header says once all rows are there."""

    @property
    def device_type(self) -> str | None:
        """Where the model runs, as far as it is known."""
        return getattr(getattr(self.ready, "victim", None), "device_type", None)

    def begin(self) -> None:  # noqa: B027
        """Look at the model before the first row of the file is made."""

    def outdated(self, file: AttackFile, rows: Mapping[str, Row]) -> set[str]:
        """Ids of rows that are to be made again."""
        del file
        if not self.ready.request.retry_errors:
            return set()
        return {key for key, row in rows.items() if row.get("outcome") in self.retried}

    def settle(self, file: AttackFile, rows: Sequence[Row]) -> None:  # noqa: B027
        """Bring what lies beside the rows into their order."""

    def revise(self, header: dict[str, Any], rows: Sequence[Row]) -> bool:
        """Where every row is there: bring the header up to date with the command; whether that is all there is to do.

        A header without figures is of work that was interrupted at its end.
        """
        del rows
        return bool(header.get("summary"))

    @final
    def run(self) -> RowsDone:
        """Make the rows that are missing, put all in order, and compute their figures."""
        file, opened, known = claim(self.choose_file, self.settings)
        with opened as journal:
            if again := self.outdated(file, journal.rows):
                journal.forget(sorted(again))
            missing = {key for key in self.asked if key not in journal.rows}
            header = dict(known)
            if not missing and self.revise(header, list(journal.rows.values())):
                if header != known:
                    write_record(file.header_path, header)
                return self._done(file, header, journal, 0)
            if missing and not journal.rows:
                self.begin()
            header = self._header(known)
            write_record(file.header_path, header)
            effort = self._make(file, journal, missing) if missing else {}
            journal.finish(self.order(header))
            every = list(journal.rows.values())
            self.settle(file, every)
            header["effort"] = summed(known.get("effort"), effort)
            header |= self.conclude(file, header, every)
            write_record(file.header_path, header)
            return self._done(file, header, journal, len(missing))

    def _done(self, file: AttackFile, header: Mapping[str, Any], journal: Journal, made: int) -> RowsDone:
        return RowsDone(file, header, tuple(journal.rows[key] for key in self.asked), made, len(journal))

    def _header(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "hash": short_hash(self.settings),
            "settings": plain(self.settings),
            "model": self.ready.source.shown,
            **self.about(known),
            "created": known.get("created") or now(),
            "command": self.ready.request.command,
            "versions": versions(),
            "machine": machine(self.device_type),
            "effort": known.get("effort"),
        }

    def _make(self, file: AttackFile, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Write the rows of `missing`, and say what they cost."""
        observer, key = self.ready.observer, file.key
        observer.begin(key, len(missing) + len(journal), list(journal.rows.values()))

        def write(row: Row) -> None:
            journal.append(row)
            observer.row(key, row)

        for bad in self.unusable:
            if bad.id in missing:
                write(self.reject(bad))
        left = missing - set(journal.rows)
        effort: dict[str, float] = {"examples": len(left), "wall_s": 0.0, "cpu_s": 0.0, **self.ready.probe_effort()}
        if left:
            with contextlib.closing(self.produce(file, journal, left, effort)) as rows, measured(effort):
                for row in rows:
                    write(row)
        observer.end(key)
        return effort


def claim(choose: Callable[[], AttackFile], settings: Mapping[str, Any]) -> tuple[AttackFile, Journal, dict[str, Any]]:
    """The file that `choose` names now; its journal, open for writing; its header, empty where there is none of ours.

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
