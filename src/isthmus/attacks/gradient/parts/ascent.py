"""Gradient ascent in a ball with steps of one length: shared by FGSM, BIM and PGD."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack, GradientSettings, check_epsilon, check_radius
from isthmus.attacks.gradient.parts.losses import label_cross_entropy
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball, Gaps, Norm, like, take
from isthmus.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class AscentAttack(GradientAttack):
    """An attack that climbs the loss inside a ball."""

    epsilon: float = 0.3
    """ε: radius of the ball, in the scale of the inputs (pixels: 0 to 1)."""
    norm: Norm = "linf"
    """Norm of the ball: linf or l2."""
    steps: int = 40
    """Number of steps from one starting point."""
    step_size: float | None = None
    """α: length of a step, in the scale of the inputs; by default 2.5 ε / steps."""
    stop: bool = True
    """Whether a row is done as soon as it is fooled; without, every step is made and the last point is kept. A
    randomised model's rows always make every step."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon, self.norm)
        if self.steps < 1:
            raise UsageError(f"steps must be at least 1, not {self.steps}")
        if self.step_size is not None and not (math.isfinite(self.step_size) and self.step_size > 0):
            raise UsageError(f"step_size is a length above 0, not {self.step_size}")

    def check(self, inputs: Tensor, settings: GradientSettings) -> None:
        """Refuse a ball larger than the box."""
        check_radius(self.epsilon, self.norm, inputs, settings.bounds)

    @property
    def length(self) -> float:
        """Length of a step."""
        return 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size


def ascend(problem: Problem, ball: Ball, start: Tensor, rows: Tensor, steps: int, length: float, stop: bool) -> Tensor:
    """From `start` [rows, ...] make `steps` steps on the cross-entropy; with `stop` a row is done once it is fooled.

    Whether a row is fooled where the last step led is not looked at: its judge does that.
    """
    inside = ball.at(rows)
    if not stop:
        for _ in range(steps):
            start = inside.step(start, problem.slope(rows, start, label_cross_entropy).gradient, length)
        return inside.confine(start)
    found, left, points = start.clone(), torch.arange(len(rows), device=rows.device), start
    end, done = start, torch.zeros_like(left, dtype=torch.bool)
    for step in range(steps):
        slope = problem.slope(rows[left], points, label_cross_entropy)
        before, points = points, inside.step(points, slope.gradient, length)
        # Where every step is looked at, nobody is done from before.
        end = better(end, before, slope.fooled & ~done) if problem.waits else before
        done = done | slope.fooled if problem.waits else slope.fooled
        if problem.looks(step) and bool(done.any()):
            ended, gaps = done.nonzero().squeeze(1), Gaps.of(done)
            found.index_copy_(0, left[ended], inside.at(ended).confine(take(end, ended)))
            if not gaps.left:
                return found
            left, points, inside = gaps.close(left), gaps.close(points), inside.keep(gaps)
            if problem.waits:
                end, done = gaps.close(end), gaps.close(done)
    found.index_copy_(0, left, inside.confine(better(points, end, done) if problem.waits else points))
    return found


def random_start(problem: Problem, ball: Ball, rows: Tensor, turn: int) -> Tensor:
    """A uniform random point of each row's ball, from the row's own stream."""
    drawn = problem.uniform if ball.norm == "linf" else problem.normal
    radii = problem.uniform(rows, f"radius {turn}", ()) if ball.norm == "l2" else torch.ones(len(rows))
    inside = ball if rows is problem.every else ball.at(rows)
    return inside.uniform(drawn(rows, f"start {turn}"), radii)


def better(old: Tensor, new: Tensor, replaces: Tensor) -> Tensor:
    """The new point of each row where `replaces` is True, else the old one."""
    return torch.where(like(replaces, old), new, old)
