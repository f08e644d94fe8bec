"""`attack`: run attacks on a model, one row per example, and continue what was interrupted.

    prepared_attacks  the command made ready: methods, limits and goal; models loaded when they are first needed
    suite             which attacks of the command can run
    auxiliary_models  the models an attack needs beside its victim
    trace             every query, where that was asked for
    detection         what a detector still catches after an evasion
    processes         the same attack by several processes
    gradient          what gradient attacks share: cohorts, results
    images            gradient attacks on images
    embeddings        gradient attacks on the word embeddings of texts, by name alone

Everything that can be wrong with the command is found before the model is loaded. Rows are written as they finish; the
same command again skips what has a row, and ends with the same file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from isthmus.attacks.processes import AttackWatch
from isthmus.attacks.result import AttackResult
from isthmus.core.errors import UsageError
from isthmus.runs.effort import sum_effort
from isthmus.runs.folder import AttackFile
from isthmus.runs.journal import Journal
from isthmus.runs.settings import to_plain
from isthmus.summaries.attack import summarise
from isthmus.verbs.attack.detection import detect
from isthmus.verbs.attack.embeddings import PreparedEmbeddingAttacks, divide
from isthmus.verbs.attack.gradient import Cohort, PreparedGradientAttacks
from isthmus.verbs.attack.images import AdversarialImageFile, PreparedImageAttacks, attacks_images
from isthmus.verbs.attack.prepared_attacks import PreparedAttacks
from isthmus.verbs.attack.processes import attack_by_workers
from isthmus.verbs.attack.suite import Suite, choose
from isthmus.verbs.attack.trace import Trace, is_traced
from isthmus.verbs.observer import Observer
from isthmus.verbs.prepared_model import ids
from isthmus.verbs.request import AttackRequest
from isthmus.verbs.rows_file import RowsJob, RowsReport

if TYPE_CHECKING:
    from isthmus.core.types import Example
    from isthmus.data import Rejected

    Note = Callable[[int, Mapping[str, str], Any], None]

__all__ = ["AttackRequest", "attack", "moves_embeddings"]


def attack(request: AttackRequest, observer: Observer | None = None) -> RowsReport[AttackResult]:
    """Run every attack of the request."""
    if request.processes is not None and request.model.startswith(("http://", "https://")):
        raise UsageError(
            "--processes is for models that run on this machine: every process would query the service at full rate. "
            "Use -V concurrency=… for parallel requests"
        )
    observer = observer or Observer()
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
        return RowsReport(prepared.folder, () if first is None else first.outcomes, probed, embeddings=outcomes)


def moves_embeddings(request: AttackRequest) -> bool:
    """Whether a command asks for attacks on the embeddings of texts; nothing is loaded."""
    return not attacks_images(request) and divide(request)[1] is not None


def _attack_words(request: AttackRequest, observer: Observer) -> RowsReport[AttackResult]:
    with PreparedAttacks(request, observer) as prepared:
        prepared.check()
        _ = prepared.search_draws  # Refuses a model that has none, before anything is written.
        suite = choose(prepared)
        attacks = [_Attack(prepared, suite, name, search) for name in suite.attacks for search in prepared.searches]
        outcomes = tuple(each.run() for each in attacks)
        return RowsReport(prepared.folder, outcomes, prepared.probe_queries)


def _attack_images(request: AttackRequest, observer: Observer) -> RowsReport[AttackResult]:
    with PreparedImageAttacks(request, observer) as prepared:
        prepared.check()
        suite = prepared.suite()
        outcomes = tuple(_ImageAttack(prepared, suite, name, 0).run() for name in suite.attacks)
        return RowsReport(prepared.folder, outcomes, prepared.probe_queries)


@dataclass(eq=False)
class _Attack(RowsJob[AttackResult]):
    """One attack of the command."""

    ready: PreparedAttacks
    suite: Suite
    name: str
    search_draws: int

    retried: ClassVar[tuple[str, ...]] = ("error", "timed_out")

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that decide the rows."""
        return self.ready.settings(self.name, self.search_draws)

    @cached_property
    def asked(self) -> Sequence[str]:
        """Ids of the sample."""
        return ids(self.ready.sample)

    @property
    def unusable(self) -> Sequence[Rejected]:
        """Rows of the sample without a usable text or label."""
        return self.ready.sample.rejected

    def choose_file(self) -> AttackFile:
        """Choose the file of these settings."""
        file = self.ready.file(self.name, self.settings)
        if not file.rows_path.exists():
            _ = self.ready.victim  # Refuses what it cannot be asked, before anything is written.
        return file

    def begin(self) -> None:
        """Stop if the model's labels cannot match those of the data."""
        self.ready.check_labels()

    def find_outdated(self, file: AttackFile, results: Sequence[AttackResult]) -> set[str]:
        """Ids of errors to try again, and of results without their queries if a trace is requested."""
        again = super().find_outdated(file, results)
        if self.ready.request.trace:
            lines = Trace(file.trace_path).counts()
            again |= {result.id for result in results if not is_traced(result, lines.get(result.id, 0))}
        return again

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Describe method, data and suite."""
        data = self.ready.data
        return {
            "attack": self.name,
            "n": max(len(self.asked), int(known.get("n") or 0)),
            "labels": self.ready.choose_label_names(),
            "data": {"name": data.name, "split": data.split, "fingerprint": data.fingerprint},
            "suite": self.suite.to_json(self.ready.request.attacks),
        }

    def revise(self, header: dict[str, Any], results: Sequence[AttackResult]) -> bool:
        """Update the suite, which may have changed; True if nothing else is to be done."""
        header["suite"] = self.suite.to_json(self.ready.request.attacks)
        return super().revise(header, results)

    def read(self, row: Mapping[str, Any]) -> AttackResult:
        """Read the result of a row."""
        return AttackResult.from_row(row)

    def reject(self, bad: Rejected) -> AttackResult:
        """Make the error of an unusable row."""
        return AttackResult(bad.id, "error", None, {}, {}, seed=self.ready.request.seed, reason=bad.reason)

    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[AttackResult, None, None]:
        """Attack the missing examples at once, in several processes if requested."""
        ready = self.ready
        examples = [example for example in ready.sample.align_labels(ready.victim.labels) if example.id in missing]
        attacked = self._by_workers if ready.request.processes is not None else self._attack_texts
        queries = partial(ready.observer.queries, file.key)
        if not ready.request.trace:
            return attacked(examples, None, queries, effort)
        trace = Trace(file.trace_path)
        trace.begin({ready.key(example): example.id for example in examples}, list(journal.rows))
        found = attacked(examples, trace.note, queries, effort)

        def results() -> Generator[AttackResult, None, None]:
            with trace, contextlib.closing(found):
                for result in found:
                    trace.flush()  # A row has its queries, whenever the process is killed.
                    yield result

        return results()

    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        """Ids in the order of the sample."""
        return ids(self.ready.first(header["n"]))

    def settle(self, file: AttackFile, results: Sequence[AttackResult]) -> None:
        """Sort the queries of the trace by example."""
        if self.ready.request.trace:
            Trace(file.trace_path).order([result.id for result in results])

    def conclude(self, file: AttackFile, header: Mapping[str, Any], results: Sequence[AttackResult]) -> dict[str, Any]:
        """Compute the figures, and those of the evaded detector."""
        del file, header
        ready = self.ready
        return {
            "threshold": ready.threshold,
            "detection": None if ready.detector is None else detect(ready.detector, results).to_json(),
            "summary": summarise(results, ready.threshold).to_json(),
        }

    def _attack_texts(
        self, examples: list[Example], note: Note | None, queries: Callable[[int], None], effort: dict[str, float]
    ) -> Generator[AttackResult, None, None]:
        ready, name = self.ready, self.name
        models = ready.companions.of(ready.model_names(name))
        settings = ready.attack_settings(name, self.search_draws, note)
        run = ready.methods[name](ready.victim, examples, settings, **models)
        run.engine.after_round = lambda: queries(run.statistics.scores.logical)

        def results() -> Generator[AttackResult, None, None]:
            yield from run
            effort.update(_flatten_counters(run.statistics))

        return results()

    def _by_workers(
        self, examples: list[Example], note: Note | None, queries: Callable[[int], None], effort: dict[str, float]
    ) -> Generator[AttackResult, None, None]:
        watch = AttackWatch(queries, note)
        yield from attack_by_workers(self.ready, self.name, self.search_draws, examples, watch)
        effort["cpu_s"] += watch.cpu_s
        for statistics in watch.statistics:
            effort.update(sum_effort(effort, _flatten_counters(statistics)))


@dataclass(eq=False)
class _GradientAttack(_Attack):
    """One gradient attack of the command."""

    ready: PreparedGradientAttacks

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Describe also the space of the attack."""
        return {**super().about(known), **self.ready.facts()}

    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[AttackResult, None, None]:
        """Attack the cohorts that hold missing rows."""
        del journal, effort
        for number, cohort in self.ready.cohorts(missing):
            made = self.ready.attack_cohort(self.name, cohort)
            self.keep(file, number, made)
            yield from (result for result in made.results if result.id in missing)

    def keep(self, file: AttackFile, number: int, made: Cohort) -> None:
        """Keep the points of a cohort, before its rows are written."""


@dataclass(eq=False)
class _ImageAttack(_GradientAttack):
    """One gradient attack on images, which are kept."""

    def find_lost(self, file: AttackFile, results: Sequence[AttackResult]) -> set[str]:
        """Ids of results whose image is missing."""
        return AdversarialImageFile(file).find_lost(results)

    def keep(self, file: AttackFile, number: int, made: Cohort) -> None:
        """Keep the images of a cohort."""
        AdversarialImageFile(file).keep(number, made.images)

    def settle(self, file: AttackFile, results: Sequence[AttackResult]) -> None:
        """Write one file of all images, in the order of the results."""
        AdversarialImageFile(file).finish(self.ready.aligned, results)


def _flatten_counters(statistics: Any) -> dict[str, float]:
    """The counters of the engine, without nesting."""
    found: dict[str, float] = {}
    for key, value in to_plain(statistics).items():
        if isinstance(value, Mapping):
            found |= {name: number for name, number in value.items() if isinstance(number, int | float)}
        elif isinstance(value, int | float) and key != "examples":
            found[key] = value
    return found
