"""Stops a command early if the model's labels are mixed up.

The first examples of the sample are scored unattacked. The check stops the run when the share of right answers is

    at or under chance (1 / classes)                              with at least 20 examples
    so low that chance gives it with probability at most 0.05     with fewer (exact binomial)

A model that good at being wrong usually has its class names in another order: if some renaming of its outputs would be
far more accurate, the error names it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isthmus.core.errors import SuspiciousLabels
from isthmus.core.types import Floats, Ints, Victim
from isthmus.data import Dataset
from isthmus.verbs.clean_scores import tolerant_scores

EXAMPLES = 64
_ENOUGH = 20
_SIGNIFICANT = 0.05
_FAR_MORE_ACCURATE = 0.2


@dataclass(frozen=True)
class LabelCheck:
    """Number of right answers among the checked examples, and a label mapping that fits better, if any."""

    right: int
    n: int
    classes: int
    renaming: tuple[int, ...] | None = None
    """renaming[column] = the label that column seems to mean."""
    renamed_right: int = 0

    @property
    def is_suspicious(self) -> bool:
        """Whether the answers are no better than chance."""
        if self.n == 0 or self.classes < 2:
            return False
        if self.n >= _ENOUGH:
            return self.right * self.classes <= self.n
        return _binomial_tail(self.right, self.n, 1 / self.classes) <= _SIGNIFICANT


def _binomial_tail(k: int, n: int, p: float) -> float:
    """P(X <= k) of Binomial(n, p)."""
    return math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1))


def check_labels(
    victim: Victim, data: Dataset, seed: int, names: Sequence[str] | None = None, count: int = EXAMPLES
) -> LabelCheck:
    """Score the first examples of the sample; raise `SuspiciousLabels` if their labels cannot be right.

    `data` is aligned to the victim's labels; `names` are what the data itself calls them, where that differs.
    """
    sample = data.sample(count, seed)
    if not len(sample):
        return LabelCheck(0, 0, len(victim.labels))
    check = judge(tolerant_scores(victim, sample.inputs()), sample.label_indices(), len(victim.labels))
    if check.is_suspicious:
        raise SuspiciousLabels(suspicion(check, victim.labels, names or victim.labels))
    return check


def judge(scores: Floats, labels: Ints, classes: int) -> LabelCheck:
    """Judge the label map by the clean scores of some examples."""
    usable = ~np.isnan(scores).any(axis=1)
    predictions, truth = scores[usable].argmax(axis=1), labels[usable]
    right, n = int((predictions == truth).sum()), int(usable.sum())
    check = LabelCheck(right, n, classes)
    if not check.is_suspicious:
        return check
    from scipy.optimize import linear_sum_assignment

    confusion = np.zeros((classes, classes), dtype=np.int64)  # [predicted, true]
    np.add.at(confusion, (predictions, truth), 1)
    _, renaming = linear_sum_assignment(confusion, maximize=True)
    better = int(confusion[np.arange(classes), renaming].sum())
    if better - right < _FAR_MORE_ACCURATE * n:
        return check
    return LabelCheck(right, n, classes, tuple(int(label) for label in renaming), better)


def suspicion(check: LabelCheck, labels: Sequence[str], names: Sequence[str]) -> str:
    """A description of suspicious answers, and of the mapping that would explain them."""
    found = (
        f"clean accuracy is {check.right} of {check.n}, no better than chance (1 in {check.classes}): the model's "
        f"labels ({', '.join(labels[:12])}) do not seem to be those of the data."
    )
    if check.renaming is None:
        return (
            f"{found} No other order of its classes is much better: was it trained for this data, and is --label the "
            "right column? --no-label-check continues anyway."
        )
    swaps = [
        f"the model's {labels[column]!r} is {names[meant]!r} in the data"
        for column, meant in enumerate(check.renaming)
        if column != meant
    ]
    mended = ",".join(names[meant] for meant in check.renaming)
    return (
        f"{found} Suspected mapping: {'; '.join(swaps[:6])} (that way {check.renamed_right} of {check.n} are correct). "
        f"If so, pass the dataset label names in the model's class order: --labels {mended}"
    )
