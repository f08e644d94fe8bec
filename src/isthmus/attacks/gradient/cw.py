"""Carlini and Wagner's attack: the smallest perturbation, by Adam."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from isthmus.attacks.gradient.base import GradientAttack
from isthmus.attacks.gradient.parts.ascent import better
from isthmus.attacks.gradient.parts.losses import margin
from isthmus.attacks.gradient.parts.problem import LabelGoal, Problem, SlopedLoss
from isthmus.attacks.gradient.parts.spaces import lengths, like, take
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
        adam = _Adam(way.w, settings.learning_rate)
        lowest = torch.full_like(self.length, math.inf)  # loss of each row so far
        before, shortest = lowest.clone(), self.length.clone()  # loss and length when they were last looked at
        c, weight = self.c, self.c.to(way.w.dtype) * -way.scale
        shortfall = _Shortfall(settings.confidence)
        every = math.ceil(settings.steps / _CHECKS)
        for step in range(settings.steps):
            points = way.points()
            slope = problem.slope(rows, points, shortfall)
            moves = points - way.inputs
            distance = lengths(moves).square().double()
            clear = slope.loss >= 0 if slope.logits.shape[1] == 1 else self._clear(slope.logits, rows)
            self._keep(rows, points, distance, slope.fooled & clear)
            torch.minimum(lowest, distance.addcmul(c, slope.loss, value=-1), out=lowest)
            gradient = slope.gradient
            if settings.abort_early and step and step % every == 0:
                going = (lowest <= _PROGRESS * before) | (self.length[rows] < shortest)
                before, shortest = lowest.clone(), self.length[rows]
                if not bool(going.all()):
                    kept = going.nonzero().squeeze(1)
                    if not len(kept):
                        return
                    way, adam = way.at(kept), adam.at(kept)
                    rows, c, moves, gradient, lowest, before, shortest = (
                        take(each, kept) for each in (rows, c, moves, gradient, lowest, before, shortest)
                    )
                    weight = c.to(moves.dtype) * -way.scale
            adam.step(way, gradient, moves, weight)
        points = way.points()
        logits = problem.logits(rows, points)
        distance = lengths(points - way.inputs).square().double()
        self._keep(rows, points, distance, problem.is_fooled(rows, logits) & self._clear(logits, rows))

    def _clear(self, logits: Tensor, rows: Tensor) -> Tensor:
        return margin(logits, self.problem.goal.at(rows)).mean(dim=1) >= self.settings.confidence

    def _keep(self, rows: Tensor, points: Tensor, distance: Tensor, found: Tensor) -> None:
        self.found[rows] |= found
        shorter = found & (distance < self.length[rows])
        if self.problem.waits:
            self.length[rows] = torch.where(shorter, distance, self.length[rows])
            self.best[rows] = better(self.best[rows], points, shorter)
            return
        chosen = shorter.nonzero().squeeze(1)
        if len(chosen):
            self.length[rows[chosen]] = distance[chosen]
            self.best.index_copy_(0, rows[chosen], take(points, chosen))


class _Shortfall(SlopedLoss):
    """The margin less κ where that is below 0, else 0."""

    def __init__(self, confidence: float) -> None:
        self.confidence = confidence

    def __call__(self, logits: Tensor, goal: LabelGoal) -> Tensor:
        """The loss of each draw [rows, draws]."""
        return (margin(logits, goal) - self.confidence).clamp(max=0.0)

    def with_slope(self, logits: Tensor, goal: LabelGoal) -> tuple[Tensor, Tensor]:
        """The same with its slope, which is zero where nothing is lacking."""
        value, slope = margin.with_slope(logits, goal)
        value.sub_(self.confidence)
        return value.clamp(max=0.0), slope.mul_((value <= 0).unsqueeze(2))


class _Way:
    """The map from w to points.

    (tanh w + 1) / 2 is the logistic function of 2 w, which takes a twentieth of the time of a tanh: `w` is 2 w here.
    Its gradient is `scale` times that of the points, times s (1 - s) for the share s of the box.
    """

    def __init__(self, problem: Problem, rows: Tensor, inside: float) -> None:
        self.inputs, self.space = take(problem.inputs, rows), problem.space.at(rows)
        self.share: Tensor | None = None  # of the box, in (0, 1)
        if self.space.bounds is None:
            self.pace, self.scale, self.w = 1, 1.0, torch.zeros_like(self.inputs)
        else:
            low, high = self.space.bounds
            self.pace, self.scale = 2, 2 * (high - low)
            # x = low + (high - low) (tanh w + 1) / 2 solved for w, a little inside the box, where w is finite.
            self.w = (((self.inputs - low) * (2 / (high - low)) - 1) * (1 - inside)).atanh_().mul_(2)

    def at(self, rows: Tensor) -> _Way:
        """The map for some of the rows."""
        part = _Way.__new__(_Way)
        part.pace, part.scale = self.pace, self.scale
        part.inputs, part.space, part.w = take(self.inputs, rows), self.space.at(rows), take(self.w, rows)
        part.share = None if self.share is None else take(self.share, rows)
        return part

    def points(self) -> Tensor:
        """The points of w."""
        if self.space.bounds is None:
            return self.inputs + self.w
        low, high = self.space.bounds
        points = self.share = self.w.sigmoid()
        if low != 0 or high != 1:  # Here rounding may leave the box.
            points = points.mul(high - low).add_(low).clamp_(low, high)
        return points if self.space.movable is None else torch.where(self.space.movable, points, self.inputs)


class _Adam:
    """Adam on w, without a graph: the loss of the points is known by its gradient and the moves from the inputs."""

    def __init__(self, w: Tensor, rate: float) -> None:
        self.rate, self.count = rate, 0
        self.first, self.second = torch.zeros_like(w), torch.zeros_like(w)

    def at(self, rows: Tensor) -> _Adam:
        """The state of some of the rows."""
        part = _Adam.__new__(_Adam)
        part.rate, part.count = self.rate, self.count
        part.first, part.second = take(self.first, rows), take(self.second, rows)
        return part

    def step(self, way: _Way, gradient: Tensor, moves: Tensor, weight: Tensor) -> None:
        """Move w against `weight` times the gradient, plus 2 `way.scale` times the moves, both of which are used up."""
        self.count += 1
        scale = math.sqrt(1 - _SECOND**self.count)
        length = way.pace * self.rate * scale / (1 - _FIRST**self.count)
        gradient.mul_(like(weight, moves)).add_(moves, alpha=2 * way.scale)
        if way.share is not None:
            torch.ops.aten.sigmoid_backward.grad_input(gradient, way.share, grad_input=gradient)
        self.first.lerp_(gradient, 1 - _FIRST)
        self.second.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
        root = torch.sqrt(self.second, out=moves).add_(_TINY * scale)
        way.w.addcdiv_(self.first, root, value=-length)
