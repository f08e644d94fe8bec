"""`attack`: run attacks on a model, one row per example, and continue what was interrupted.

    prepared    the command made ready: methods, limits and goal; models loaded when they are first needed
    suite       which attacks of the command can run
    companions  the models an attack needs beside its victim
    trace       every query, where that was asked for
    detection   what a detector still catches after an evasion
    processes   the same attack by several processes
    gradient    what gradient attacks share: cohorts, rows
    images      gradient attacks on images
    embeddings  gradient attacks on the word embeddings of texts, by name alone

Everything that can be wrong with the command is found before the model is loaded. Rows are written as they finish; the
same command again skips what has a row, and ends with the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import isthmus
from isthmus.core.errors import UsageError
from isthmus.core.records import write_record
from isthmus.runs.attack.detection import detect
from isthmus.runs.attack.embeddings import PreparedEmbeddingAttacks, divide
from isthmus.runs.attack.gradient import Cohort, PreparedGradientAttacks
from isthmus.runs.attack.images import AdversarialImages, PreparedImageAttacks, attacks_images
from isthmus.runs.attack.prepared import PreparedAttacks
from isthmus.runs.attack.processes import attack_by_workers, check_processes
from isthmus.runs.attack.suite import Suite, choose
from isthmus.runs.attack.trace import Trace, is_traced
from isthmus.runs.effort import measured, summed
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder, claim
from isthmus.runs.journal import Journal
from isthmus.runs.observer import Observer, Row, Silent
from isthmus.runs.prepared import ids
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.request import AttackRequest
from isthmus.runs.settings import plain, short_hash
from isthmus.runs.summary import summarise

if TYPE_CHECKING:
    from isthmus.attacks.base import AttackRun
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Example
    from isthmus.data import Rejected

__all__ = ["AttackOutcome", "AttackReport", "AttackRequest", "attack", "moves_embeddings"]


@dataclass(frozen=True)
class AttackOutcome:
    """Rows of one attack on the sample that was asked for."""

    file: AttackFile
    rows: tuple[Row, ...]
    header: Mapping[str, Any]
    attacked: int
    """Examples attacked now; the others had their rows."""


@dataclass(frozen=True)
class AttackReport:
    """What the command did."""

    folder: RunFolder
    outcomes: tuple[AttackOutcome, ...]
    probe_queries: int = 0
    """Texts the model was asked for to know it again."""
    embeddings: tuple[AttackOutcome, ...] = ()
    """Attacks on embeddings of texts, which nobody can send: part of no union."""


def attack(request: AttackRequest, observer: Observer | None = None) -> AttackReport:
    """Run every attack of the request."""
    check_processes(request)
    observer = observer or Silent()
    if attacks_images(request):
        if request.processes is not None:
            raise UsageError("--processes is for attacks on texts: those on images move whole cohorts at once")
        return _attack_images(request, observer)
    of_words, of_embeddings = divide(request)
    if of_embeddings is not None and request.processes is not None:
        raise UsageError("--processes is for word attacks: those on embeddings move whole cohorts at once")
    if of_embeddings is None:
        assert of_words is not None
        return _attack_words(of_words, observer)
    with PreparedEmbeddingAttacks(of_embeddings, observer) as prepared:
        prepared.check()
        suite = prepared.suite()
        if any(map(prepared.has_work, suite.attacks)):
            _ = prepared.victim  # Refuses what cannot be moved, before anything is attacked.
        first = None if of_words is None else _attack_words(of_words, observer)
        outcomes = tuple(_GradientAttack(prepared, suite, name, 0).run() for name in suite.attacks)
        probed = prepared.probe_queries + (0 if first is None else first.probe_queries)
        return AttackReport(prepared.folder, () if first is None else first.outcomes, probed, outcomes)


def moves_embeddings(request: AttackRequest) -> bool:
    """Whether a command asks for attacks on the embeddings of texts; nothing is loaded."""
    return not attacks_images(request) and divide(request)[1] is not None


def _attack_words(request: AttackRequest, observer: Observer) -> AttackReport:
    with PreparedAttacks(request, observer) as prepared:
        prepared.check()
        _ = prepared.search_draws  # Refuses a model that has none, before anything is written.
        suite = choose(prepared)
        attacks = [_Attack(prepared, suite, name, search) for name in suite.attacks for search in prepared.searches]
        outcomes = tuple(each.run() for each in attacks)
        return AttackReport(prepared.folder, outcomes, prepared.probe_queries)


def _attack_images(request: AttackRequest, observer: Observer) -> AttackReport:
    with PreparedImageAttacks(request, observer) as prepared:
        prepared.check()
        suite = prepared.suite()
        outcomes = tuple(_ImageAttack(prepared, suite, name, 0).run() for name in suite.attacks)
        return AttackReport(prepared.folder, outcomes, prepared.probe_queries)


@dataclass(frozen=True)
class _Attack:
    """One attack of the command."""

    ready: PreparedAttacks
    suite: Suite
    name: str
    search_draws: int

    def run(self) -> AttackOutcome:
        """Attack what has no row yet, and put the rows in order."""
        ready = self.ready
        settings = ready.settings(self.name, self.search_draws)
        asked = ids(ready.sample)
        if not ready.file(self.name, settings).rows_path.exists():
            _ = ready.victim  # Refuses what it cannot be asked, before anything is written.
        file, opened, known = claim(lambda: ready.file(self.name, settings), settings)
        with opened as journal:
            self._forget(file, journal)
            missing = [key for key in asked if key not in journal.rows]
            lost = self._lost(file, journal)
            if not missing and not lost and known.get("summary"):
                if known.get("suite") != self._suite():
                    write_record(file.header_path, known := {**known, "suite": self._suite()})
                return AttackOutcome(file, tuple(journal.rows[key] for key in asked), known, 0)
            if not journal.rows:
                ready.check_labels()
            header = self._header(settings, known, len(asked))
            write_record(file.header_path, header)
            effort = self._attack(file, journal, set(missing) | lost)
            journal.finish(ids(ready.first(header["n"])))
            if ready.request.trace:
                Trace(file.trace_path).order(list(journal.rows))
            every = list(journal.rows.values())
            rows = tuple(journal.rows[key] for key in asked)
        header |= {
            "threshold": ready.threshold,
            "detection": None if ready.detector is None else detect(ready.detector, every).to_json(),
            "effort": summed(known.get("effort"), effort),
            "summary": summarise(every, ready.threshold).to_json(),
        }
        write_record(file.header_path, header)
        return AttackOutcome(file, rows, header, len(missing))

    def _lost(self, file: AttackFile, journal: Journal) -> set[str]:
        """Ids of rows that are there while what belongs to them is not: they are attacked again."""
        del file, journal
        return set()

    def _suite(self) -> dict[str, Any]:
        return self.suite.to_json(self.ready.request.attacks)

    def _forget(self, file: AttackFile, journal: Journal) -> None:
        """Drop rows that are to be made again."""
        request, again = self.ready.request, set()
        if request.retry_errors:
            again |= {key for key, row in journal.rows.items() if row.get("outcome") in ("error", "timed_out")}
        if request.trace:
            lines = Trace(file.trace_path).counts()
            again |= {key for key, row in journal.rows.items() if not is_traced(row, lines.get(key, 0))}
        if again:
            journal.forget(sorted(again))

    def _header(self, settings: dict[str, Any], known: Mapping[str, Any], asked: int) -> dict[str, Any]:
        data = self.ready.data
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "attack": self.name,
            "hash": short_hash(settings),
            "n": max(asked, int(known.get("n") or 0)),
            "settings": plain(settings),
            "labels": self.ready.shown_labels(),
            "data": {"name": data.name, "split": data.split, "fingerprint": data.fingerprint},
            "model": self.ready.source.shown,
            "created": known.get("created") or now(),
            "command": self.ready.request.command,
            "suite": self._suite(),
            "versions": versions(),
            "machine": machine(getattr(self.ready.victim, "device_type", None)),
            "effort": known.get("effort"),
        }

    def _attack(self, file: AttackFile, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Attack the examples in `missing`, row by row, and say what it cost."""
        ready, observer, key = self.ready, self.ready.observer, file.key
        observer.begin(key, len(missing) + len(journal), list(journal.rows.values()))
        examples = [example for example in ready.sample.aligned(ready.victim.labels) if example.id in missing]
        effort: dict[str, float] = {"examples": len(examples), "wall_s": 0.0, "cpu_s": 0.0, **ready.probe_effort()}
        with Trace(file.trace_path) as trace:
            if ready.request.trace:
                trace.begin({ready.key(example): example.id for example in examples}, list(journal.rows))

            def write(result: AttackResult) -> None:
                trace.flush()
                row = result.to_row()
                journal.append(row)
                observer.row(key, row)

            for rejected in ready.sample.rejected:
                if rejected.id in missing:
                    write(_rejected(rejected, ready.request.seed))
            if examples and ready.request.processes is not None:
                with measured(effort):
                    watch = attack_by_workers(
                        ready, self.name, self.search_draws, examples,
                        trace=trace, write=write, queries=lambda count: observer.queries(key, count),
                    )  # fmt: skip
                effort["cpu_s"] += watch.cpu_s
                for statistics in watch.statistics:
                    effort = summed(effort, _numbers(statistics))
            elif examples:
                run = self._start(examples, trace.note if ready.request.trace else None)
                run.engine.after_round = lambda: observer.queries(key, run.statistics.scores.logical)
                with measured(effort):
                    for result in run:
                        write(result)
                effort |= _numbers(run.statistics)
        observer.end(key)
        return effort

    def _start(self, examples: list[Example], trace: Any) -> AttackRun:
        ready, name = self.ready, self.name
        models = ready.companions.of(ready.model_names(name))
        settings = ready.attack_settings(name, self.search_draws, trace)
        return ready.methods[name](ready.victim, examples, settings, **models)


