"""Confidence penalty: penalise predictions of low entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier


@dataclass(frozen=True)
class ConfidencePenalty(Defence):
    """Confidence penalty: reward the entropy of predictions (Pereyra et al., 2017).

        loss = -log p(y | x) - gamma · H(p(· | x)),     H(p) = -Σ_c p_c log p_c

    References:
        Pereyra, Tucker, Chorowski, Kaiser and Hinton (2017), Regularizing Neural Networks by Penalizing Confident
        Output Distributions, https://arxiv.org/abs/1701.06548

    Where we depart:
        The paper's variants that anneal gamma or penalise only below an entropy threshold are left out.

    Relations:
        Up to a constant it adds gamma · KL(p || uniform); `label_smoothing` adds the reverse direction. With gamma = 1
        and balanced labels it is the entropy term of the variational upper bound (VUB). The loss may be negative.
        With gamma = 0 it is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.ConfidencePenalty(gamma=0.5))``
    """

    gamma: float = 0.1
    """Reward per nat of predictive entropy."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise UsageError(f"confidence_penalty: gamma is {self.gamma}; it must be a number that is at least 0")

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def objective(self, model: Classifier, output: Output, batch: Batch, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add a term: minus gamma times the mean entropy of the predictions."""
        if self.gamma == 0:
            return terms
        return {**terms, "confidence_penalty": -self.gamma * entropy(output.logits.float()).mean()}


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of the softmax of each row; exact, and with a finite gradient, for logits of any size."""
    # The gradient through the logarithm is Σ p ∂ log p = Σ ∂p = 0, and need not be followed.
    return -(logits.softmax(dim=-1) * logits.detach().log_softmax(dim=-1)).sum(dim=-1)
