"""Carlini and Wagner's attack: the smallest perturbation, by Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack
from isthmus.attacks.gradient.parts.ascent import better
from isthmus.attacks.gradient.parts.losses import margin
from isthmus.attacks.gradient.parts.problem import LabelGoal, Problem
from isthmus.attacks.gradient.parts.spaces import lengths, like
from isthmus.core.errors import UsageError

_CHECKS = 10
"""How often in an optimisation a row's progress is looked at."""
_PROGRESS = 0.9999
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True, kw_only=True)
class CW(GradientAttack):
    """The smallest perturbation that changes the prediction, by Adam on its size and the margin together.

        minimise  ‖x' - x‖₂² + c max( f_y - max_{i != y} f_i + κ, 0 ),    x' = lower + (upper - lower) (tanh w + 1) / 2
        towards t:  max_{i != t} f_i - f_t  in place of  f_y - max_{i != y} f_i;   without a box  x' = x + w

    With one search c is fixed. With more, c of a row is multiplied by 10 until it succeeds, and then bisected; the
    shortest move of all is kept. w begins a little inside the box, so that pixels of exactly 0 or 1 have a slope.

    References:
        Carlini and Wagner (2017), Towards Evaluating the Robustness of Neural Networks, https://arxiv.org/abs/1608.04644.

    Where we depart:
        A row whose lowest loss and shortest move do not fall over a tenth of the steps ends its search alone
        (`abort_early`); in the authors' code the whole batch ends together. 1,000 steps by default, where the authors
        have 10,000, and a start further inside the box (`inside`).

    Relations:
        `deepfool` is far quicker and ends a little further away. Fixed c = 0.1 is how information-bottleneck papers use
        it, ten searches from c = 0.001 with a learning rate of 5e-4 how VUB's do.

    Example:
        ``CW(c=0.1, searches=1).run(model, images, labels)``
    """

    c: float = 0.001
    """c: weight of the margin; the first one where several are tried."""
    searches: int = 9
    """Number of values of c; 1: c is fixed."""
    steps: int = 1000
    """Number of Adam steps for each c."""
    learning_rate: float = 0.01
    """Learning rate of Adam."""
    confidence: float = 0.0
    """κ: minimum lead of the other class."""
    abort_early: bool = True
    """Whether a row without progress ends its search before the last step."""
    inside: float = 1e-3
    """How far inside the box w begins, as a share of its half width. The authors have 1e-6; there Adam's own 1e-8
    outweighs the gradient of a pixel of 0 or 1, and an image of nothing else stays as it is."""

    def __post_init__(self) -> None:
        for name in ("searches", "steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("c", "learning_rate"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise UsageError(f"{name} is a number above 0, not {getattr(self, name)}")
        if not 0 < self.inside < 1:
            raise UsageError(f"inside is a share above 0 and below 1, not {self.inside}")
        if not (math.isfinite(self.confidence) and self.confidence >= 0):
            raise UsageError(f"confidence is 0 or more, not {self.confidence}")

    def search(self, problem: Problem) -> Tensor:
        """One optimisation for each c; rows that no c fooled stay at their input."""
        work = _Search(self, problem)
        for number in range(self.searches):
            if number == self.searches - 1 and self.searches >= 10:
                work.c = torch.where(work.upper.isfinite(), work.upper, work.c)
            work.optimise()
            work.choose_c()
        return work.best


class _Search:
    """The state of every row: the best points so far, and the next c."""

    def __init__(self, settings: CW, problem: Problem) -> None:
        self.settings, self.problem = settings, problem
        inputs = problem.inputs
        self.best, self.length = inputs.clone(), inputs.new_full((len(inputs),), math.inf, dtype=torch.float64)
        self.c = torch.full_like(self.length, settings.c)
        self.lower, self.upper = torch.zeros_like(self.length), torch.full_like(self.length, math.inf)
        self.found = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)

    def choose_c(self) -> None:
        """Bisect if a c succeeded; else multiply c by ten."""
        self.upper = torch.where(self.found, torch.minimum(self.upper, self.c), self.upper)
        self.lower = torch.where(self.found, self.lower, torch.maximum(self.lower, self.c))
        middle = (self.lower + self.upper) / 2
        self.c = torch.where(self.upper.isfinite(), middle, self.c * 10)

    def optimise(self) -> None:
        """Run Adam from the inputs, with each row's own c; finished rows are dropped with their moments."""
        settings, problem = self.settings, self.problem
        self.found.zero_()
        rows = problem.every
        way = _Way(problem, rows, settings.inside)
        first, second = torch.zeros_like(way.w), torch.zeros_like(way.w)
        lowest = torch.full_like(self.length, math.inf)  # loss of each row so far
        before, shortest = lowest.clone(), self.length.clone()  # loss and length when they were last looked at
        weight = self.c.to(way.w.dtype)
        every = math.ceil(settings.steps / _CHECKS)
        for step in range(settings.steps):
            points = way.points()
            slope = problem.slope(rows, points, self._shortfall)
            moves = points - way.inputs
            distance = lengths(moves).square()
            clear = slope.loss >= 0 if slope.logits.shape[1] == 1 else self._clear(slope.logits, rows)
            self._keep(rows, points, distance, slope.fooled & clear)
            loss = distance.double() - self.c[rows] * slope.loss
            lowest[rows] = torch.minimum(lowest[rows], loss)
            if settings.abort_early and step and step % every == 0:
                going = (lowest[rows] <= _PROGRESS * before[rows]) | (self.length[rows] < shortest[rows])
                before[rows], shortest[rows] = lowest[rows], self.length[rows]
                if not bool(going.all()):
                    rows, way, weight, moves = rows[going], way.at(going), weight[going], moves[going]
                    first, second = first[going], second[going]
                    if not len(rows):
                        return
                    slope = slope._replace(gradient=slope.gradient[going])
            half = way.half
            gradient = way.back(slope.gradient.mul_(like(-half * weight, moves)).add_(moves, alpha=2 * half))
            first.lerp_(gradient, 1 - _FIRST)
            second.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            scale = math.sqrt(1 - _SECOND ** (step + 1))
            length = settings.learning_rate * scale / (1 - _FIRST ** (step + 1))
            way.w.addcdiv_(first, second.sqrt().add_(_TINY * scale), value=-length)
        points = way.points()
        logits = problem.logits(rows, points)
        distance = lengths(points - way.inputs).square()
        self._keep(rows, points, distance, problem.is_fooled(rows, logits) & self._clear(logits, rows))

    def _shortfall(self, logits: Tensor, goal: LabelGoal) -> Tensor:
        return (margin(logits, goal) - self.settings.confidence).clamp(max=0.0)

    def _clear(self, logits: Tensor, rows: Tensor) -> Tensor:
        return margin(logits, self.problem.goal.at(rows)).mean(dim=1) >= self.settings.confidence

    def _keep(self, rows: Tensor, points: Tensor, distance: Tensor, found: Tensor) -> None:
        self.found[rows] |= found
        shorter = found & (distance.double() < self.length[rows])
        if self.problem.waits:
            self.length[rows] = torch.where(shorter, distance.double(), self.length[rows])
            self.best[rows] = better(self.best[rows], points, shorter)
        elif bool(shorter.any()):
            chosen = rows[shorter]
            self.length[chosen] = distance[shorter].double()
            self.best[chosen] = points[shorter]


