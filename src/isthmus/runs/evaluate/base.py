"""One set of an evaluation, whatever the task: what has no row yet is asked for, the rest is read.

Subclasses say how examples become rows and rows become figures. Rows are written as they come; the same command again
continues after the rows that are there and ends with the same file.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import isthmus
from isthmus.core.errors import VictimError
from isthmus.core.records import write_record
from isthmus.core.seeds import numpy_stream
from isthmus.runs.effort import measured, summed
from isthmus.runs.evaluate.prepared import PreparedEvaluation
from isthmus.runs.evaluate.sets import EvaluationSet
from isthmus.runs.evaluate.speed import TEXTS, Ask, measure
from isthmus.runs.folder import SCHEMA, AttackFile, claim
from isthmus.runs.journal import Journal
from isthmus.runs.observer import Row
from isthmus.runs.prepared import ids
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.settings import plain, short_hash

if TYPE_CHECKING:
    from isthmus.data import Dataset


@dataclass(frozen=True)
class EvaluationOutcome:
    """Rows of one set, and the header with the figures of just these rows."""

    file: AttackFile
    rows: tuple[Row, ...]
    header: Mapping[str, Any]
    asked: int
    """Examples the model was asked for now; the others had their rows."""


@dataclass(frozen=True)
class Asking:
    """How a model is asked to be timed."""

    ask: Ask
    is_here: bool
    """Whether it runs in this process, so that asking costs nothing but time."""
    device: str = "cpu"
    model: Any = None
    """What counts its passes."""


@dataclass(frozen=True)
class Evaluation:
    """One set of the command."""

    ready: PreparedEvaluation
    part: EvaluationSet

    @abstractmethod
    def check_fit(self) -> None:
        """Load the model, and refuse a set that it cannot read."""

    @abstractmethod
    def begin(self) -> None:
        """Look at the first answers before any row is written."""

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What the header says of the model."""

    @abstractmethod
    def batches(self, missing: set[str], journal: Journal) -> Iterator[Sequence[dict[str, Any]]]:
        """Rows of the examples in `missing`, some at a time."""

    @abstractmethod
    def figures(self, header: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
        """The figures of rows, as JSON holds them."""

    @abstractmethod
    def asking(self, answered: Sequence[str]) -> Asking:
        """How the model is asked for the examples of these ids."""

    def remarks(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What else the header says once all rows are there."""
        del rows
        return {}

    def choose_file(self) -> AttackFile:
        """Where its rows belong, as things stand: another process may take a name that is free now."""
        return self.ready.folder.evaluation_file(self.part.name, self.ready.settings(self.part))

    @cached_property
    def asked(self) -> list[str]:
        """Ids of the examples asked for, in the order of the set."""
        data, n = self.part.data, self.ready.request.n
        chosen = set(ids(data if n is None else data.sample(n, self.ready.request.seed)))
        return [key for key in ids(data) if key in chosen]

    def check(self) -> None:
        """Where there is something to ask for, find out whether set and model fit before any set is begun."""
        there = {str(row.get("id")) for row in self.choose_file().rows()}
        if self.ready.request.retry_errors or not there.issuperset(self.asked):
            self.check_fit()

    def run(self) -> EvaluationOutcome:
        """Ask for what has no row yet, put the rows in the order of the set, and compute the figures."""
        settings = self.ready.settings(self.part)
        file, opened, known = claim(self.choose_file, settings)
        with opened as journal:
            if self.ready.request.retry_errors:
                journal.forget([key for key, row in journal.rows.items() if row.get("outcome") == "error"])
            missing = {key for key in self.asked if key not in journal.rows}
            if not missing and known.get("summary"):
                return self._outcome(file, self._timed_again(file, known, journal), journal, 0)
            if not journal.rows:
                self.begin()
            header = self._header(settings, known)
            write_record(file.header_path, header)
            effort = self._ask(file.key, journal, missing)
            journal.finish(ids(self.part.data))
            every = list(journal.rows.values())
            header |= {"effort": summed(known.get("effort"), effort), **self.remarks(every)}
            header["summary"] = self.figures(header, every)
            header["speed"] = self._speed(every) or known.get("speed")
            write_record(file.header_path, header)
            return self._outcome(file, header, journal, len(missing))

    def _timed_again(self, file: AttackFile, known: Mapping[str, Any], journal: Journal) -> Mapping[str, Any]:
        """The header with another price, and with new times where the command asks for them."""
        header, request = dict(known), self.ready.request
        if request.price_per_hour is not None:
            header["price_per_hour"] = request.price_per_hour
        if request.latency:
            header["speed"] = self._speed(list(journal.rows.values())) or known.get("speed")
        if header != known:
            write_record(file.header_path, header)
        return header

    def _speed(self, rows: Sequence[Row]) -> dict[str, Any] | None:
        """How fast the model answers; None where that is not asked for or cannot be found out."""
        answered = [str(row["id"]) for row in rows if row["outcome"] != "error"]
        asked = self.ready.request.latency
        if not answered or asked == 0:
            return None
        # A set may begin with all of one class, or with the short ones.
        numpy_stream(self.ready.request.seed, "latency").shuffle(answered)
        how = self.asking(answered)
        if asked is None and not how.is_here:
            return None
        self.ready.observer.note("timing single examples and full batches")
        try:
            found = measure(how.ask, len(answered), single=asked or TEXTS, device=how.device, model=how.model)
        except VictimError as error:
            self.ready.observer.note(f"not timed: {error}")
            return None
        return found.to_json()

    def _outcome(self, file: AttackFile, header: Mapping[str, Any], journal: Journal, asked: int) -> EvaluationOutcome:
        """The rows asked for; where the file holds more, with figures of their own."""
        rows = tuple(journal.rows[key] for key in self.asked)
        if len(rows) < len(journal):
            header = {**header, "summary": self.figures(header, rows)}
        return EvaluationOutcome(file, rows, header, asked)

    def _header(self, settings: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        given = self.ready.request.price_per_hour
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "evaluation": self.part.name,
            "task": self.ready.task,
            "hash": short_hash(settings),
            "settings": plain(settings),
            "set": self.part.to_json(),
            "model": self.ready.source.shown,
            **self.about(),
            "created": known.get("created") or now(),
            "command": self.ready.request.command,
            "versions": versions(),
            "machine": machine(self.ready.device_type),
            "effort": known.get("effort"),
            "price_per_hour": known.get("price_per_hour") if given is None else given,
        }

    def _ask(self, key: str, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Write the rows of `missing`, and say what they cost."""
        observer = self.ready.observer
        observer.begin(key, len(missing) + len(journal), list(journal.rows.values()))
        effort: dict[str, float] = {"examples": len(missing), "wall_s": 0.0, "cpu_s": 0.0, **self.ready.probe_effort()}

        def write(row: dict[str, Any]) -> None:
            journal.append(row)
            observer.row(key, row)

        for bad in self.part.data.rejected:
            if bad.id in missing:
                write({"id": bad.id, "outcome": "error", "label": None, "texts": {}, "reason": bad.reason})
        with measured(effort):
            for rows in self.batches(missing - set(journal.rows), journal):
                for row in rows:
                    write(row)
        observer.end(key)
        return effort


def restricted(data: Dataset, rows: Sequence[Row]) -> Dataset:
    """The examples of `data` that have a row, in its order."""
    import dataclasses

    there = {str(row["id"]) for row in rows}
    return dataclasses.replace(
        data,
        examples=tuple(example for example in data if example.id in there),
        rejected=tuple(bad for bad in data.rejected if bad.id in there),
    )
