"""Ascents on the margin to one class after the other: shared by `margin_pgd` and the ascent on embeddings.

A turn begins at one point, aims at one class, and makes all of its steps. Of all points that any turn went through the
best one is kept: a larger share of draws that are fooled comes first, then a larger margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.spaces import like


class TurnSlope(NamedTuple):
    """The answers of the draws at one point."""

    values: Tensor  # mean gradient of the margin to the class aimed at
    logits: Tensor  # mean logits [rows, classes]
    fooled: Tensor  # share of draws that left the class [rows]
    margin: Tensor  # mean over draws of how far the best other class leads [rows]

    @property
    def score(self) -> Tensor:
        """Order of points: a larger share of draws comes first, then a larger margin."""
        margin = self.margin.double()
        return self.fooled.double() + 1e-4 * margin / (1 + margin.abs())


class Best(NamedTuple):
    """The best points so far."""

    point: Tensor
    score: Tensor  # [rows]
    fooled: Tensor  # share of draws that left the class there [rows]

    @classmethod
    def unknown(cls, point: Tensor) -> Best:
        """The state before any point was scored."""
        score = torch.full((len(point),), -math.inf, dtype=torch.float64, device=point.device)
        return cls(point, score, torch.zeros_like(score))


def take_turn(
    point: Tensor,
    steps: int,
    slope_at: Callable[[Tensor, int], TurnSlope],
    moved: Callable[[Tensor, Tensor], Tensor],
    best: Best,
) -> Best:
    """Make every step of a turn from `point`, and keep what is better than `best`."""
    for number in range(steps + 1):
        slope = slope_at(point, number)
        better = slope.score > best.score
        best = Best(
            point.where(like(better, point), best.point),
            slope.score.where(better, best.score),
            slope.fooled.where(better, best.fooled),
        )
        if number < steps:
            point = moved(point, slope.values)
    return best


def classes_in_turn(logits: Tensor, label: Tensor) -> Tensor:
    """The classes other than the label, the most likely first [rows, classes - 1]."""
    others = logits.scatter(1, label.unsqueeze(1), -math.inf)  # the label comes last, and is cut off
    return others.sort(dim=1, descending=True, stable=True).indices[:, : logits.shape[1] - 1]
