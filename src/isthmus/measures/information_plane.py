"""The information plane: information about the input against label information, by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from isthmus.core.errors import UsageError
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject
from isthmus.measures.information import read_logged

if TYPE_CHECKING:
    from isthmus.information.features import Features
    from isthmus.measures._codes import Codes

LoggedRows = dict[str, list[tuple[int, dict[str, float]]]]
"""By split (epoch, figures by name)."""


@dataclass(frozen=True)
class InformationPlane(Measure):
    """The path of a training run through the information plane.

        across   R = E KL(p(z|x) ‖ N(0, I)) ≥ I(X;Z)         a Gaussian bottleneck; U = tr cov(t) where there is none
                 H(N(0, I)) - H(Z|X) = -E Σ log σ            with across=entropy_rate: the rate of the VUB paper
        up       H(Y) - cross-entropy ≤ I(Z;Y)               or 1 / cross-entropy, the paper's proxy of distortion

    References:
        Tishby and Zaslavsky (2015), Deep Learning and the Information Bottleneck Principle,
        https://arxiv.org/abs/1503.02406; Tighter Bounds on the Information Bottleneck with Application to Deep
        Learning (2024).

    Where we depart:
        The entropy of a Gaussian is ½ Σ log(2πe σ²); the code released with VUB has ½ log Π σ in its place, which is
        not an entropy and rescales its rate. Figures come from the training log, at the mean of the latent code;
        with ``--epochs all`` they are measured on the snapshots.

    Relations:
        `information` has the same figures of the finished model, with intervals.

    Example:
        ``isthmus measure runs/vub --measure information_plane``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("log", "snapshots")
    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed", "every_epoch")

    across: Literal["auto", "rate", "spread", "entropy_rate"] = "auto"
    """Horizontal axis: the rate, the spread of the tokens, or VUB's difference of entropies; auto: the rate if any."""
    up: Literal["label_information", "inverse_loss"] = "label_information"
    """Vertical axis: the bound on I(Z;Y), or one over the cross-entropy."""
    bits: bool = False
    """Whether to show information in bits instead of nats."""

    def measure(self, subject: Subject) -> Measurement:
        """Plot the plane from the training log, or from the snapshots."""
        rows = _snapshots(subject) if subject.asked.every_epoch else read_logged(subject)
        if not rows:
            raise UsageError(
                f"the training log of {subject.name} has no information values: train again with -S information=256, "
                "or with -S snapshots=true and measure with --epochs all"
            )
        across = self._across(rows, subject)
        scale = 1 / math.log(2) if self.bits else 1.0
        series, figures = [], []
        for split, found in rows.items():
            x = tuple(row[across] * (1.0 if across == "spread" else scale) for _, row in found)
            y = tuple(1 / row["loss"] if self.up == "inverse_loss" else scale * row[self.up] for _, row in found)
            series.append(Series(split, x, y, labels=tuple(str(epoch) for epoch, _ in found)))
            first, last = found[0][0], found[-1][0]
            for name, values in ((self._name(across), x), (self._name(self.up), y)):
                figures += [Figure(f"{name}, epoch {first}", values[0], of=split)] if first != last else []
                figures.append(Figure(f"{name}, epoch {last}", values[-1], of=split))
        plot = Plot(
            self.name,
            f"Information plane of {subject.name}",
            self._name(across),
            self._name(self.up),
            tuple(series),
            kind="path",
            order_label="epoch",
            caption=_CAPTIONS["snapshots" if subject.asked.every_epoch else "log"],
        )
        details = {
            "across": across,
            "up": self.up,
            "epochs": {split: [epoch for epoch, _ in rows[split]] for split in rows},
        }
        return Measurement(tuple(figures), (plot,), notes=_notes(across, subject), details=details)

    def _across(self, rows: LoggedRows, subject: Subject) -> str:
        known = next(iter(rows.values()))[0][1]
        across = self.across if self.across != "auto" else "rate" if "rate" in known else "spread"
        if across == "spread" and across not in known:
            raise UsageError(
                f"{subject.name} has neither a Gaussian bottleneck nor tokens whose spread could stand in: train with "
                "--defence vib or vub"
            )
        if across not in known:
            raise UsageError(
                f"{subject.name} has no {across}: only a model with a Gaussian bottleneck has one. Train with "
                "--defence vib or vub, or take -P across=spread"
            )
        wanted = "loss" if self.up == "inverse_loss" else self.up
        if wanted not in known:
            raise UsageError(f"{subject.name} has no {wanted}: the plane is that of a classifier")
        return across

    def _name(self, key: str) -> str:
        unit = "bits" if self.bits else "nats"
        return {
            "rate": f"rate R ({unit})",
            "entropy_rate": f"H(R) - H(Z|X) ({unit})",
            "spread": "spread U",
            "label_information": f"label information ({unit})",
            "inverse_loss": "1 / cross-entropy",
        }[key]


_CAPTIONS = {
    "log": "One point per epoch, from the training log: a fixed sample of the training split, and dev.",
    "snapshots": "One point per epoch, measured on the weights that were kept.",
}


def _notes(across: str, subject: Subject) -> tuple[str, ...]:
    if across == "spread" and subject.facts.settings.get("trains") == "head":
        return ("The encoder stood still, and with it the spread of its vectors: the points move up and down only.",)
    return ()


def _snapshots(subject: Subject) -> LoggedRows:
    """The figures of every snapshot, in the form of the training log."""
    from isthmus.data.images import is_image_task
    from isthmus.measures._codes import read_codes
    from isthmus.measures._features import read_features

    found: LoggedRows = {}
    epochs = subject.epochs()
    for number, epoch in enumerate(epochs):
        subject.snapshots[epoch](subject.model)
        for split in subject.split_names(("train", "dev")):
            read = read_codes if is_image_task(subject.model.task) else read_features
            features = read(subject.model, subject.sample(split, default=256), subject.asked.seed)
            found.setdefault(split, []).append((epoch, dict(plane_figures(features))))
        subject.step("measuring epochs", number + 1, len(epochs))
    return found


def plane_figures(features: Features | Codes) -> Mapping[str, float]:
    """Spread of the tokens of texts, rates, label information and loss at the mean of the latent code."""
    import torch

    from isthmus.information.features import Features
    from isthmus.information.fitted_estimators import label_entropy, log_likelihoods
    from isthmus.information.mutual_information import entropy_rate, mean_spread, rate

    found = {}
    if isinstance(features, Features):
        found["spread"] = float(mean_spread(features.tokens.double(), torch.ones(len(features.tokens))))
    if features.mean is not None and features.deviation is not None:
        found["rate"] = float(rate(features.mean, features.deviation).mean())
        found["entropy_rate"] = float(entropy_rate(features.deviation).mean())
    if features.logits is not None:
        loss = -float(log_likelihoods(features.logits, features.labels).mean())
        found |= {"label_information": label_entropy(features.labels) - loss, "loss": loss}
    return found
