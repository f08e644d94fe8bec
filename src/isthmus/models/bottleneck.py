"""A stochastic bottleneck: it turns the pooled vector into a Gaussian, and the head classifies a draw.

hidden = relu(W₂ relu(W₁ h))            two layers as wide as the pooled vector; the last relu is optional, and so is
                                        the first layer (of images the network before has enough)
μ, s = the two halves of hidden         σ = softplus(s + b)
z = μ + σ ε,  ε ~ N(0, I)               z = μ where it is asked for the mean
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus.core.errors import UsageError
from isthmus.information.mutual_information import rate
from isthmus.models.slots import Bottleneck

Inference = Literal["mean", "sample"]


@dataclass(slots=True)
class GaussianLatent:
    """The Gaussian code of every text, and the sample that the head reads."""

    mean: Tensor  # [batch, latent]
    deviation: Tensor  # [batch, latent]
    sample: Tensor  # [batch, latent]

    def rate(self) -> Tensor:
        """KL divergence of every text's code from the standard normal, in nats."""
        return rate(self.mean, self.deviation)


class GaussianBottleneck(Bottleneck):
    """The Gaussian bottleneck of VIB and VUB."""

    def __init__(
        self,
        pooled_size: int,
        latent_size: int | None = None,
        shift: float = -1.0,
        last_relu: bool = True,
        inference: Inference = "mean",
        layers: int = 2,
    ) -> None:
        super().__init__()
        self.latent_size = pooled_size // 2 if latent_size is None else latent_size
        if self.latent_size < 1:
            raise UsageError(f"a latent code has at least one dimension, not {self.latent_size}")
        self._config = {
            "pooled_size": pooled_size, "latent_size": self.latent_size, "shift": shift, "last_relu": last_relu
        }  # fmt: skip
        if layers not in (1, 2):
            raise UsageError(f"a bottleneck has one or two layers, not {layers}")
        if layers == 1:  # Written only where it differs: older versions read the others.
            self._config["layers"] = layers
        self.shift, self.last_relu = shift, last_relu
        self.first = nn.Linear(pooled_size, pooled_size) if layers == 2 else None
        self.second = nn.Linear(pooled_size, 2 * self.latent_size)
        for layer in (self.second,) if self.first is None else (self.first, self.second):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.inference: Inference = inference

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether it also draws samples outside training."""
        return self.inference == "sample"

    def config(self) -> dict[str, Any]:
        """The arguments that build it again."""
        return {**self._config, "inference": self.inference}

    def forward(self, pooled: Tensor) -> GaussianLatent:
        """The code of each pooled vector; a draw in training or if samples are requested, else the mean."""
        # Two small layers, in the precision of their weights: casting these would cost more than it saves.
        with torch.autocast(pooled.device.type, enabled=False):
            hidden = pooled.to(self.second.weight.dtype)
            if self.first is not None:
                hidden = functional.relu(self.first(hidden))
            hidden = self.second(hidden)
        if self.last_relu:
            hidden = functional.relu(hidden)
        mean, raw = hidden.float().chunk(2, dim=-1)
        deviation = functional.softplus(raw + self.shift)
        if self.training or self.inference == "sample":
            return GaussianLatent(mean, deviation, mean + deviation * self.stream.normal(mean))
        return GaussianLatent(mean, deviation, mean)


class LabelEntropy(nn.Module):
    """Stores the entropy of the training labels in the model."""

    value: Tensor

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(value))
