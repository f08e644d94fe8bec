"""The ensemble of AutoAttack: four attacks without a parameter to tune."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack, GradientSettings, check_epsilon, check_radius
from isthmus.attacks.gradient.parts.apgd import LossOf, climb
from isthmus.attacks.gradient.parts.ascent import better, random_start
from isthmus.attacks.gradient.parts.fab import walk
from isthmus.attacks.gradient.parts.losses import label_cross_entropy, margin, towards
from isthmus.attacks.gradient.parts.problem import Loss, Problem
from isthmus.attacks.gradient.parts.spaces import Ball, Norm
from isthmus.attacks.gradient.parts.square import roam
from isthmus.core.errors import UsageError

_SURE = 0.9
"""Share of a search's own draws that must be fooled before a row of a randomised model is left alone."""


@dataclass(frozen=True, kw_only=True)
class Auto(GradientAttack):
    """Four attacks in turn, each on the rows that withstood the ones before: a row is robust if it withstood all.

        APGD    ascent on log Σ_i e^{f_i} - f_y,  then on  f_t - f_y  for each rival t;  step sizes of its own
        FAB     walk towards f_t = f_y for each rival t, the smallest move inside the box
        Square  random windows of ±ε, kept where  max_{i != y} f_i - f_y  grew; needs no gradient

    A robust accuracy under this attack is comparable between models because nothing is chosen for any of them.

    References:
        Croce and Hein (2020), Reliable Evaluation of Adversarial Robustness with an Ensemble of Diverse Parameter-free
        Attacks, https://arxiv.org/abs/2003.01690; Croce and Hein (2020), Minimally Distorted Adversarial Examples with
        a Fast Adaptive Boundary Attack, https://arxiv.org/abs/1907.02044; Andriushchenko, Croce, Flammarion and Hein
        (2020), Square Attack, https://arxiv.org/abs/1912.00049.

    Where we depart:
        The second loss is the plain difference of two logits and not the difference of logits ratio, which divides by
        the gap between the best and the third class and so needs three: the plain one is valid for two classes. Both
        ignore the scale of the logits, since only signs of gradients and comparisons within a row are used. In l2 there
        is no Square. Where it finds no gradient, Square still searches.

    Relations:
        `pgd` costs less and is weaker, most of all where gradients are small. What holds against this attack may still
        fall to one made for the model.

    Example:
        ``Auto(epsilon=0.3).run(model, images, labels).robust``
    """

    takes_targets: ClassVar[bool] = False

    epsilon: float = 0.3
    """ε: radius of the ball, in the scale of the inputs (pixels: 0 to 1)."""
    norm: Norm = "linf"
    """Norm of the ball: linf or l2."""
    steps: int = 100
    """Number of steps of each ascent and each walk."""
    restarts: int = 1
    """Number of random starting points of the ascent on the cross-entropy; each later ascent has one."""
    rivals: int = 9
    """Number of target classes, the most likely ones of the input."""
    queries: int = 5000
    """Maximum number of queries of Square."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon, self.norm)
        for name in ("steps", "restarts", "rivals", "queries"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    def check(self, inputs: Tensor, settings: GradientSettings) -> None:
        """Refuse a ball larger than the box."""
        check_radius(self.epsilon, self.norm, inputs, settings.bounds)

    def search(self, problem: Problem) -> Tensor:
        """Run one attack after the other on the remaining rows."""
        ball = Ball(self.norm, self.epsilon, problem.inputs, problem.space)
        left = problem.every
        found, score = problem.inputs.clone(), torch.full_like(left, -torch.inf, dtype=torch.float64)
        for attempt in self._attempts(problem, ball):
            points = attempt(left)
            logits, goal = problem.logits(left, points), problem.goal.at(left)
            share, ahead = goal.is_reached(logits).double().mean(dim=1), margin(logits, goal).mean(dim=1)
            value = share + 1e-4 * ahead / (1 + ahead.abs())  # More draws fooled come first, then a larger margin.
            higher = value > score[left]
            found[left], score[left] = better(found[left], points, higher), torch.where(higher, value, score[left])
            left = left[share <= (_SURE if problem.stochastic else 0.5)]
            if not len(left):
                break
        return found

    def _attempts(self, problem: Problem, ball: Ball) -> Iterator[Callable[[Tensor], Tensor]]:
        """Yield the attacks as functions from the remaining rows to points of their balls."""
        stop, rivals = not problem.stochastic, problem.rivals(self.rivals)

        def ascent(left: Tensor, turn: int, loss: LossOf) -> Tensor:
            return climb(problem, ball, left, random_start(problem, ball, left, turn), loss, self.steps, stop)

        def boundary(left: Tensor, target: Tensor) -> Tensor:
            own = ball.at(left)
            return own.confine(own.project(walk(problem, ball, left, target[left], self.steps)))

        def aim(rows: Tensor, target: Tensor) -> Loss:
            return towards(target[rows])

        for turn in range(self.restarts):
            yield partial(ascent, turn=turn, loss=lambda _: label_cross_entropy)
        for number, target in enumerate(rivals.unbind(1)):
            yield partial(ascent, turn=self.restarts + number, loss=partial(aim, target=target))
        for target in rivals.unbind(1):
            yield partial(boundary, target=target)
        if self.norm == "linf":
            yield lambda left: roam(problem, ball, left, self.queries)
