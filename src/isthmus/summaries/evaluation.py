"""Figures of an evaluation, computed from its results and from nothing else.

    accuracy        right / answered, with Wilson's interval; also per class
    errors          texts without an answer: neither right nor wrong, in a count of their own
    confidence      mean of max p
    cross_entropy   mean of -log p(true class), in nats
    brier           mean of Σ_classes (p - y)²
    balanced_accuracy, majority, only_prediction
                    mean accuracy of the classes, the most frequent one and its share, and the only class predicted, if
                    there is but one (`isthmus.summaries.balance`)
    calibration     expected and maximum calibration error (`isthmus.core.calibration`)
    difference      accuracy on the adversarial texts less accuracy on the originals, over the pairs both of which were
                    answered: paired bootstrap, and McNemar's exact test

A stochastic model has such figures for every way it was seen in. `to_json` is what the header of the results holds, to
six decimals, and `from_json` reads it back: the page, the terminal and the gate show the same figures as the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.core.calibration import Bin, brier_scores, calibration, cross_entropies
from isthmus.core.errors import RunError
from isthmus.core.records import part_of
from isthmus.core.statistics import (
    Interval,
    bootstrap_mean,
    json_number,
    mcnemar,
    paired_bootstrap,
    read_number,
    wilson,
)
from isthmus.core.types import Bools, Doubles, Ints
from isthmus.runs.evaluated import Evaluated, OriginalText, ScoresByWay
from isthmus.summaries.balance import Balance, BalanceRow

_DRAWS = 1_000
_REASONS = 12
_INTERVALS = ("accuracy", "balanced_accuracy", "confidence", "cross_entropy", "brier")


@dataclass(frozen=True)
class CalibrationSummary:
    """Calibration in bins of equal width, which are drawn, and the error in bins of equal mass beside it."""

    ece: Interval
    ece_equal_mass: Interval
    mce: Interval
    bias: float
    """How much of the error may be the luck of the sample."""
    bins: tuple[Bin, ...]
    """Those with examples."""

    @classmethod
    def of(cls, confidence: Doubles, right: Bools) -> CalibrationSummary:
        """Compute it from the confidence in each prediction, and whether that was right."""
        width, mass = (calibration(confidence, right, binning=kind) for kind in ("width", "mass"))
        return cls(width.ece, mass.ece, width.mce, width.bias, tuple(each for each in width.bins if each.count))

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record."""
        return {
            "ece": self.ece.to_json(),
            "ece_equal_mass": self.ece_equal_mass.to_json(),
            "mce": self.mce.to_json(),
            "bias": json_number(self.bias),
            "bins": [_bin_json(each) for each in self.bins],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> CalibrationSummary:
        """Read it back."""
        return cls(
            ece=Interval.from_json(record.get("ece")),
            ece_equal_mass=Interval.from_json(record.get("ece_equal_mass")),
            mce=Interval.from_json(record.get("mce")),
            bias=read_number(record.get("bias")),
            bins=tuple(map(_read_bin, record.get("bins") or ())),
        )


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy on the examples of one class."""

    label: str
    n: int
    accuracy: Interval


@dataclass(frozen=True)
class Majority:
    """The most frequent class, and the accuracy of always predicting it."""

    label: str
    share: float


@dataclass(frozen=True)
class WayFigures:
    """Figures of a model that was seen in one way."""

    accuracy: Interval
    balanced_accuracy: Interval
    majority: Majority | None
    only_prediction: str | None
    """The class of every prediction, where there is but one."""
    confidence: Interval
    cross_entropy: Interval
    brier: Interval
    classes: tuple[ClassAccuracy, ...]
    """Those that the set holds."""
    calibration: CalibrationSummary

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record."""
        return {
            "accuracy": self.accuracy.to_json(),
            "balanced_accuracy": self.balanced_accuracy.to_json(),
            "majority": None
            if self.majority is None
            else {"label": self.majority.label, "share": json_number(self.majority.share)},
            "only_prediction": self.only_prediction,
            "confidence": self.confidence.to_json(),
            "cross_entropy": self.cross_entropy.to_json(),
            "brier": self.brier.to_json(),
            "classes": [
                {"label": each.label, "n": each.n, "accuracy": each.accuracy.to_json()} for each in self.classes
            ],
            "calibration": self.calibration.to_json(),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> WayFigures:
        """Read them back; a header of a version that did not count the majority class has none."""
        most, only = part_of(record, "majority"), record.get("only_prediction")
        return cls(
            **{name: Interval.from_json(record.get(name)) for name in _INTERVALS},
            majority=Majority(str(most.get("label")), read_number(most.get("share"))) if most else None,
            only_prediction=None if only is None else str(only),
            classes=tuple(
                ClassAccuracy(str(each["label"]), int(each["n"]), Interval.from_json(each.get("accuracy")))
                for each in record.get("classes") or ()
            ),
            calibration=CalibrationSummary.from_json(part_of(record, "calibration")),
        )


@dataclass(frozen=True)
class SetFigures:
    """Figures of one set of texts, in every way the model was seen in."""

    n: int
    answered: int
    ways: Mapping[str, WayFigures]

    @property
    def errors(self) -> int:
        """Texts without an answer."""
        return self.n - self.answered

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record."""
        return {
            "n": self.n,
            "answered": self.answered,
            "errors": self.errors,
            "ways": {way: figures.to_json() for way, figures in self.ways.items()},
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SetFigures:
        """Read them back."""
        ways = {str(way): WayFigures.from_json(each) for way, each in part_of(record, "ways").items()}
        return cls(int(record["n"]), int(record["answered"]), ways)


@dataclass(frozen=True)
class AccuracyDifference:
    """Accuracy on adversarial texts less that on their originals, over the pairs with two answers."""

    n: int
    accuracy: Interval
    lost: int
    """Originals that were right and are wrong now."""
    won: int
    p_value: float
    """Of McNemar's exact test."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record."""
        return {
            "n": self.n,
            "accuracy": self.accuracy.to_json(),
            "lost": self.lost,
            "won": self.won,
            "p_value": json_number(self.p_value),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> AccuracyDifference:
        """Read it back."""
        return cls(
            n=int(record["n"]),
            accuracy=Interval.from_json(record.get("accuracy")),
            lost=int(record["lost"]),
            won=int(record["won"]),
            p_value=read_number(record.get("p_value")),
        )


@dataclass(frozen=True)
class Reason:
    """Why texts have no answer, and how many."""

    reason: str
    count: int

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record."""
        return {"reason": self.reason, "count": self.count}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Reason:
        """Read it back."""
        return cls(str(record["reason"]), int(record["count"]))


@dataclass(frozen=True)
class EvaluationSummary:
    """The figures of a classifier on one set, on the texts they were made from where known, and the difference.

    The figures of the saved model stand on it: `accuracy`, `balanced_accuracy`, `confidence`, `cross_entropy`, `brier`
    and `calibration`; all of them, and those of other inference modes, in `texts.ways`.
    """

    headline: str
    """The inference mode of the saved model."""
    texts: SetFigures
    original: SetFigures | None = None
    difference: Mapping[str, AccuracyDifference] = field(default_factory=dict)
    """By way."""
    reasons: tuple[Reason, ...] = ()
    """The most frequent first."""

    @property
    def n(self) -> int:
        """Texts of the set."""
        return self.texts.n

    @property
    def answered(self) -> int:
        """Texts with an answer."""
        return self.texts.answered

    @property
    def errors(self) -> int:
        """Texts without one."""
        return self.texts.errors

    @property
    def own(self) -> WayFigures:
        """The figures of the saved model."""
        return self.texts.ways[self.headline]

    @property
    def accuracy(self) -> Interval:
        """Accuracy of the saved model."""
        return self.own.accuracy

    @property
    def balanced_accuracy(self) -> Interval:
        """Mean of its accuracies on the classes."""
        return self.own.balanced_accuracy

    @property
    def confidence(self) -> Interval:
        """Its mean confidence."""
        return self.own.confidence

    @property
    def cross_entropy(self) -> Interval:
        """Its mean cross-entropy, in nats."""
        return self.own.cross_entropy

    @property
    def brier(self) -> Interval:
        """Its mean Brier score."""
        return self.own.brier

    @property
    def calibration(self) -> CalibrationSummary:
        """Its calibration errors, and the bins they come from."""
        return self.own.calibration

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for the header of the results."""
        found: dict[str, Any] = {"headline": self.headline, **self.texts.to_json()}
        if self.original is not None:
            found["original"] = self.original.to_json()
            found["difference"] = {way: each.to_json() for way, each in self.difference.items()}
        found["reasons"] = [each.to_json() for each in self.reasons]
        return found

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> EvaluationSummary:
        """Read it back from a header."""
        try:
            original = part_of(record, "original")
            found = cls(
                headline=str(record["headline"]),
                texts=SetFigures.from_json(record),
                original=SetFigures.from_json(original) if original else None,
                difference={
                    str(way): AccuracyDifference.from_json(each) for way, each in part_of(record, "difference").items()
                },
                reasons=tuple(map(Reason.from_json, record.get("reasons") or ())),
            )
            _ = [each.ways[found.headline] for each in (found.texts, found.original) if each is not None]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"these are not the figures of an evaluation: {error!r}") from error
        return found


def summarise_texts(
    results: Sequence[Evaluated], labels: Sequence[str], ways: Sequence[str], headline: str
) -> EvaluationSummary:
    """The figures of all ways, on the texts of the set and on the originals where there are some."""
    paired = [(each, each.original) for each in results if each.original is not None]
    return EvaluationSummary(
        headline=headline,
        texts=_make_set([(each.label, each.scores) for each in results], labels, ways),
        original=_make_set([(each.label, old.scores) for each, old in paired], labels, ways) if paired else None,
        difference={way: _compute_difference(paired, way) for way in ways} if paired else {},
        reasons=count_reasons(results),
    )


def count_reasons(results: Sequence[Evaluated]) -> tuple[Reason, ...]:
    """Why texts have no answer, most frequent first."""
    counts: dict[str, int] = {}
    for result in results:
        for reason in (result.reason, result.original.reason if result.original else None):
            if reason:
                counts[reason[:300]] = counts.get(reason[:300], 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Reason(*item) for item in ordered[:_REASONS])


def _make_set(
    answers: Sequence[tuple[int | None, ScoresByWay | None]], labels: Sequence[str], ways: Sequence[str]
) -> SetFigures:
    """Figures of true labels and scores, in every way."""
    answered = [(label, scores) for label, scores in answers if scores]
    truth = np.array([label for label, _ in answered], dtype=np.int64)
    return SetFigures(
        n=len(answers),
        answered=len(answered),
        ways={
            way: _compute_figures(np.array([scores[way] for _, scores in answered], np.float64), truth, labels)
            for way in ways
        },
    )


def _compute_figures(scores: Doubles, truth: Ints, labels: Sequence[str]) -> WayFigures:
    n = len(truth)
    if not n:
        scores = np.zeros((0, len(labels)))
    predicted, confidence = scores.argmax(axis=1), scores.max(axis=1, initial=0.0)
    right = predicted == truth
    pairs = zip(truth.tolist(), predicted.tolist(), strict=True)
    balance = Balance.of(BalanceRow(label, answer, label == answer) for label, answer in pairs)
    most, only = balance.majority, balance.only_prediction
    return WayFigures(
        accuracy=wilson(int(right.sum()), n),
        balanced_accuracy=balance.sacc,
        majority=None if most is None else Majority(str(labels[most.label]), balance.majority_share),
        only_prediction=None if only is None else str(labels[only]),
        confidence=bootstrap_mean(confidence, draws=_DRAWS),
        cross_entropy=bootstrap_mean(cross_entropies(scores, truth), draws=_DRAWS),
        brier=bootstrap_mean(brier_scores(scores, truth), draws=_DRAWS),
        classes=tuple(
            ClassAccuracy(str(label), int(of.sum()), wilson(int(right[of].sum()), int(of.sum())))
            for number, label in enumerate(labels)
            if (of := truth == number).any()
        ),
        calibration=CalibrationSummary.of(confidence, right),
    )


def _compute_difference(paired: Sequence[tuple[Evaluated, OriginalText]], way: str) -> AccuracyDifference:
    """Adversarial less clean, over the pairs with two answers."""
    pairs = [(each.label, each.scores, old.scores) for each, old in paired if each.scores and old.scores]
    after = np.array([int(np.argmax(scores[way])) == label for label, scores, _ in pairs], dtype=bool)
    before = np.array([int(np.argmax(scores[way])) == label for label, _, scores in pairs], dtype=bool)
    test = mcnemar(before, after)
    accuracy = paired_bootstrap(after.astype(float), before.astype(float))
    return AccuracyDifference(len(pairs), accuracy, test.b, test.c, test.p_value)


def _bin_json(found: Bin) -> dict[str, Any]:
    return {
        "low": json_number(found.low), "high": json_number(found.high), "count": found.count, "right": found.right,
        "confidence": json_number(found.confidence), "accuracy": found.accuracy.to_json(),
    }  # fmt: skip


def _read_bin(record: Mapping[str, Any]) -> Bin:
    return Bin(
        low=float(record["low"]), high=float(record["high"]), count=int(record["count"]), right=int(record["right"]),
        confidence=read_number(record.get("confidence")), accuracy=Interval.from_json(record.get("accuracy")),
    )  # fmt: skip
