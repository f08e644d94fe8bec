"""Projected gradient descent: small steps from random points of the ball."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.ascent import AscentAttack, ascend, better, random_start
from isthmus.attacks.gradient.parts.losses import label_cross_entropy
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball
from isthmus.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PGD(AscentAttack):
    """Small steps along the sign of the gradient, each followed by a projection, from random points of the ball.

        x_0 ~ U(ball),     x_{t+1} = Π_ε( x_t + α sign ∇ CE(f(x_t), y) )         l2:  α g / ‖g‖₂ in place of α sign g
        g = 1/k Σ_j ∇ CE(f(x_t, ω_j), y)                            k shared draws ω_j of a randomised model

    Π_ε is the nearest point that is inside the ball of radius ε around x and inside the box. Rows that are not fooled
    begin again at another point, `restarts` times; of several failures that with the highest loss is kept.

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu (2018), Towards Deep Learning Models Resistant to Adversarial
        Attacks, https://arxiv.org/abs/1706.06083; Athalye, Carlini and Wagner (2018), Obfuscated Gradients Give a False
        Sense of Security, https://arxiv.org/abs/1802.00420 (draws).

    Where we depart:
        A row is done as soon as it is fooled (`stop`); the paper makes every step and takes the last point.

    Relations:
        `bim` begins at the input. `auto` chooses its own step sizes and is stronger. For adversarial training pass
        stop=False, and skip_wrong=False to `run`. The measure `embedding_pgd` is this attack in l2 on embeddings, on
        the margin to one class after the other.

    Example:
        ``PGD(epsilon=0.3, steps=40, restarts=5).run(model, images, labels)``
    """

    restarts: int = 1
    """Number of starting points."""
    random_start: bool = True
    """Whether the first starting point is random; without, it is the input."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.restarts < 1:
            raise UsageError(f"restarts must be at least 1, not {self.restarts}")

    @property
    def is_steady(self) -> bool:
        """True if every step is made, from the input and without restarts."""
        return not self.stop and not self.random_start and self.restarts == 1

    def search(self, problem: Problem) -> Tensor:
        """Search from one starting point after the other."""
        ball, stop = Ball(self.norm, self.epsilon, problem.inputs, problem.space), self.stop and not problem.stochastic
        found, rows = problem.inputs.clone(), problem.every
        highest = torch.full((len(rows),), -math.inf, dtype=torch.float64, device=rows.device)
        reached = torch.zeros_like(rows, dtype=torch.bool)
        for turn in range(self.restarts):
            random = self.random_start or turn > 0
            start = random_start(problem, ball, rows, turn) if random else problem.inputs[rows]
            ended = ascend(problem, ball, start, rows, self.steps, self.length, stop)
            if self.restarts == 1:
                return ended
            logits = problem.logits(rows, ended)
            loss, fooled = (
                label_cross_entropy(logits, problem.goal.at(rows)).mean(dim=1),
                problem.is_fooled(rows, logits),
            )
            replaces = (fooled & ~reached[rows]) | ((fooled == reached[rows]) & (loss > highest[rows]))
            found[rows] = better(found[rows], ended, replaces)
            highest[rows], reached[rows] = torch.where(replaces, loss, highest[rows]), fooled | reached[rows]
            if stop:
                rows = rows[~fooled]
            if not len(rows):
                break
        return found
