"""Evaluations on the page and in the terminal: one line per set, with its details below.

A stochastic model has a line for every way it was seen in, an adversarial set one for the texts it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.records import part_of
from isthmus.core.statistics import Interval, wilson
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds, read_interval
from isthmus.runs.folder import RunFolder
from isthmus.summaries.balance import majority_warning, with_misses
from isthmus.verbs.evaluate.speed import cost_of_thousand
from isthmus.verbs.evaluate.ways import name_way as way_name

_MOST_CLASSES = 8


@dataclass(frozen=True)
class EvaluationLine:
    """One line of the table."""

    name: str
    note: str
    is_part: bool
    """Whether it belongs to the set in a line above."""
    accuracy: Interval
    ece: Interval
    confidence: Interval
    cross_entropy: Interval
    brier: Interval


@dataclass(frozen=True)
class EvaluationView:
    """One set the model was evaluated on."""

    key: str
    header: Mapping[str, Any]

    @property
    def summary(self) -> Mapping[str, Any]:
        """The figures; empty while it is running."""
        return part_of(self.header, "summary")

    @property
    def is_finished(self) -> bool:
        """Whether its figures are there."""
        return bool(self.summary)

    @property
    def ways(self) -> tuple[str, ...]:
        """The inference modes that were evaluated, that of the saved model first."""
        names = [str(way) for way in self.header.get("ways") or ()]
        return tuple(sorted(names, key=lambda way: way != self.headline))

    @property
    def headline(self) -> str:
        """The inference mode of the saved model."""
        return str(self.header.get("headline") or "model")

    @property
    def answers_questions(self) -> bool:
        """Whether this is question answering, which has other figures."""
        return self.header.get("task") == "qa"

    @property
    def rates(self) -> dict[str, Interval]:
        """The rates for `--fail-under`: of the saved model and, for adversarial questions, of the worst variants."""
        if self.answers_questions:
            parts = part_of(self.summary, "questions")
            hardest = part_of(parts, "worst") or part_of(parts, "overall")
            return {name: read_interval(hardest.get(name)) for name in ("exact_match", "f1")}
        own = _figures_of(self.summary, self.headline)
        return {name: read_interval(own.get(name)) for name in ("accuracy", "balanced_accuracy")}

    @property
    def speed(self) -> dict[str, Any] | None:
        """Speed of the model, and the cost of 1,000 texts if a price is known; None if nothing was timed."""
        found = self.header.get("speed")
        if not isinstance(found, Mapping):
            return None
        price = self.header.get("price_per_hour")
        return {**found, "price_per_hour": price, "cost_per_1000": cost_of_thousand(found, price)}

    @property
    def errors(self) -> int:
        """Texts without an answer."""
        return int(self.summary.get("errors") or 0)

    def way(self, name: str) -> str:
        """The readable name of an inference mode."""
        return way_name(name, int(self.header.get("draws") or 0))

    def lines(self) -> list[EvaluationLine]:
        """The set, the other inference modes, and the originals."""
        note = f"n {self.summary.get('answered', 0):,}"
        name = self.way(self.headline)
        found = [
            _make_line(self.key, f"{note}, {name}" if name else note, False, _figures_of(self.summary, self.headline))
        ]
        found += [_make_line(self.way(way), "", True, _figures_of(self.summary, way)) for way in self.ways[1:]]
        original = part_of(self.summary, "original")
        if original:
            note = f"n {original.get('answered', 0):,}"
            found.append(_make_line("the originals", note, True, _figures_of(original, self.headline)))
        return found

    def classes(self) -> str:
        """Accuracy by class, in words."""
        classes = self._classes()
        parts = []
        for each in classes[:_MOST_CLASSES]:
            interval = read_interval(each.get("accuracy"))
            shown = f"{percent(interval.estimate)} ({percent_bounds(interval, unit=False)}, n {each.get('n')})"
            parts.append(f"{each.get('label')} {shown}")
        left = len(classes) - len(parts)
        return "; ".join(parts) + (f"; and {left} more classes" if left else "")

    @property
    def class_names(self) -> dict[int, str]:
        """The classes in the set, numbered as in `recall`."""
        return {place: str(each.get("label")) for place, each in enumerate(self._classes())}

    def recall(self, place: int) -> Interval:
        """The true-positive rate of a class."""
        return read_interval(self._classes()[place].get("accuracy"))

    def at_worst(self, rate: str, place: int | None = None) -> Interval:
        """A rate if every text without an answer were wrong, and of the class where that costs most."""
        if self.answers_questions:
            return self.rates[rate]  # Questions without an answer are not the model's doing: the data lack one.
        counts = [
            (round(read_interval(each.get("accuracy")).estimate * each["n"]), each["n"]) for each in self._classes()
        ]
        if rate == "balanced_accuracy":
            return with_misses(counts, self.errors)
        if rate == "tpr" and place is not None:
            return wilson(counts[place][0], counts[place][1] + self.errors)
        return wilson(sum(k for k, _ in counts), sum(n for _, n in counts) + self.errors)

    def balance(self) -> str:
        """Balanced accuracy and the share of the majority class, in words; empty if there is one class only."""
        own = _figures_of(self.summary, self.headline)
        most, found = part_of(own, "majority"), read_interval(own.get("balanced_accuracy"))
        if not most or len(self._classes()) < 2:
            return ""
        return (
            f"balanced accuracy {percent(found.estimate)} ({percent_bounds(found, unit=False)}); always predicting "
            f"{most.get('label')} has accuracy {percent(most.get('share'))}"
        )

    def constant(self) -> str:
        """Why accuracy says little here; empty if the model separates the classes."""
        own = _figures_of(self.summary, self.headline)
        most, classes = part_of(own, "majority"), self._classes()
        if not most or not classes:
            return ""
        label = str(most.get("label"))
        if len(classes) == 1:
            return f"Every example is of class {label}: a model that always predicts {label} would score 100 %."
        only = own.get("only_prediction")
        return majority_warning(
            None if only is None else str(only),
            self.rates["accuracy"].estimate,
            label,
            float(most.get("share") or 0.0),
            "balanced_accuracy",
        )

    def _classes(self) -> Sequence[Mapping[str, Any]]:
        return _figures_of(self.summary, self.headline).get("classes") or ()

    def differences(self) -> list[str]:
        """Accuracy on adversarial texts minus that on their originals, in words, for every inference mode."""
        found = []
        for way in self.ways:
            difference = part_of(part_of(self.summary, "difference"), way)
            if difference.get("n"):
                named = f" ({self.way(way)})" if self.way(way) else ""
                found.append(f"{self.key}{named}: {_format_difference(difference)}")
        return found

    def panels(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Name and calibration of every reliability diagram."""
        found = [(self.way(way), part_of(_figures_of(self.summary, way), "calibration")) for way in self.ways]
        original = part_of(self.summary, "original")
        if original:
            (name, own), *others = found
            clean = part_of(_figures_of(original, self.headline), "calibration")
            found = [
                (" · ".join(part for part in ("adversarial", name) if part), own),
                ("the originals", clean),
                *others,
            ]
        return [(name, each) for name, each in found if each.get("bins")]

    @property
    def origin(self) -> str:
        """Where the texts of an attack come from, in words; empty for other sets."""
        about = part_of(self.header, "set")
        return f"{self.key}: {_origin(about)}" if about.get("kind") == "attack" else ""

    def warnings(self) -> list[str]:
        """Warnings that a reader needs before trusting the figures."""
        if not self.is_finished:
            return [f"{self.key} is not finished: run the same command to resume."]
        found = []
        if self.errors:
            reasons = self.summary.get("reasons") or [{}]
            what = "questions could not be used" if self.answers_questions else "examples had no answer"
            found.append(
                f"{self.key}: {self.errors} of {self.summary.get('n')} {what} and are excluded from all figures. "
                f"Most frequent: {str(reasons[0].get('reason', 'unknown'))[:200]}"
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


def _format_difference(difference: Mapping[str, Any]) -> str:
    interval = read_interval(difference.get("accuracy"))
    points = 100 * interval.estimate
    span = f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}"
    p_value = float(difference.get("p_value") or 0.0)
    shown = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    return (
        f"{points:+.1f} points ({span}) compared with the same {difference['n']:,} originals: "
        f"{difference.get('lost')} correct predictions lost, {difference.get('won')} gained, McNemar {shown}"
    )


def _make_line(name: str, note: str, is_part: bool, figures: Mapping[str, Any]) -> EvaluationLine:
    values = {key: read_interval(figures.get(key)) for key in ("accuracy", "confidence", "cross_entropy", "brier")}
    ece = read_interval(part_of(figures, "calibration").get("ece"))
    return EvaluationLine(visible(name, everything=True), note, is_part, ece=ece, **values)


def _figures_of(side: Mapping[str, Any], way: str) -> Mapping[str, Any]:
    return part_of(part_of(side, "ways"), way)


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
            counts = [int(view.summary.get("answered") or 0) for view in together]
            accuracies = [view.rates["accuracy"].estimate for view in together]
            right = sum(round(rate * n) for rate, n in zip(accuracies, counts, strict=True) if n)
            name = visible(str(abouts[0].get("data")), everything=True)
            found.append(Pooled(name, splits, sum(counts), wilson(right, sum(counts))))
    return found


def read_evaluations(folder: RunFolder) -> tuple[EvaluationView, ...]:
    """Every evaluation of a run, the model's own data first."""
    views = [EvaluationView(file.key, file.header()) for file in folder.evaluation_files()]
    return tuple(sorted(views, key=lambda view: part_of(view.header, "set").get("kind") != "own"))
