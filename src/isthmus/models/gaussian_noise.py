"""Gaussian noise on hidden states, in training and afterwards.

    h_l <- h_l + σ ε,   ε ~ N(0, I),    for the blocks l = 0, m, 2m, … of the encoder, or any that are named

`EMBEDDINGS` (-1) is the sequence of word embeddings, before positions, normalisation and any word mask: noise there is
what a certificate over embeddings is about. Draws are keyed by row (`isthmus.arithmetic.randomness`), so that a row's
noise depends neither on the other rows nor on padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from isthmus.core.errors import UsageError
from isthmus.models.slots import EMBEDDINGS, Noise

__all__ = ["EMBEDDINGS", "GaussianNoise", "noise_blocks"]


class GaussianNoise(Noise):
    """Adds N(0, σ²) to every number of the chosen outputs; with σ = 0 it draws nothing and changes nothing."""

    def __init__(self, sigma: float, layers: Sequence[int]) -> None:
        super().__init__()
        self.sigma = float(sigma)
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise UsageError(f"sigma is the noise's standard deviation: a number that is at least 0, not {sigma}")
        self.layers = tuple(sorted({int(layer) for layer in layers}))

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether it draws any noise."""
        return self.sigma > 0 and bool(self.layers)

    def config(self) -> dict[str, Any]:
        """The arguments that build it again."""
        return {"sigma": self.sigma, "layers": list(self.layers)}

    def forward(self, layer: int, hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The output of a block plus noise; padding gets noise too, since no token attends to it."""
        del attention_mask
        if self.sigma == 0:
            return hidden
        return hidden + self.sigma * self.stream.normal(hidden, tag=layer)


def noise_blocks(depth: int, every: int = 0) -> tuple[int, ...]:
    """The blocks i of `depth` with i mod m = 0; without m (`every`) the one that gives about three of them.

    12 blocks: 0, 4, 8. 6 blocks: 0, 2, 4.
    """
    if every < 0:
        raise UsageError(f"noise after every m-th block: m is at least 1 (0: about three of them), not {every}")
    return tuple(range(0, depth, every or max(1, depth // 3)))
