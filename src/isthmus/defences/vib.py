"""VIB: the deep variational information bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.types import Output
from isthmus.defences.parts.bottleneck import StochasticBottleneck

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier


@dataclass(frozen=True)
class VIB(StochasticBottleneck):
    """VIB: a stochastic code with a penalty on its information about the input (Alemi et al., 2017).

        loss = -log p(y | z) + β · R,     R = KL(N(μ(x), σ(x)²) ‖ N(0, I)) = Σ_k ½ (μ_k² + σ_k² - 1 - 2 log σ_k)

    R bounds I(X;Z) from above, log p(y|z) + H(Y) bounds I(Z;Y) from below.

    References:
        Alemi, Fischer, Dillon and Murphy (2017), Deep Variational Information Bottleneck,
        https://arxiv.org/abs/1612.00410

    Where we depart:
        The encoder of the code is that of the VUB paper's code: two layers as wide as the pooled vector, means behind a
        relu unless last_relu is off, so that no deviation is under softplus(shift). One draw a step in training, the
        mean afterwards.

    Relations:
        `vub` subtracts an entropy and so rewards predictions that stay uncertain. With beta = 0 and deterministic=True
        it is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.VIB(beta=1e-3))``
    """

    def terms(self, model: Classifier, output: Output) -> dict[str, Tensor]:
        """None besides cross-entropy and rate."""
        return {}
