"""VUB: a tighter variational bound on the information bottleneck than VIB's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from isthmus.core.types import Ints, Output
from isthmus.defences.base import Labelled
from isthmus.defences.confidence_penalty import entropy
from isthmus.defences.parts.bottleneck import StochasticBottleneck
from isthmus.defences.parts.checks import at_least, needs_one_vector, one_of

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier

Cap = Literal["example", "batch"]


@dataclass(frozen=True)
class VUB(StochasticBottleneck):
    """VUB: VIB minus the smaller of the labels' entropy and the prediction's (Tighter Bounds on the IB, 2024).

        loss = -log p(y | z) + β · R - min{ H(Y), H(p(· | z)) }

    The minimum lies in [0, H(Y)], so VIB ≥ VUB ≥ VIB - H(Y): tighter than VIB as it is usually written, without its
    constant H(Y). With balanced labels H(Y) = log C never binds and the term is a confidence penalty of weight one. The
    loss may be negative.

    References:
        Tighter Bounds on the Information Bottleneck with Application to Deep Learning (2024).

    Where we depart:
        Equations 7 and 8 of the paper have slips of sign; 9 and 10 are what is computed. The minimum is taken per
        example (equation 10); the released code averages the entropy first (cap="batch"). H(Y) is the entropy of the
        training labels.

    Relations:
        `vib` is the same without the entropy; `confidence_penalty` is the entropy without the bottleneck, and so is
        this with beta = 0 and deterministic=True while H(Y) does not bind. With entropy_weight = 0 too, `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.VUB(beta=1e-3))``
    """

    cap: Cap = "example"
    """Where the minimum with H(Y) is taken; of a `batch` the mean entropy is capped, whatever the batch is."""
    entropy_weight: float = 1.0
    """Weight of the entropy; 1 is the bound, 0 is VIB."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.name, "entropy_weight", self.entropy_weight, 0)
        one_of(self.name, "cap", self.cap, get_args(Cap))

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Fill the bottleneck slot, and store the entropy of the training labels."""
        super().prepare(model, data)
        if self.entropy_weight:
            needs_one_vector(self.name, model)
            from isthmus.models.bottleneck import LabelEntropy

            model.companions["labels"] = LabelEntropy(label_entropy(data.label_indices())).to(model.device)

    def terms(self, model: Classifier, output: Output) -> dict[str, Tensor]:
        """Minus the capped entropy of the prediction."""
        if self.entropy_weight == 0:
            return {}
        of_labels: Tensor = model.companions["labels"].value  # type: ignore[assignment]
        of_predictions = entropy(output.logits)
        if self.cap == "batch":
            of_predictions = of_predictions.mean()
        return {"entropy": -self.entropy_weight * of_predictions.clamp(max=of_labels).mean()}


def label_entropy(labels: Ints) -> float:
    """Entropy in nats of the distribution of labels."""
    shares = np.bincount(labels) / max(1, len(labels))
    return float(-sum(share * math.log(share) for share in shares if share > 0))