@dataclass(frozen=True)
class _GradientAttack(_Attack):
    """One gradient attack of the command."""

    ready: PreparedGradientAttacks

    def _attack(self, file: AttackFile, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Attack the cohorts that hold missing rows."""
        ready, observer, key = self.ready, self.ready.observer, file.key
        new = missing - set(journal.rows)
        observer.begin(key, len(new) + len(journal), list(journal.rows.values()))
        effort: dict[str, float] = {"examples": len(new), "wall_s": 0.0, "cpu_s": 0.0, **ready.probe_effort()}
        for rejected in ready.sample.rejected:
            if rejected.id in new:
                row = _rejected(rejected, ready.request.seed).to_row()
                journal.append(row)
                observer.row(key, row)
        with measured(effort):
            for number, cohort in ready.cohorts(missing):
                made = ready.attack_cohort(self.name, cohort)
                self._keep(file, number, made)
                for row in made.rows:
                    if row["id"] in new:
                        journal.append(row)
                        observer.row(key, row)
        journal.finish(ids(ready.first(None)))
        self._finish(file, journal)
        observer.end(key)
        return effort

    def _header(self, settings: dict[str, Any], known: Mapping[str, Any], asked: int) -> dict[str, Any]:
        return {**super()._header(settings, known, asked), **self.ready.facts()}

    def _keep(self, file: AttackFile, number: int, made: Cohort) -> None:
        """Keep what a cohort ended with, before its rows are written."""

    def _finish(self, file: AttackFile, journal: Journal) -> None:
        """Put in order what was kept."""


@dataclass(frozen=True)
class _ImageAttack(_GradientAttack):
    """One gradient attack on images, which are kept."""

    def _lost(self, file: AttackFile, journal: Journal) -> set[str]:
        return AdversarialImages(file).lost(journal.rows.values())

    def _keep(self, file: AttackFile, number: int, made: Cohort) -> None:
        AdversarialImages(file).keep(number, made.images)

    def _finish(self, file: AttackFile, journal: Journal) -> None:
        AdversarialImages(file).finish(self.ready.aligned, list(journal.rows.values()))


def _rejected(row: Rejected, seed: int) -> AttackResult:
    """A row of the data that holds no usable text or label."""
    from isthmus.attacks.result import AttackResult

    return AttackResult(row.id, "error", None, {}, {}, seed=seed, reason=row.reason)


def _numbers(statistics: Any) -> dict[str, float]:
    """The counters of the engine, flat."""
    found: dict[str, float] = {}
    for key, value in plain(statistics).items():
        if isinstance(value, Mapping):
            found |= {name: number for name, number in value.items() if isinstance(number, int | float)}
        elif isinstance(value, int | float) and key != "examples":
            found[key] = value
    return found