class _Way:
    """The map from w to points, and from gradients at the points to gradients at w."""

    def __init__(self, problem: Problem, rows: Tensor, inside: float) -> None:
        self.inputs, self.space = problem.inputs[rows], problem.space.at(rows)
        self._tanh: Tensor | None = None
        if self.space.bounds is None:
            self.w = torch.zeros_like(self.inputs)
        else:
            low, high = self.space.bounds
            # x = low + half (tanh w + 1) solved for w, a little inside the box, where w is finite.
            self.w = (((self.inputs - low) * (2 / (high - low)) - 1) * (1 - inside)).atanh_()

    def at(self, rows: Tensor) -> _Way:
        """The map for some of the rows."""
        part = _Way.__new__(_Way)
        part.inputs, part.space, part.w = self.inputs[rows], self.space.at(rows), self.w[rows]
        part._tanh = None if self._tanh is None else self._tanh[rows]
        return part

    @property
    def half(self) -> float:
        """Half the width of the box; gradients are multiplied by it before `back`."""
        return 1.0 if self.space.bounds is None else (self.space.bounds[1] - self.space.bounds[0]) / 2

    def points(self) -> Tensor:
        """The points of w."""
        if self.space.bounds is None:
            return self.inputs + self.w
        low, high = self.space.bounds
        self._tanh = self.w.tanh()
        points = self._tanh.add(1).mul_(self.half)
        if low != 0 or high != 1:  # Elsewhere rounding may leave the box.
            points = points.add_(low).clamp_(low, high)
        return points if self.space.movable is None else torch.where(self.space.movable, points, self.inputs)

    def back(self, gradient: Tensor) -> Tensor:
        """The gradient with respect to w of what has `half` times this one at the points."""
        if self.space.movable is not None:
            gradient.mul_(self.space.movable)
        return gradient if self._tanh is None else torch.ops.aten.tanh_backward(gradient, self._tanh)
