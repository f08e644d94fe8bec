"""Detectors: which texts are flagged, and the words for an attack that wants one class to pass.

Of a detector no prediction is "correct": it flags a text or lets it pass. What counts is the share of its class that is
caught, before and after the attack, at the false-positive rate it runs at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.statistics import Interval
from isthmus.report.attack.view import AttackView
from isthmus.report.numerals import percent, percent_bounds


@dataclass(frozen=True)
class DetectorFigures:
    """What an ended attack says of a detector."""

    label: int | None
    threshold: float | None
    at_fpr: float | None
    negatives: int
    """Clean texts of other classes that were scored."""
    negatives_without_answer: int
    negative_scores: tuple[float, ...]
    caught_before: Interval
    caught_after: Interval
    fpr: Interval
    auc_before: float | None

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> DetectorFigures:
        """The figures as a header holds them."""
        label = found.get("label")
        return cls(
            label if isinstance(label, int) else None,
            _number(found.get("threshold")),
            _number(found.get("at_fpr")),
            int(found.get("negatives") or 0),
            int(found.get("negatives_without_answer") or 0),
            tuple(float(score) for score in found.get("negative_scores") or ()),
            Interval.from_json(found.get("tpr_before")),
            Interval.from_json(found.get("tpr_after")),
            Interval.from_json(found.get("fpr")),
            _number(found.get("auc_before")),
        )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def figures_of(view: AttackView) -> DetectorFigures | None:
    """The detector's figures; None of another goal, and until the attack has ended."""
    return None if view.detection is None else DetectorFigures.read(view.detection)


def is_evasion(view: AttackView) -> bool:
    """Whether the goal was to get one class past a detector."""
    kind = view.goal.get("kind")
    return kind == "evasion" or (
        kind != "targeted" and (view.detection is not None or bool(view.goal.get("from_label")))
    )


def name_detected_class(view: AttackView) -> str:
    """The class that the detector looks for."""
    number = _find_detected_number(view)
    return view.label(number) if number is not None else str(view.goal.get("from_label") or "?")


def _find_detected_number(view: AttackView) -> int | None:
    """The number of that class; the header has it once the attack has ended."""
    found = figures_of(view)
    if found is not None and found.label is not None:
        return found.label
    name = view.goal.get("from_label")
    return view.labels.index(name) if name in view.labels else None


def describe_answer(view: AttackView, prediction: int | None, scores: Sequence[float]) -> tuple[str, float | None]:
    """The model's prediction for a text, and the score that decides it."""
    number = _find_detected_number(view) if is_evasion(view) else prediction
    score = None
    if number is not None and 0 <= number < len(scores):
        score = float(scores[number])
    if not is_evasion(view):
        return view.label(prediction), score
    if prediction is None or number is None:
        return "no answer", score
    flagged = prediction == number if view.threshold is None or score is None else score >= view.threshold
    return "flagged" if flagged else "passed", score


def threshold(view: AttackView) -> str:
    """The score from which a text is flagged, and how it was chosen."""
    found = figures_of(view)
    value = view.threshold if found is None or found.threshold is None else found.threshold
    if value is None:
        return f"flagged if {name_detected_class(view)} is the most likely class"
    chosen = None if found is None else found.at_fpr
    why = (
        f", chosen for a false-positive rate of {percent(chosen)} on clean development data" if chosen else ", as given"
    )
    return f"flagged at a score of {value:.4g} or more{why}"


def false_positives(view: AttackView) -> str:
    """``11.2 % (6.9–17.6)``: the false-positive rate; empty until it is known."""
    found = figures_of(view)
    if found is None or math.isnan(found.fpr.estimate):
        return ""
    return f"{percent(found.fpr.estimate)} ({percent_bounds(found.fpr, unit=False)})"


def describe_others(found: DetectorFigures) -> str:
    """``134 clean texts of other classes``: what the false-positive rate was measured on."""
    silent = found.negatives_without_answer
    return f"{found.negatives} clean texts of other classes" + (f"; {silent} without an answer" if silent else "")


@dataclass(frozen=True)
class RateNames:
    """The words for the two rates of an attack."""

    before: str
    after: str
    kept: str
    """What a text is that withstood the attack."""
    axis: str
    """Both rates in one."""

    @property
    def rate_after(self) -> str:
        """The second rate in full: ``robust accuracy``, or ``share caught after the attack``."""
        return self.after if self.axis == "accuracy" else f"{self.axis} after the attack"


OF_PREDICTIONS = RateNames("clean accuracy", "robust accuracy", "robust", "accuracy")
OF_DETECTORS = RateNames("caught before", "caught after", "caught", "share caught")
OF_BOTH = RateNames("before", "after", "robust", "accuracy or share caught")


def vocabulary(views: Sequence[AttackView]) -> RateNames:
    """The words that fit all of these attacks."""
    kinds = {is_evasion(view) for view in views}
    return OF_BOTH if len(kinds) > 1 else OF_DETECTORS if kinds == {True} else OF_PREDICTIONS


def groups(views: Sequence[AttackView]) -> list[list[AttackView]]:
    """Attacks on predictions and evasions apart, each in order: their rates are not the same."""
    parts = [[view for view in views if is_evasion(view) == kind] for kind in (False, True)]
    return [part for part in parts if part]
