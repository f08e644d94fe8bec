"""Small models with known answers, for the tests of gradient attacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import Stream


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def filled(module: nn.Module, seed: int = 0, scale: float = 0.4) -> nn.Module:
    generator = seeded(seed)
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
    return module


def affine(classes: int = 4, size: int = 9, seed: int = 0) -> nn.Linear:
    """All logits are zero in the middle of the box."""
    module = filled(nn.Linear(size, classes), seed)
    assert isinstance(module, nn.Linear)
    module.bias.data = -0.5 * module.weight.data.sum(dim=1)
    return module


def network(size: int = 9, classes: int = 3, seed: int = 1) -> nn.Module:
    return filled(nn.Sequential(nn.Linear(size, 16), nn.Tanh(), nn.Linear(16, classes)), seed, 0.7)


def pixels(rows: int = 24, size: int = 9, seed: int = 2) -> Tensor:
    return torch.rand(rows, size, generator=seeded(seed), dtype=torch.float64)


def answers(model: Any, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(inputs).argmax(dim=1)
    return found


class Noisy(nn.Module):
    """A linear model whose hidden vector is noisy; it counts the rows that its encoder sees."""

    stochastic = True

    def __init__(self, size: int = 9, classes: int = 3, deviation: float = 0.3) -> None:
        super().__init__()
        self.encoder, self.head = affine(8, size, 5), affine(classes, 8, 6)
        self.stream, self.deviation, self.encoded = Stream("noise"), deviation, 0

    def encode(self, inputs: Tensor) -> Tensor:
        self.encoded += len(inputs)
        found: Tensor = self.encoder(inputs)
        return found

    def decode(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.head(hidden + self.deviation * self.stream.normal(hidden))
        return found

    def forward(self, inputs: Tensor) -> Tensor:
        return self.decode(self.encode(inputs))
