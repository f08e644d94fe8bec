"""DeepFool: steps to the nearest linearised boundary until it is crossed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack
from isthmus.attacks.gradient.parts.ascent import better
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import like, take
from isthmus.core.errors import UsageError

_FURTHER = 1e-4
"""Added to every step but the first. Where the box cuts a part of each step off, the gap to the boundary would shrink
for ever and never close."""


@dataclass(frozen=True, kw_only=True)
class DeepFool(GradientAttack):
    """The nearest point beyond the boundary of a linearised model, repeated until the true boundary is crossed.

        w_k = ∇(f_k - f_y)(x_t),     k* = argmin_k |f_k - f_y| / ‖w_k‖,     r_t = |f_k* - f_y| / ‖w_k*‖² · w_k*
        x_{t+1} = clip( x + (1 + η) Σ_{s <= t} r_s )

    On an affine model one step with η = 0 ends on the boundary, min_k |f_k - f_y| / ‖w_k - w_y‖ away.

    References:
        Moosavi-Dezfooli, Fawzi and Frossard (2016), DeepFool: a Simple and Accurate Method to Fool Deep Neural
        Networks, https://arxiv.org/abs/1511.04599.

    Where we depart:
        100 iterations at most (the authors' code: 50). The overshoot is applied to the sum of all steps before the
        model is asked again, as in the authors' code; the paper applies it once at the end. Steps after the first are
        1e-4 longer, in their code the first one, too.

    Relations:
        It finds nearly the smallest move at a hundredth of the cost of `cw`. `auto` holds FAB, which does the same with
        projections that respect the box.

    Example:
        ``DeepFool().run(model, images, labels).l2``
    """

    takes_targets: ClassVar[bool] = False

    steps: int = 100
    """Maximum number of iterations."""
    overshoot: float = 0.02
    """η: how far beyond the boundary, as a share of the move."""
    rivals: int = 9
    """Number of classes whose boundaries are compared, the most likely ones of the input."""

    def __post_init__(self) -> None:
        for name in ("steps", "rivals"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not (math.isfinite(self.overshoot) and self.overshoot >= 0):
            raise UsageError(f"overshoot is a share of the move, 0 or more, not {self.overshoot}")

    def search(self, problem: Problem) -> Tensor:
        """Make at most `steps` steps; fooled rows are dropped."""
        rows, rivals = problem.every, problem.rivals(self.rivals)
        found, inputs, total = problem.inputs.clone(), problem.inputs, torch.zeros_like(problem.inputs)
        points = inputs
        for step in range(self.steps):
            left = ~problem.is_fooled(rows, problem.logits(rows, points)) if step else None
            if left is not None and not bool(left.all()):
                done, kept = (~left).nonzero().squeeze(1), left.nonzero().squeeze(1)
                found[rows[done]] = take(points, done)
                rows, rivals, inputs, total, points = (
                    take(each, kept) for each in (rows, rivals, inputs, total, points)
                )
            if not len(rows):
                return found
            total += nearest(problem, rows, points, rivals, _FURTHER if step else 0.0)
            points = problem.space.clip(total.mul(1 + self.overshoot).add_(inputs))
        found[rows] = points
        return found


def nearest(problem: Problem, rows: Tensor, points: Tensor, rivals: Tensor, further: float) -> Tensor:
    """The shortest step to a boundary where f_k = f_y, if they were affine, and `further` beyond it [rows, ...].

    Zero where nothing has a slope.
    """
    way = torch.zeros_like(points)
    distance = points.new_full((len(points),), math.inf)
    span = torch.zeros_like(distance)  # of the gradient whose boundary is the nearest so far
    for ahead, gradient, length in problem.slopes(rows, points, rivals):
        found = ahead.abs().div_(length)
        closer = found < distance  # False where there is no slope: the distance is infinite, or 0 / 0.
        if problem.waits:
            way = better(way, gradient, closer)
        else:
            chosen = closer.nonzero().squeeze(1)
            way.index_copy_(0, chosen, take(gradient, chosen))
        distance, span = torch.where(closer, found, distance), torch.where(closer, length, span)
    return way.mul_(like(((distance + further) / span).nan_to_num(0.0, 0.0, 0.0), way))
