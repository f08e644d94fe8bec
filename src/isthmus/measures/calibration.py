"""Calibration: does confidence match accuracy?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from isthmus.core.calibration import Binning, calibration
from isthmus.core.calibration import CalibrationErrors as Found
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.seeds import derive
from isthmus.core.statistics import bootstrap_mean, wilson
from isthmus.measures.base import Figure, Measure, Measurement, Plot, Series, Subject

if TYPE_CHECKING:
    from isthmus.core.types import Bools, Floats

_AT_ONCE = 256


@dataclass(frozen=True)
class Calibration(Measure):
    """Expected and maximum calibration error of a model on its own splits, and the reliability diagram.

        ECE = Σ_k |B_k| / n · |accuracy(B_k) - confidence(B_k)|,   MCE = max_k |accuracy(B_k) - confidence(B_k)|

    over bins B_k of the confidence max p. 0 is a model that is right in 80 of 100 cases where it says 80 %.

    References:
        Guo, Pleiss, Sun and Weinberger (2017), On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599;
        Naeini, Cooper and Hauskrecht (2015), Obtaining Well Calibrated Probabilities Using Bayesian Binning.

    Where we depart:
        The interval is not that of the plain estimate, which is too large on a small sample, but of the error in these
        bins: its lower end allows for what luck explains (`isthmus.core.calibration`).

    Relations:
        `isthmus evaluate` gives the same on any set, in every way a stochastic model can be asked, with cross-entropy
        and Brier score. Label smoothing, confidence penalties, VIB and VUB claim to improve it.

    Example:
        ``isthmus measure runs/demo --measure calibration -P bins=10 --split dev,test``
    """

    bins: int = 15
    """Number of bins."""
    binning: Binning = "width"
    """``width`` cuts the confidence into equal parts, ``mass`` the examples."""

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise UsageError(f"calibration: bins is {self.bins}; it must be at least 1")
        if self.binning not in get_args(Binning):
            raise UnknownName("binning of calibration", str(self.binning), get_args(Binning))

    def measure(self, subject: Subject) -> Measurement:
        """Measure dev and test, or the requested splits."""
        if not subject.splits.task.labels:
            raise UsageError(f"{subject.name} answers questions: calibration is measured on classifiers")
        figures: list[Figure] = []
        plots: list[Plot] = []
        for split in subject.split_names(("dev", "test")):
            confidence, right = _read_answers(subject, split)
            found = calibration(confidence, right, bins=self.bins, binning=self.binning, seed=subject.asked.seed)
            figures += [
                Figure.from_interval("accuracy", wilson(int(right.sum()), len(right)), split, share=True),
                Figure.from_interval("mean confidence", bootstrap_mean(confidence), split, share=True),
                Figure.from_interval("expected calibration error", found.ece, split),
                Figure.from_interval("maximum calibration error", found.mce, split),
                Figure("luck explains up to", found.bias, of=split),
            ]
            plots.append(_make_plot(split, found))
        return Measurement(tuple(figures), tuple(plots))


def _read_answers(subject: Subject, split: str) -> tuple[Floats, Bools]:
    """The model's confidence for each text of a split, and whether it is right."""
    from isthmus.models.victims import wrap

    data, victim = subject.sample(split), wrap(subject.model, device=str(subject.model.device))
    texts, truth = data.inputs(), data.label_indices()
    parts = []
    for at in range(0, len(texts), _AT_ONCE):
        subject.step(split, at, len(texts))
        ids = [example.id for example in data.examples[at : at + _AT_ONCE]]
        keys = np.array([derive(subject.asked.seed, "calibration", key) for key in ids], np.uint64)
        parts.append(victim.scores(texts[at : at + _AT_ONCE], keys if victim.stochastic else None))
    if not parts:
        raise UsageError(f"the {split} split has no texts to measure")
    scores = np.concatenate(parts)
    return scores.max(axis=1), np.asarray(scores.argmax(axis=1) == truth)


def _make_plot(split: str, found: Found) -> Plot:
    filled = [each for each in found.bins if each.count]
    series = Series(
        name=split,
        x=tuple(each.confidence for each in filled),
        y=tuple(each.accuracy.estimate for each in filled),
        y_bounds=tuple((each.accuracy.low, each.accuracy.high) for each in filled),
        labels=tuple(f"{each.count:,}" for each in filled),
    )
    return Plot(
        name=f"reliability-{split}",
        title=f"How often the model is right where it says how sure it is, {split}",
        x_label="mean confidence of a bin",
        y_label="right",
        series=(series,),
        kind="points",
        percent="xy",
        diagonal=True,
        caption="Numbers count the texts of a bin, whiskers are 95 % Wilson intervals. Under the dashed line the model "
        "is too sure of itself.",
    )
