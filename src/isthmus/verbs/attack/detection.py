"""Evasion from the detector's side: true- and false-positive rates.

With s the score of the attacked class, N the clean examples of the other classes and t the threshold:

    false-positive rate = share of N with s >= t
    true-positive rate  = share of the attacked class with s >= t, before and after the attack
    AUC                 = P(s of the attacked class > s of N), ties counted half, before and after

If no threshold is given, the most likely class decides instead of s >= t. After the attack an example counts with the
last text of the attack. One without a result (error, time-out, abstention) counts as missed, and is in no AUC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.statistics import Interval, auc, threshold_at_fpr, wilson
from isthmus.core.types import Floats, Victim
from isthmus.data import Dataset, Splits
from isthmus.verbs.clean_scores import tolerant_scores

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

NEGATIVES = 1_000
"""Maximum number of examples of other classes that are scored."""


@dataclass(frozen=True)
class Detector:
    """The decision rule that an evasion is measured against."""

    label: int
    threshold: float | None
    at_fpr: float | None
    negative_scores: tuple[float, ...]
    """Scores of the attacked class on clean examples of the other classes."""
    negatives_flagged: int
    negatives_without_answer: int = 0
    """Clean examples of the other classes that the model had no answer to; they are in no rate."""

    def flags(self, scores: Sequence[float]) -> bool:
        """Whether an example with these class probabilities is flagged."""
        if self.threshold is None:
            return int(np.argmax(scores)) == self.label
        return scores[self.label] >= self.threshold


@dataclass(frozen=True)
class Detection:
    """Effect of the attack on the detector."""

    detector: Detector
    fpr: Interval
    tpr_before: Interval
    tpr_after: Interval
    auc_before: float
    auc_after: float

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, scores included."""
        return {
            "label": self.detector.label,
            "threshold": self.detector.threshold,
            "at_fpr": self.detector.at_fpr,
            "negatives": len(self.detector.negative_scores),
            "negatives_without_answer": self.detector.negatives_without_answer,
            "fpr": self.fpr.to_dict(),
            "tpr_before": self.tpr_before.to_dict(),
            "tpr_after": self.tpr_after.to_dict(),
            "auc_before": None if np.isnan(self.auc_before) else self.auc_before,
            "auc_after": None if np.isnan(self.auc_after) else self.auc_after,
            "negative_scores": [round(score, 6) for score in self.detector.negative_scores],
        }


def make_detector(
    victim: Victim, data: Dataset, label: int, seed: int, *, threshold: float | None, at_fpr: float | None
) -> Detector:
    """Score the clean examples of the other classes; `threshold` is the final one, however it was chosen."""
    every = _scores_of_others(victim, data, label, seed)
    scores = _drop_unanswered(every)
    column = scores[:, label] if len(scores) else np.zeros(0, np.float32)
    flagged = scores.argmax(axis=1) == label if threshold is None else column >= threshold
    found, without = tuple(float(score) for score in column), len(every) - len(scores)
    return Detector(label, threshold, at_fpr, found, int(flagged.sum()), without)


def choose_threshold(victim: Victim, splits: Splits, label: int, seed: int, at_fpr: float) -> float:
    """The smallest threshold that keeps the false-positive rate on the clean development split."""
    if "dev" not in splits:
        raise UsageError(
            f"--at-fpr chooses the threshold on a development split, and {splits.name} has none "
            f"(it has {', '.join(splits)}): pass --threshold instead, or data with a dev split"
        )
    scores = _drop_unanswered(_scores_of_others(victim, splits.dev.align_labels(victim.labels), label, seed))
    if not len(scores):
        raise UsageError(f"the dev split of {splits.name} has no examples of other classes to choose a threshold on")
    return threshold_at_fpr(scores[:, label], at_fpr)


def _scores_of_others(victim: Victim, data: Dataset, label: int, seed: int) -> Floats:
    order = data.sample(None, seed)
    texts = [example.texts for example in order if example.label != label][:NEGATIVES]
    if not texts:
        return np.zeros((0, len(victim.labels)), np.float32)
    return tolerant_scores(victim, texts)


def _drop_unanswered(scores: Floats) -> Floats:
    return np.asarray(scores[np.isfinite(scores).all(axis=1)])


def detect(detector: Detector, results: Sequence[AttackResult]) -> Detection:
    """The detector's figures on the results of an attack."""
    before = [result.score_before or None for result in results]
    after = [_score_after(result) for result in results]
    caught_before = sum(scores is not None and detector.flags(scores) for scores in before)
    caught_after = sum(scores is not None and detector.flags(scores) for scores in after)
    # Rows hold seven digits: scores that were equal must stay so, or a tie would be a defeat.
    negatives = [float(f"{score:.7g}") for score in detector.negative_scores]
    return Detection(
        detector=detector,
        fpr=wilson(detector.negatives_flagged, len(negatives)),
        tpr_before=wilson(caught_before, len(results)),
        tpr_after=wilson(caught_after, len(results)),
        auc_before=auc([scores[detector.label] for scores in before if scores is not None], negatives),
        auc_after=auc([scores[detector.label] for scores in after if scores is not None], negatives),
    )


def _score_after(result: AttackResult) -> Sequence[float] | None:
    if result.outcome == "skipped":  # Missed before, so that there was nothing to attack.
        return result.score_before or None
    return result.score_after or None if result.outcome in ("succeeded", "failed") else None
