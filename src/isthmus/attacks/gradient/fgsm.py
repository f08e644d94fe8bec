"""The fast gradient sign method: one step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack, GradientSettings, check_epsilon, check_radius
from isthmus.attacks.gradient.parts.ascent import ascend
from isthmus.attacks.gradient.parts.problem import Problem
from isthmus.attacks.gradient.parts.spaces import Ball, Norm


@dataclass(frozen=True, kw_only=True)
class FGSM(GradientAttack):
    """One step of the full radius along the sign of the gradient.

        x' = clip( x + ε sign ∇_x CE(f(x), y) )                  l2:  x' = clip( x + ε g / ‖g‖₂ )

    Every coordinate moves by ε exactly, but for the box and for coordinates whose gradient is zero.

    References:
        Goodfellow, Shlens and Szegedy (2015), Explaining and Harnessing Adversarial Examples,
        https://arxiv.org/abs/1412.6572.

    Where we depart:
        The gradient is rescaled row by row, its direction kept, so that a confident model, whose cross-entropy is flat
        in float32, still has one.

    Relations:
        `bim` with one step of ε is this attack. A model that is trained on it alone can learn to hide from it: never
        report it without `pgd`.

    Example:
        ``FGSM(epsilon=0.3).run(model, images, labels)``
    """

    epsilon: float = 0.3
    """ε: radius of the ball, in the scale of the inputs (pixels: 0 to 1)."""
    norm: Norm = "linf"
    """Norm of the ball: linf or l2."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon, self.norm)

    def check(self, inputs: Tensor, settings: GradientSettings) -> None:
        """Refuse a ball larger than the box."""
        check_radius(self.epsilon, self.norm, inputs, settings.bounds)

    @property
    def is_steady(self) -> bool:
        """True: it makes one step from the input."""
        return True

    def search(self, problem: Problem) -> Tensor:
        """Make the step."""
        ball = Ball(self.norm, self.epsilon, problem.inputs, problem.space)
        return ascend(problem, ball, problem.inputs, problem.every, 1, self.epsilon, stop=False)
