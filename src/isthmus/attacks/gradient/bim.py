"""The basic iterative method: small steps from the input."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from isthmus.attacks.gradient.parts.ascent import AscentAttack, ascend
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball


@dataclass(frozen=True, kw_only=True)
class BIM(AscentAttack):
    """Small steps along the sign of the gradient, each followed by a projection, starting at the input.

        x_0 = x,     x_{t+1} = Π_ε( x_t + α sign ∇ CE(f(x_t), y) )          l2:  α g / ‖g‖₂ in place of α sign g

    Π_ε is the nearest point that is inside the ball of radius ε around x and inside the box.

    References:
        Kurakin, Goodfellow and Bengio (2017), Adversarial Examples in the Physical World,
        https://arxiv.org/abs/1607.02533.

    Where we depart:
        A row is done as soon as it is fooled (`stop`); the paper makes every step.

    Relations:
        `fgsm` is one step of ε; `pgd` begins at a random point of the ball and may begin again.

    Example:
        ``BIM(epsilon=0.2, steps=20).run(model, images, labels)``
    """

    @property
    def is_steady(self) -> bool:
        """True if every step is made, also for fooled rows."""
        return not self.stop

    def search(self, problem: Problem) -> Tensor:
        """Make the steps, starting at the inputs."""
        ball, stop = Ball(self.norm, self.epsilon, problem.inputs, problem.space), self.stop and not problem.stochastic
        return ascend(problem, ball, problem.inputs, problem.every, self.steps, self.length, stop)
