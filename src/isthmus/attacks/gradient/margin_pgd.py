"""Projected gradient descent on the margin to each other class in turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.ascent import AscentAttack, random_start
from isthmus.attacks.gradient.parts.losses import margin, towards
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball
from isthmus.attacks.gradient.parts.turns import Best, TurnSlope, classes_in_turn, take_turn
from isthmus.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class MarginPGD(AscentAttack):
    """Small steps on the difference of two logits, towards each other class in turn, the most likely first.

        x_0 = x,     x_{t+1} = Π_ε( x_t + α sign g ),   g = 1/k Σ_j ∇ (f_c - f_y)(x_t, ω_j)        l2:  α g / ‖g‖₂

    Turn after turn c is the next class other than the label y; once every class had its turn, turns begin at random
    points of the ball. Of all points on the way the best is kept: a larger share of the k draws of a randomised model
    that are fooled comes first, then a larger margin.

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu (2018), Towards Deep Learning Models Resistant to Adversarial
        Attacks, https://arxiv.org/abs/1706.06083; Carlini and Wagner (2017), Towards Evaluating the Robustness of
        Neural Networks, https://arxiv.org/abs/1608.04644 (margin); Athalye, Carlini and Wagner (2018), Obfuscated
        Gradients Give a False Sense of Security, https://arxiv.org/abs/1802.00420 (draws).

    Where we depart:
        The margin in place of the cross-entropy: it does not flatten where a model is confident, and on an affine model
        a turn ends at the point of the ball nearest to its class.

    Relations:
        `pgd` climbs the cross-entropy, away from the label. `auto` chooses its own step sizes. The measure
        `embedding_pgd` and the certificate `gaussian` run this ascent in l2 balls around the embeddings of a text.

    Example:
        ``MarginPGD(epsilon=0.3, steps=40).run(model, images, labels)``
    """

    takes_targets: ClassVar[bool] = False

    stop: bool = True
    """Whether a row that is fooled is left out of later turns. A randomised model's rows take every turn."""
    restarts: int = 9
    """Number of turns: first the target classes, then random starting points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts < 1:
            raise UsageError(f"restarts must be at least 1, not {self.restarts}")

    def search(self, problem: Problem) -> Tensor:
        """Attack towards one target class after the other."""
        ball, rows = Ball(self.norm, self.epsilon, problem.inputs, problem.space), problem.every
        order = classes_in_turn(problem.logits(rows, problem.inputs).mean(dim=1), problem.goal.label)
        best = Best.unknown(problem.inputs)
        for turn in range(self.restarts):
            begins = problem.inputs[rows] if turn < order.shape[1] else random_start(problem, ball, rows, turn)
            ended = self._turn(problem, ball, rows, begins, order[rows, turn % order.shape[1]], _at(best, rows))
            best = Best(*(_put(old, rows, new) for old, new in zip(best, ended, strict=True)))
            if self.stop and not problem.stochastic:
                rows = rows[ended.fooled <= 0.5]
            if not len(rows):
                break
        return ball.confine(best.point)

    def _turn(self, problem: Problem, ball: Ball, rows: Tensor, point: Tensor, rival: Tensor, best: Best) -> Best:
        inside, goal, loss = ball.at(rows), problem.goal.at(rows), towards(rival)

        def slope_at(at: Tensor, number: int) -> TurnSlope:
            if number < self.steps:
                slope = problem.slope(rows, at, loss)
                values, logits = slope.gradient, slope.logits
            else:
                values, logits = torch.zeros_like(at), problem.logits(rows, at)
            shares = goal.is_reached(logits).double().mean(dim=1)
            return TurnSlope(values, logits.mean(dim=1), shares, margin(logits, goal).mean(dim=1))

        def move(at: Tensor, gradient: Tensor) -> Tensor:
            return inside.step(at, gradient, self.length)

        return take_turn(point, self.steps, slope_at, move, best)


def _at(best: Best, rows: Tensor) -> Best:
    return Best(*(value[rows] for value in best))


def _put(old: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    old = old.clone()
    old[rows] = new
    return old
