"""Evaluations on the page and in the terminal: one line per set, with its details below.

A stochastic model has a line for every way it was seen in, an adversarial set one for the texts it was made from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from isthmus.core.records import part_of
from isthmus.core.statistics import Interval, wilson
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds
from isthmus.runs.folder import RunFolder
from isthmus.summaries.balance import majority_warning, with_misses
from isthmus.summaries.evaluation import (
    AccuracyDifference,
    CalibrationSummary,
    ClassAccuracy,
    EvaluationSummary,
    WayFigures,
)
from isthmus.summaries.questions import QuestionSummary
from isthmus.verbs.evaluate.speed import Speed
from isthmus.verbs.evaluate.ways import name_way as way_name

_MOST_CLASSES = 8
_UNKNOWN = Interval(math.nan, 0.0, 1.0)


@dataclass(frozen=True)
class EvaluationLine:
    """One line of the table."""

    name: str
    note: str
    is_part: bool
    """Whether it belongs to the set in a line above."""
    figures: WayFigures


@dataclass(frozen=True)
class EvaluationView:
    """One set the model was evaluated on."""

    key: str
    header: Mapping[str, Any]

    @cached_property
    def summary(self) -> EvaluationSummary | QuestionSummary | None:
        """The figures; None while it is running."""
        found = part_of(self.header, "summary")
        if not found:
            return None
        return QuestionSummary.from_json(found) if self.answers_questions else EvaluationSummary.from_json(found)

    @property
    def is_finished(self) -> bool:
        """Whether its figures are there."""
        return self.summary is not None

    @property
    def texts(self) -> EvaluationSummary | None:
        """The figures of a classifier; None while it is running, and of question answering."""
        return self.summary if isinstance(self.summary, EvaluationSummary) else None

    @property
    def ways(self) -> tuple[str, ...]:
        """The inference modes that were evaluated, that of the saved model first."""
        names = list(self.texts.texts.ways) if self.texts else [str(way) for way in self.header.get("ways") or ()]
        return tuple(sorted(names, key=lambda way: way != self.headline))

    @property
    def headline(self) -> str:
        """The inference mode of the saved model."""
        return self.texts.headline if self.texts else str(self.header.get("headline") or "model")

    @property
    def answers_questions(self) -> bool:
        """Whether this is question answering, which has other figures."""
        return self.header.get("task") == "qa"

    @property
    def rates(self) -> dict[str, Interval]:
        """The rates for `--fail-under`: of the saved model and, for adversarial questions, of the worst variants."""
        if self.answers_questions:
            found = self.summary.hardest if isinstance(self.summary, QuestionSummary) else None
            return {
                "exact_match": found.exact_match if found else _UNKNOWN,
                "f1": found.f1 if found else _UNKNOWN,
            }
        return {
            "accuracy": self.texts.accuracy if self.texts else _UNKNOWN,
            "balanced_accuracy": self.texts.balanced_accuracy if self.texts else _UNKNOWN,
        }

    @cached_property
    def speed(self) -> Speed | None:
        """Speed of the model; None if nothing was timed."""
        found = self.header.get("speed")
        return Speed.from_json(found) if isinstance(found, Mapping) else None

    @property
    def price_per_hour(self) -> float | None:
        """Price of the machine, as far as it was given."""
        found = self.header.get("price_per_hour")
        return found if isinstance(found, int | float) else None

    @property
    def cost_per_1000(self) -> float | None:
        """Cost of 1,000 texts; None without a price, or if nothing was timed."""
        return self.speed.cost_of_thousand(self.price_per_hour) if self.speed else None

    @property
    def errors(self) -> int:
        """Texts without an answer."""
        return self.summary.errors if self.summary else 0

    def way(self, name: str) -> str:
        """The readable name of an inference mode."""
        return way_name(name, int(self.header.get("draws") or 0))

    def lines(self) -> list[EvaluationLine]:
        """The set, the other inference modes, and the originals."""
        if self.texts is None:
            return []
        ways, original = self.texts.texts.ways, self.texts.original
        note, name = f"n {self.texts.answered:,}", self.way(self.headline)
        found = [_make_line(self.key, f"{note}, {name}" if name else note, False, self.texts.own)]
        found += [_make_line(self.way(way), "", True, ways[way]) for way in self.ways[1:]]
        if original is not None:
            found.append(_make_line("the originals", f"n {original.answered:,}", True, original.ways[self.headline]))
        return found

    def classes(self) -> str:
        """Accuracy by class, in words."""
        parts = []
        for each in self._classes[:_MOST_CLASSES]:
            bounds = percent_bounds(each.accuracy, unit=False)
            parts.append(f"{each.label} {percent(each.accuracy.estimate)} ({bounds}, n {each.n})")
        left = len(self._classes) - len(parts)
        return "; ".join(parts) + (f"; and {left} more classes" if left else "")

    @property
    def class_names(self) -> dict[int, str]:
        """The classes in the set, numbered as in `recall`."""
        return {place: each.label for place, each in enumerate(self._classes)}

    def recall(self, place: int) -> Interval:
        """The true-positive rate of a class."""
        return self._classes[place].accuracy

    def at_worst(self, rate: str, place: int | None = None) -> Interval:
        """A rate if every text without an answer were wrong, and of the class where that costs most."""
        if self.answers_questions:
            return self.rates[rate]  # Questions without an answer are not the model's doing: the data lack one.
        counts = [(round(each.accuracy.estimate * each.n), each.n) for each in self._classes]
        if rate == "balanced_accuracy":
            return with_misses(counts, self.errors)
        if rate == "tpr" and place is not None:
            return wilson(counts[place][0], counts[place][1] + self.errors)
        return wilson(sum(k for k, _ in counts), sum(n for _, n in counts) + self.errors)

    def balance(self) -> str:
        """Balanced accuracy and the share of the majority class, in words; empty if there is one class only."""
        most = self.texts.own.majority if self.texts else None
        if self.texts is None or most is None or len(self._classes) < 2:
            return ""
        found = self.texts.balanced_accuracy
        return (
            f"balanced accuracy {percent(found.estimate)} ({percent_bounds(found, unit=False)}); always predicting "
            f"{most.label} has accuracy {percent(most.share)}"
        )

    def constant(self) -> str:
        """Why accuracy says little here; empty if the model separates the classes."""
        own = self.texts.own if self.texts else None
        if own is None or own.majority is None or not own.classes:
            return ""
        label = own.majority.label
        if len(own.classes) == 1:
            return f"Every example is of class {label}: a model that always predicts {label} would score 100 %."
        return majority_warning(
            own.only_prediction, own.accuracy.estimate, label, own.majority.share, "balanced_accuracy"
        )

    @property
    def _classes(self) -> Sequence[ClassAccuracy]:
        return self.texts.own.classes if self.texts else ()

    def differences(self) -> list[str]:
        """Accuracy on adversarial texts minus that on their originals, in words, for every inference mode."""
        found = []
        for way in self.ways:
            difference = self.texts.difference.get(way) if self.texts else None
            if difference is not None and difference.n:
                named = f" ({self.way(way)})" if self.way(way) else ""
                found.append(f"{self.key}{named}: {_format_difference(difference)}")
        return found

    def panels(self) -> list[tuple[str, CalibrationSummary]]:
        """Name and calibration of every reliability diagram."""
        if self.texts is None:
            return []
        found = [(self.way(way), self.texts.texts.ways[way].calibration) for way in self.ways]
        if self.texts.original is not None:
            (name, own), *others = found
            found = [
                (" · ".join(part for part in ("adversarial", name) if part), own),
                ("the originals", self.texts.original.ways[self.headline].calibration),
                *others,
            ]
        return [(name, each) for name, each in found if each.bins]

    @property
    def origin(self) -> str:
        """Where the texts of an attack come from, in words; empty for other sets."""
        about = part_of(self.header, "set")
        return f"{self.key}: {_origin(about)}" if about.get("kind") == "attack" else ""

    def warnings(self) -> list[str]:
        """Warnings that a reader needs before trusting the figures."""
        if self.summary is None:
            return [f"{self.key} is not finished: run the same command to resume."]
        found = []
        if self.errors:
            reason = self.summary.reasons[0].reason if self.summary.reasons else "unknown"
            what = "questions could not be used" if self.answers_questions else "examples had no answer"
            found.append(
                f"{self.key}: {self.errors} of {self.summary.n} {what} and are excluded from all figures. "
                f"Most frequent: {reason[:200]}"
            )
        if self.constant():
            found.append(f"{self.key}: {self.constant()}")
        suspicion = self.header.get("suspicion")
        return [*found, f"{self.key}: {suspicion}"] if suspicion else found


def _origin(about: Mapping[str, Any]) -> str:
    attack = str(about.get("attack") or "an attack")
    what = f"last texts of {attack}" if about.get("rows") == "all" else f"successes of {attack}"
    model = f" on {about['attacked_model']}" if about.get("attacked_model") else ""
    rows = f", from {about['rows_of_attack']:,} rows" if about.get("rows_of_attack") else ""
    return f"{what}{model}{rows}."


def _format_difference(difference: AccuracyDifference) -> str:
    interval, p_value = difference.accuracy, difference.p_value
    span = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
    shown = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    return (
        f"{100 * interval.estimate:+.1f} points ({span}) compared with the same {difference.n:,} originals: "
        f"{difference.lost} correct predictions lost, {difference.won} gained, McNemar {shown}"
    )


def _make_line(name: str, note: str, is_part: bool, figures: WayFigures) -> EvaluationLine:
    return EvaluationLine(visible(name, everything=True), note, is_part, figures)


@dataclass(frozen=True)
class Pooled:
    """Several splits of one set together, like the three rounds of ANLI."""

    name: str
    splits: tuple[str, ...]
    n: int
    accuracy: Interval

    def __str__(self) -> str:
        shown = f"{percent(self.accuracy.estimate)} ({percent_bounds(self.accuracy, unit=False)}, n {self.n:,})"
        return f"{self.name}, {', '.join(self.splits)} together: {shown}"


def pool_splits(views: Sequence[EvaluationView]) -> list[Pooled]:
    """Accuracy over the splits of every set with more than one split evaluated in the same settings."""
    groups: dict[str, list[EvaluationView]] = {}
    for view in views:
        about = part_of(view.header, "set")
        is_held_out = about.get("kind") in ("data", "paired") and about.get("split") != "train"
        # With other settings the same texts would count twice.
        if view.is_finished and not view.answers_questions and is_held_out and "@" not in view.key:
            groups.setdefault(str(about.get("source")), []).append(view)
    found = []
    for together in groups.values():
        abouts = [part_of(view.header, "set") for view in together]
        splits = tuple(str(about.get("split")) for about in abouts)
        if len(set(splits)) == len(splits) > 1:
            counts = [view.summary.answered if view.summary else 0 for view in together]
            accuracies = [view.rates["accuracy"].estimate for view in together]
            right = sum(round(rate * n) for rate, n in zip(accuracies, counts, strict=True) if n)
            name = visible(str(abouts[0].get("data")), everything=True)
            found.append(Pooled(name, splits, sum(counts), wilson(right, sum(counts))))
    return found


def read_evaluations(folder: RunFolder) -> tuple[EvaluationView, ...]:
    """Every evaluation of a run, the model's own data first."""
    views = [EvaluationView(file.key, file.header()) for file in folder.evaluation_files()]
    return tuple(sorted(views, key=lambda view: part_of(view.header, "set").get("kind") != "own"))
