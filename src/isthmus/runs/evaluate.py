"""`evaluate`: a model on static sets, one row per example, and continue what was interrupted.

Everything that can be wrong with the command is found before the model is loaded. Rows are written as they come; the
same command again asks the model only for what has no row, and ends with the same file. Where everything has a row the
model is not even loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

import isthmus
from isthmus.core.errors import DataError, UsageError, VictimTimeout
from isthmus.core.files import write_json
from isthmus.runs.effort import measured, summed
from isthmus.runs.evaluated import summarise
from isthmus.runs.evaluating import EvaluateRequest, Ready
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder
from isthmus.runs.journal import Journal
from isthmus.runs.labelcheck import check_labels, judge, suspicion
from isthmus.runs.observer import Observer, Row, Silent
from isthmus.runs.prepared import ids
from isthmus.runs.provenance import machine, now, versions
from isthmus.runs.sets import EvaluationSet
from isthmus.runs.settings import plain, short_hash
from isthmus.runs.victims import names_in_data, numbering, shown_labels
from isthmus.runs.ways import Seen

if TYPE_CHECKING:
    from isthmus.core.types import Example
    from isthmus.data import Dataset

__all__ = ["EvaluateReport", "EvaluateRequest", "EvaluationOutcome", "evaluate"]

_AT_ONCE = 256


@dataclass(frozen=True)
class EvaluationOutcome:
    """Rows of one set, and the header with the figures of just these rows."""

    file: AttackFile
    rows: tuple[Row, ...]
    header: Mapping[str, Any]
    asked: int
    """Examples the model was asked for now; the others had their rows."""


@dataclass(frozen=True)
class EvaluateReport:
    """What the command did."""

    folder: RunFolder
    outcomes: tuple[EvaluationOutcome, ...]


def evaluate(request: EvaluateRequest, observer: Observer | None = None) -> EvaluateReport:
    """Evaluate the model on every set of the request."""
    ready = Ready(request, observer or Silent())
    ready.check()
    evaluations = [_Evaluation(ready, part) for part in ready.sets]
    for each in evaluations:
        each.check()
    return EvaluateReport(ready.folder, tuple(each.run() for each in evaluations))


@dataclass(frozen=True)
class _Evaluation:
    """One set of the command."""

    ready: Ready
    part: EvaluationSet

    def check(self) -> None:
        """Where there is something to ask for, find out whether set and model fit before any set is begun."""
        there = {str(row.get("id")) for row in self.file.rows()}
        if self.ready.request.retry_errors or not there.issuperset(ids(self.sample)):
            _ = self.aligned
            self._check_fields()

    def run(self) -> EvaluationOutcome:
        """Ask for what has no row yet, put the rows in the order of the set, and compute the figures."""
        ready, settings, file = self.ready, self.ready.settings(self.part), self.file
        chosen = set(ids(self.sample))
        asked = [key for key in ids(self.part.data) if key in chosen]
        with Journal(file.rows_path) as journal:
            known = file.header() if file.header_path.exists() else {}
            if known.get("hash") != short_hash(settings):
                known = {}  # A name without any row was free.
            if ready.request.retry_errors:
                journal.forget([key for key, row in journal.rows.items() if row.get("outcome") == "error"])
            missing = {key for key in asked if key not in journal.rows}
            if not missing and known.get("summary"):
                rows = tuple(journal.rows[key] for key in asked)
                return EvaluationOutcome(file, rows, _for(known, rows, len(journal)), 0)
            if not journal.rows:
                self._check_labels()
            header = self._header(settings, known)
            write_json(file.header_path, header)
            effort = self._ask(file, journal, missing)
            journal.finish(ids(self.part.data))
            every = list(journal.rows.values())
            rows = tuple(journal.rows[key] for key in asked)
        header |= {"effort": summed(known.get("effort"), effort), "suspicion": self._suspicion(every)}
        header["summary"] = _summary(header, every)
        write_json(file.header_path, header)
        return EvaluationOutcome(file, rows, _for(header, rows, len(every)), len(missing))

    @cached_property
    def file(self) -> AttackFile:
        """Where its rows belong."""
        return self.ready.folder.evaluation_file(self.part.name, self.ready.settings(self.part))

    @cached_property
    def sample(self) -> Dataset:
        """The examples asked for."""
        data, n = self.part.data, self.ready.request.n
        return data if n is None else data.sample(n, self.ready.request.seed)

    @cached_property
    def aligned(self) -> Dataset:
        """The set with labels in the model's numbering."""
        labels = self.ready.victim.labels
        try:
            return self.part.data.aligned(labels)
        except DataError as error:
            raise DataError(
                f"{self.part.source} calls its labels {', '.join(self.part.data.labels[:12])}, the model its outputs "
                f"{', '.join(labels[:12])}: name the model's outputs as the set calls them, in order, with --labels"
            ) from error

    @cached_property
    def names(self) -> list[str]:
        """What the set calls each of the model's classes."""
        return names_in_data(self.part.data, self.ready.victim.labels, numbering(self.part.data, self.aligned))

    def _check_fields(self) -> None:
        reads, has = getattr(self.ready.victim, "fields", None), self.part.data.fields
        if reads is not None and len(reads) != len(has):
            raise UsageError(
                f"{self.part.source} has {len(has)} text fields ({', '.join(has)}), the model reads {len(reads)} "
                f"({', '.join(reads)}): name the columns with --text or --pair"
            )

    def _check_labels(self) -> None:
        """Stop if the model's labels cannot be those of the set, as far as untouched texts tell."""
        clean, ready = self.part.clean(), self.ready
        if clean is None or not ready.request.label_check or self._names_agree():
            return
        try:
            check_labels(ready.victim, clean.aligned(ready.victim.labels), ready.request.seed, self.names)
        except VictimTimeout as error:
            ready.observer.note(f"labels not checked: {error}")

    def _names_agree(self) -> bool:
        """Whether the labels were matched by the names a run was trained with: a bad model is then just that."""
        run = self.ready.source.run
        if run is None or run.record().training is None or self.ready.request.labels is not None:
            return False
        known = {label.casefold() for label in self.ready.victim.labels}
        return known.issuperset(label.casefold() for label in self.part.data.labels)

    def _suspicion(self, rows: Sequence[Row]) -> str | None:
        """A warning where texts of unknown origin are answered as if the classes were in another order.

        An adversarial set may well be answered worse than by chance, so nothing is stopped for it.
        """
        answered = [row for row in rows if row.get("scores")]
        if self.part.clean() is not None or not answered or not self.ready.request.label_check or self._names_agree():
            return None
        labels = self.ready.victim.labels
        scores = np.array([row["scores"][self.ready.ways.headline] for row in answered], np.float32)
        check = judge(scores, np.array([row["label"] for row in answered], np.int64), len(labels))
        if not check.is_suspicious or check.renaming is None:
            return None
        return suspicion(check, labels, self.names)

    def _header(self, settings: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        ready = self.ready
        return {
            "schema": SCHEMA,
            "isthmus": isthmus.__version__,
            "evaluation": self.part.name,
            "hash": short_hash(settings),
            "settings": plain(settings),
            "set": self.part.to_json(),
            "labels": shown_labels(ready.victim.labels, self.names),
            "ways": list(ready.ways.names),
            "headline": ready.ways.headline,
            "draws": ready.request.draws,
            "model": ready.source.shown,
            "created": known.get("created") or now(),
            "command": ready.request.command,
            "versions": versions(),
            "machine": machine(getattr(ready.victim, "device_type", None)),
            "effort": known.get("effort"),
        }

    def _ask(self, file: AttackFile, journal: Journal, missing: set[str]) -> dict[str, float]:
        """Score the examples in `missing`, some at a time, and say what it cost."""
        observer, examples = self.ready.observer, [example for example in self.aligned if example.id in missing]
        observer.begin(file.key, len(missing) + len(journal), list(journal.rows.values()))
        effort: dict[str, float] = {"examples": len(missing), "wall_s": 0.0, "cpu_s": 0.0}

        def write(row: dict[str, Any]) -> None:
            journal.append(row)
            observer.row(file.key, row)

        for bad in self.part.data.rejected:
            if bad.id in missing:
                write({"id": bad.id, "outcome": "error", "label": None, "texts": {}, "reason": bad.reason})
        with measured(effort):
            for at in range(0, len(examples), _AT_ONCE):
                first = not any(row.get("scores") for row in journal.rows.values())
                for row in self._rows(examples[at : at + _AT_ONCE], first):
                    write(row)
        observer.end(file.key)
        return effort

    def _rows(self, examples: Sequence[Example], first: bool) -> Iterator[dict[str, Any]]:
        ways, originals = self.ready.ways, self.part.originals
        seen = ways.see([example.texts for example in examples], [example.id for example in examples], first=first)
        paired = [example for example in examples if example.id in originals]
        texts, keys = [originals[each.id] for each in paired], [f"{each.id}:original" for each in paired]
        before = ways.see(texts, keys) if paired else Seen({})
        place_of = {each.id: place for place, each in enumerate(paired)}
        for place, example in enumerate(examples):
            answer = _answer(seen, place)
            row = {"id": example.id, "outcome": "error", "label": example.label, "texts": example.texts, **answer}
            if answer["scores"]:
                prediction = int(np.argmax(answer["scores"][ways.headline]))
                row |= {"outcome": "right" if prediction == example.label else "wrong", "prediction": prediction}
            if example.id in place_of:
                row["original"] = {"texts": dict(originals[example.id]), **_answer(before, place_of[example.id])}
            yield row


def _answer(seen: Seen, place: int) -> dict[str, Any]:
    """Scores of one text in every way, to seven digits; none, and why, where the model did not answer."""
    if place in seen.reasons:
        return {"scores": None, "reason": seen.reasons[place]}
    return {"scores": {way: [float(f"{p:.7g}") for p in scores[place]] for way, scores in seen.scores.items()}}


def _summary(header: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return summarise(rows, header["labels"], header["ways"], header["headline"])


def _for(header: Mapping[str, Any], rows: Sequence[Row], every: int) -> Mapping[str, Any]:
    """The header with the figures of `rows`, where a sample smaller than the file was asked for."""
    return header if len(rows) == every else {**header, "summary": _summary(header, rows)}
