"""Figures by class, which a constant prediction cannot raise.

With n_c examples of class c in the sample, of which k_c are right (clean) or right and not fooled (robust):

    balanced accuracy   mean over the classes in the sample of k_c / n_c
    majority share      max n_c / Σ n_c: what always answering the most frequent class would score

Examples of different classes are drawn independently, so the interval of the mean is put together from the Wilson
intervals (low_c, high_c) of the C rates p_c (Zou and Donner's method, MOVER):

    low  = mean p - sqrt(Σ (p_c - low_c)²) / C          high = mean p + sqrt(Σ (high_c - p_c)²) / C

Of one class it is the Wilson interval itself. Unlike bootstrap percentiles it keeps its width
where every rate is 0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from isthmus.core.statistics import Interval, json_number, wilson


class BalanceRow(NamedTuple):
    """One example."""

    label: int | None
    prediction: int | None
    is_right: bool
    is_robust: bool = False
    nothing_tried: bool = False


@dataclass(frozen=True)
class ClassCounts:
    """The examples of one class."""

    label: int
    n: int
    correct: int
    robust: int
    no_candidates: int = 0
    """Robust examples without candidates."""

    @property
    def recall(self) -> Interval:
        """Share that is right without attack: the true-positive rate of a detector of this class."""
        return wilson(self.correct, self.n)

    @property
    def robust_recall(self) -> Interval:
        """Share that is right and withstood the attack."""
        return wilson(self.robust, self.n)


@dataclass(frozen=True)
class Balance:
    """Figures of the classes of a sample, besides its accuracy."""

    classes: tuple[ClassCounts, ...]
    unlabelled: int = 0
    """Rows that belong to no class, since their record could not be read."""
    only_prediction: int | None = None
    """The class of every prediction, where there is but one and at least two predictions."""

    @classmethod
    def of(cls, examples: Iterable[BalanceRow]) -> Balance:
        """Count examples by class."""
        counts: dict[int, list[int]] = {}
        predictions: list[int] = []
        unlabelled = 0
        for seen in examples:
            if seen.prediction is not None:
                predictions.append(seen.prediction)
            if seen.label is None:
                unlabelled += 1
                continue
            found = counts.setdefault(seen.label, [0, 0, 0, 0])
            for place, holds in enumerate((True, seen.is_right, seen.is_robust, seen.nothing_tried)):
                found[place] += int(holds)
        only = predictions[0] if len(predictions) > 1 and len(set(predictions)) == 1 else None
        return cls(tuple(ClassCounts(label, *counts[label]) for label in sorted(counts)), unlabelled, only)

    @property
    def majority(self) -> ClassCounts | None:
        """The most frequent class."""
        return max(self.classes, key=lambda each: each.n, default=None)

    @property
    def majority_share(self) -> float:
        """Accuracy of always predicting the most frequent class."""
        return self.majority.n / sum(each.n for each in self.classes) if self.majority else math.nan

    @property
    def sacc(self) -> Interval:
        """Balanced clean accuracy."""
        return mean_rate([(each.correct, each.n) for each in self.classes])

    @property
    def racc(self) -> Interval:
        """Balanced robust accuracy."""
        return mean_rate([(each.robust, each.n) for each in self.classes])

    @property
    def sacc_at_least(self) -> Interval:
        """Balanced clean accuracy if all rows without a class were wrong, and of the class where that costs most."""
        return with_misses([(each.correct, each.n) for each in self.classes], self.unlabelled)

    @property
    def racc_at_least(self) -> Interval:
        """Balanced robust accuracy by the same rule, where examples without candidates do not count as robust."""
        return with_misses([(each.robust - each.no_candidates, each.n) for each in self.classes], self.unlabelled)

    @property
    def weakest(self) -> ClassCounts | None:
        """The class with the smallest share of examples that withstood the attack."""
        return min(self.classes, key=lambda each: each.robust / each.n, default=None)

    def of_class(self, label: int) -> ClassCounts | None:
        """The examples of one class; None if the sample has none."""
        return next((each for each in self.classes if each.label == label), None)

    def to_json(self) -> dict[str, Any]:
        """Classes by their number, in the order of the scores."""
        return {
            "majority": self.majority.label if self.majority else None,
            "majority_share": json_number(self.majority_share),
            "only_prediction": self.only_prediction,
            "unlabelled": self.unlabelled,
            "classes": [
                {"label": each.label, "n": each.n, "correct": each.correct, "robust": each.robust}
                for each in self.classes
            ],
        }


def mean_rate(counts: Sequence[tuple[int, int]], level: float = 0.95) -> Interval:
    """Mean of rates k / n of independent groups with equal weight, with its interval; empty groups are left out.

    Without any group the estimate is NaN and the interval (0, 1).
    """
    rates = [wilson(k, n, level) for k, n in counts if n]
    if not rates:
        return Interval(math.nan, 0.0, 1.0, level)
    mean = math.fsum(rate.estimate for rate in rates) / len(rates)
    below = math.sqrt(math.fsum((rate.estimate - rate.low) ** 2 for rate in rates)) / len(rates)
    above = math.sqrt(math.fsum((rate.high - rate.estimate) ** 2 for rate in rates)) / len(rates)
    return Interval(mean, max(0.0, mean - below), min(1.0, mean + above), level)


def with_misses(counts: Sequence[tuple[int, int]], misses: int) -> Interval:
    """The mean rate after `misses` more misses, in the group where they cost most."""
    if not misses or not counts:
        return mean_rate(counts)
    added = ([(k, n + misses * (at == place)) for place, (k, n) in enumerate(counts)] for at in range(len(counts)))
    return min(map(mean_rate, added), key=lambda interval: interval.low)


def majority_warning(only: str | None, accuracy: float, majority: str, share: float, instead: str) -> str:
    """A warning about constant predictions, or an accuracy no better than theirs; else empty."""
    judge = f"Judge {instead} instead."
    if only is not None:
        return f"Every prediction is {only}: the model does not separate the classes. {judge}"
    if accuracy <= share:
        return (
            f"Clean accuracy {100 * accuracy:.1f} % is not above {100 * share:.1f} %, the score of always "
            f"predicting {majority}. {judge}"
        )
    return ""
