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

A stochastic model has such figures for every way it was seen in. Everything is in the form in which JSON holds it,
since the header of the results, the page and the terminal show the same figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.core.calibration import CalibrationErrors, brier_scores, calibration, cross_entropies
from isthmus.core.statistics import Interval, bootstrap_mean, mcnemar, paired_bootstrap, wilson
from isthmus.core.types import Bools, Doubles, Ints
from isthmus.runs.evaluated import Evaluated, OriginalText, ScoresByWay
from isthmus.summaries.balance import Balance, BalanceRow

Figures = dict[str, Any]
_DRAWS = 1_000
_REASONS = 12


def summarise_texts(results: Sequence[Evaluated], labels: Sequence[str], ways: Sequence[str], headline: str) -> Figures:
    """The figures of all ways, on the texts of the set and on the originals where there are some."""
    found: Figures = {"headline": headline, **_side([(each.label, each.scores) for each in results], labels, ways)}
    paired = [(each, each.original) for each in results if each.original is not None]
    if paired:
        found["original"] = _side([(each.label, original.scores) for each, original in paired], labels, ways)
        found["difference"] = {way: _compute_difference(paired, way) for way in ways}
    found["reasons"] = reasons(results)
    return found


def reasons(results: Sequence[Evaluated]) -> list[dict[str, Any]]:
    """Why texts have no answer, most frequent first."""
    counts: dict[str, int] = {}
    for result in results:
        for reason in (result.reason, result.original.reason if result.original else None):
            if reason:
                counts[reason[:300]] = counts.get(reason[:300], 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "count": count} for reason, count in ordered[:_REASONS]]


def _side(
    answers: Sequence[tuple[int | None, ScoresByWay | None]], labels: Sequence[str], ways: Sequence[str]
) -> Figures:
    """Figures of true labels and scores, in every way."""
    answered = [(label, scores) for label, scores in answers if scores]
    truth = np.array([label for label, _ in answered], dtype=np.int64)
    return {
        "n": len(answers),
        "answered": len(answered),
        "errors": len(answers) - len(answered),
        "ways": {
            way: _compute_figures(np.array([scores[way] for _, scores in answered], np.float64), truth, labels)
            for way in ways
        },
    }


def _compute_figures(scores: Doubles, truth: Ints, labels: Sequence[str]) -> Figures:
    n = len(truth)
    if not n:
        scores = np.zeros((0, len(labels)))
    predicted, confidence = scores.argmax(axis=1), scores.max(axis=1, initial=0.0)
    right = predicted == truth
    return {
        "accuracy": figure(wilson(int(right.sum()), n)),
        **_balance(truth, predicted, labels),
        "confidence": figure(bootstrap_mean(confidence, draws=_DRAWS)),
        "cross_entropy": figure(bootstrap_mean(cross_entropies(scores, truth), draws=_DRAWS)),
        "brier": figure(bootstrap_mean(brier_scores(scores, truth), draws=_DRAWS)),
        "classes": _list_classes(right, truth, labels),
        "calibration": calibration_json(confidence, right),
    }


def _balance(truth: Ints, predicted: Ints, labels: Sequence[str]) -> Figures:
    """What a model that always gives the same answer cannot earn."""
    pairs = zip(truth.tolist(), predicted.tolist(), strict=True)
    balance = Balance.of(BalanceRow(label, answer, label == answer) for label, answer in pairs)
    most, only = balance.majority, balance.only_prediction
    return {
        "balanced_accuracy": figure(balance.sacc),
        "majority": None
        if most is None
        else {"label": str(labels[most.label]), "share": json_number(balance.majority_share)},
        "only_prediction": None if only is None else str(labels[only]),
    }


def _list_classes(right: Bools, truth: Ints, labels: Sequence[str]) -> list[Figures]:
    """Accuracy of each class the set holds."""
    return [
        {"label": str(label), "n": int(of.sum()), "accuracy": figure(wilson(int(right[of].sum()), int(of.sum())))}
        for number, label in enumerate(labels)
        if (of := truth == number).any()
    ]


def calibration_json(confidence: Doubles, right: Bools) -> Figures:
    """Calibration in bins of equal width, which are drawn, and the error in bins of equal mass beside it."""
    width, mass = (calibration(confidence, right, binning=kind) for kind in ("width", "mass"))
    return {
        "ece": figure(width.ece),
        "ece_equal_mass": figure(mass.ece),
        "mce": figure(width.mce),
        "bias": json_number(width.bias),
        "bins": _list_bins(width),
    }


def _list_bins(found: CalibrationErrors) -> list[Figures]:
    return [
        {
            "low": json_number(each.low), "high": json_number(each.high), "count": each.count, "right": each.right,
            "confidence": json_number(each.confidence), "accuracy": figure(each.accuracy),
        }
        for each in found.bins
        if each.count
    ]  # fmt: skip


def _compute_difference(paired: Sequence[tuple[Evaluated, OriginalText]], way: str) -> Figures:
    """Adversarial less clean, over the pairs with two answers."""
    pairs = [(each.label, each.scores, old.scores) for each, old in paired if each.scores and old.scores]
    after = np.array([int(np.argmax(scores[way])) == label for label, scores, _ in pairs], dtype=bool)
    before = np.array([int(np.argmax(scores[way])) == label for label, _, scores in pairs], dtype=bool)
    test = mcnemar(before, after)
    return {
        "n": len(pairs),
        "accuracy": figure(paired_bootstrap(after.astype(float), before.astype(float))),
        "lost": test.b,
        "won": test.c,
        "p_value": json_number(test.p_value),
    }


def figure(interval: Interval) -> dict[str, float | None]:
    """An interval as JSON holds it; null where there is no number."""
    return {
        "estimate": json_number(interval.estimate),
        "low": json_number(interval.low),
        "high": json_number(interval.high),
    }


def json_number(value: float) -> float | None:
    """Six decimals; null where there is no number."""
    return None if math.isnan(value) else round(float(value), 6)
