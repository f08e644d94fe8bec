"""The base class of gradient attacks. A new attack only writes `search`.

    result = PGD(epsilon=0.3).run(model, images, labels)
    result = CW(c=0.1).run(model, images, labels, targets=targets, seed=1)

`run` checks what it is given, puts the model into evaluation mode with the gradients of its parameters off, attacks the
rows that are answered correctly, and judges what comes back: success is what the model says at the final points. A
randomised model is judged on fresh draws that the search never saw, and more than half of them decide.

A row's result depends on its input, label, key and the settings, and on no other row: random numbers come from the
row's key, and decisions are made row by row. What the arithmetic of a model adds in the last bits when a batch has
another size is beyond that promise, and so is the noise of a model that draws from torch's global generator.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from isthmus.arithmetic.randomness import branch, copy_keys, mix64
from isthmus.attacks.gradient.parts.checks import check_inputs, check_labels, check_logits, check_movable
from isthmus.attacks.gradient.parts.problem import LabelGoal, Passes, Problem
from isthmus.attacks.gradient.parts.spaces import Bounds, Norm, Space, largest, lengths, take
from isthmus.attacks.gradient.parts.targets import Attackable, Draws, GradientTarget, as_target, at_rest
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive

__all__ = ["Attackable", "Draws", "GradientAttack", "GradientResult", "GradientSettings", "GradientTarget"]

_NUMBERS = 1 << 24
"""Numbers in the inputs of a batch at most: attacks keep several tensors of this size, and one for each rival class."""


@dataclass(frozen=True, slots=True)
class GradientSettings:
    """Settings for running a gradient attack, apart from the attack's own parameters."""

    bounds: Bounds | None = (0.0, 1.0)
    """Least and largest value of an input; None where there is no box (embeddings)."""
    seed: int = 0
    draws: int = 10
    """Draws of a randomised model, the same at every point of a search, whose mean is climbed."""
    fresh: int = 20
    """Draws of a randomised model that judge, before and after; the search never sees them."""
    skip_wrong: bool = True
    """Whether rows that are misclassified already are left alone; adversarial training attacks them too."""
    rows: int = 512
    """Rows attacked at once, fewer where rows are large; for a randomised model every draw counts as one."""

    def __post_init__(self) -> None:
        for name in ("draws", "fresh", "rows"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.bounds is not None and not (len(self.bounds) == 2 and -math.inf < self.bounds[0] < self.bounds[1]):
            raise UsageError(f"bounds are the least and the largest value, such as (0.0, 1.0), not {self.bounds}")


@dataclass(frozen=True, slots=True)
class GradientResult:
    """The result of an attack for every row."""

    adversarial: Tensor  # [rows, ...]; a row that was skipped is as it was
    success: Tensor  # whether a row that was right before is answered as wanted [rows]
    skipped: Tensor  # whether a row was not attacked: misclassified before, or with the target already [rows]
    fooled: Tensor  # share of fresh draws that are answered as wanted; 0 or 1 for a model that does not draw [rows]
    predicted: Tensor  # the class of the mean probability over fresh draws [rows]
    blind: Tensor  # masked gradient suspected: the first gradient was zero everywhere, or not a number [rows]
    l2: Tensor  # length of the move [rows], float64
    linf: Tensor  # largest move of a coordinate [rows], float64
    forward: int  # rows times draws that went through the model
    backward: int  # and back

    @property
    def robust(self) -> Tensor:
        """Correct before and not fooled: its mean is the robust accuracy."""
        return ~self.skipped & ~self.success


@dataclass(frozen=True, kw_only=True)
class GradientAttack(ABC):
    """Base class of attacks on tensors. Subclasses are frozen dataclasses of their hyper-parameters."""

    takes_targets: ClassVar[bool] = True
    """Whether it can be told which class to reach."""

    @abstractmethod
    def search(self, problem: Problem) -> Tensor:
        """The points found for all rows of the problem [rows, ...]."""

    def check(self, inputs: Tensor, settings: GradientSettings) -> None:  # noqa: B027 (most have nothing to check)
        """Raise `UsageError` if the parameters do not fit the inputs."""

    @final
    def run(
        self,
        model: Attackable,
        inputs: Tensor,
        labels: Tensor,
        settings: GradientSettings | None = None,
        *,
        targets: Tensor | None = None,
        keys: Tensor | None = None,
        movable: Tensor | None = None,
        **options: Any,
    ) -> GradientResult:
        """Attack every row.

        Args:
            model: A torch module or function from inputs to logits, or a `GradientTarget`.
            inputs: Pixels in the box, or embeddings [rows, ...], float32 or float64.
            labels: The right class of every row, int64 [rows].
            settings: Box, seed, draws; or give these as keyword arguments.
            targets: The class that each row should be taken for; without it any wrong class will do.
            keys: Where a row's random numbers come from, int64 [rows]; by default (seed, number of the row).
            movable: False where a coordinate must stay as it is; broadcast to the inputs.
            options: Fields of `GradientSettings`.
        """
        if settings is not None and options:
            raise UsageError(f"give either settings or {', '.join(options)}, not both")
        settings = settings or GradientSettings(**options)
        inputs = check_inputs(inputs, settings.bounds)
        labels = check_labels("labels", labels, inputs)
        if targets is not None:
            if not self.takes_targets:
                raise UsageError(f"{type(self).__name__} looks for any wrong class: leave targets out")
            targets = check_labels("targets", targets, inputs)
            if bool((targets == labels).any()):
                row = int((targets == labels).nonzero()[0])
                raise UsageError(f"row {row} has its own label {int(labels[row])} as its target: give another class")
        self.check(inputs, settings)
        keys = _mix_keys(keys, inputs, settings.seed)
        space = Space(settings.bounds, check_movable(movable, inputs))
        target = as_target(model)
        with at_rest(target), torch.no_grad():
            work = _AttackRun(self, target, settings, space, labels, targets)
            parts = [work.batch(inputs, keys, rows) for rows in _portions(inputs, target, settings)]
        return _join_parts(parts, work.passes)

    @property
    def is_steady(self) -> bool:
        """Whether a search without draws is the same work on the device every time, so that a GPU may record it.

        That is: every step is made, no number is looked at, and no starting point is drawn.
        """
        return False

    @final
    def move(self, model: Attackable, inputs: Tensor, labels: Tensor, *, seed: int = 0) -> Tensor:
        """The points that `run` finds with ``skip_wrong=False``, without a result: what training needs at every step.

        Inputs are float32 or float64 in [0, 1]. No answer is judged; on a GPU the inputs are taken as they are, and
        nothing is waited for but the search itself.
        """
        settings = GradientSettings(seed=seed, skip_wrong=False, rows=len(inputs))
        inputs = inputs.detach() if inputs.is_cuda else check_inputs(inputs, settings.bounds)
        self.check(inputs, settings)
        target = as_target(model)
        with at_rest(target), torch.no_grad():
            work = _AttackRun(self, target, settings, Space(settings.bounds, None), labels, None)
            keys = _mix_keys(None, inputs, seed)
            parts = [work.found(inputs, keys, rows) for rows in _portions(inputs, target, settings)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class _ResultPart(dict[str, Tensor]):
    """The tensors of a result, for some of the rows."""


class _AttackRun:
    """One attack on all rows, a batch at a time."""

    def __init__(
        self,
        attack: GradientAttack,
        target: GradientTarget,
        settings: GradientSettings,
        space: Space,
        labels: Tensor,
        targets: Tensor | None,
    ) -> None:
        self.attack, self.target, self.settings, self.space = attack, target, settings, space
        self.labels, self.targets, self.passes = labels, targets, Passes()

    def batch(self, inputs: Tensor, keys: Tensor, rows: Tensor) -> _ResultPart:
        """Score, attack, score again."""
        clean = take(inputs, rows)
        before = self._fresh(clean, keys, rows, "clean")
        check_logits(before, self.labels[rows], None if self.targets is None else self.targets[rows])
        wrong = LabelGoal(self.labels[rows], targeted=False).is_reached(before).double().mean(dim=1) > 0.5
        goal = LabelGoal((self.labels if self.targets is None else self.targets)[rows], self.targets is not None)
        done = goal.is_reached(before).double().mean(dim=1) > 0.5
        skipped = (wrong | done) if self.settings.skip_wrong else torch.zeros_like(wrong)
        adversarial, blind = clean.clone(), torch.zeros_like(skipped)
        left = (~skipped).nonzero().squeeze(1)
        if len(left):
            problem = self._problem(take(clean, left), goal.at(left), keys, rows[left], classes=before.shape[-1])
            adversarial.index_copy_(0, left, self.attack.search(problem))
            blind[left] = problem.blind
        after = self._fresh(adversarial, keys, rows, "judge")
        reached = goal.is_reached(after).double().mean(dim=1)
        moves = adversarial.double() - clean
        return _ResultPart(
            adversarial=adversarial, success=(reached > 0.5) & ~skipped, skipped=skipped, fooled=reached, blind=blind,
            predicted=after.double().softmax(dim=-1).mean(dim=1).argmax(dim=-1), l2=lengths(moves), linf=largest(moves),
        )  # fmt: skip

    def found(self, inputs: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
        """The final points of all rows, without scoring them or checking gradients."""
        label = (self.labels if self.targets is None else self.targets)[rows]
        problem = self._problem(inputs[rows], LabelGoal(label, self.targets is not None), keys, rows, watches=False)
        return self.attack.search(problem)

    def _problem(
        self,
        clean: Tensor,
        goal: LabelGoal,
        keys: Tensor,
        rows: Tensor,
        *,
        classes: int | None = None,
        watches: bool = True,
    ) -> Problem:
        return Problem(
            self.target, clean, goal, self.space.at(rows), classes=classes, numbers=rows,
            keys=branch(keys[rows], "search"), draws=self.settings.draws, passes=self.passes, watches=watches,
        )  # fmt: skip

    def _fresh(self, points: Tensor, keys: Tensor, rows: Tensor, purpose: str) -> Tensor:
        """Logits over draws that the search does not see."""
        judge = Problem(
            self.target, points, LabelGoal(self.labels[rows], False), self.space, classes=None, numbers=rows,
            keys=branch(keys[rows], purpose), draws=self.settings.fresh, passes=self.passes,
        )  # fmt: skip
        return judge.logits(judge.every, points)


def _portions(inputs: Tensor, target: GradientTarget, settings: GradientSettings) -> Iterator[Tensor]:
    """Yield the rows in portions that are attacked together."""
    draws = max(settings.draws, settings.fresh) if target.stochastic else 1
    at_once = min(settings.rows, _NUMBERS // inputs[0].numel()) // draws
    yield from torch.split(torch.arange(len(inputs), device=inputs.device), max(1, at_once))


def _join_parts(parts: list[_ResultPart], passes: Passes) -> GradientResult:
    names = [field.name for field in dataclasses.fields(GradientResult) if field.name in parts[0]]
    whole = {name: torch.cat([part[name] for part in parts]) for name in names}
    return GradientResult(**whole, forward=passes.forward, backward=passes.backward)


def _mix_keys(keys: Tensor | None, inputs: Tensor, seed: int) -> Tensor:
    """The rows' keys, mixed with the seed."""
    rows = len(inputs)
    if keys is None:
        signed = derive(seed, "gradient attack") - (1 << 63)
        return copy_keys(torch.full((1,), signed, dtype=torch.int64, device=inputs.device), rows)
    if keys.shape != (rows,) or keys.dtype != torch.int64:
        raise UsageError(f"keys are one int64 for each of the {rows} rows, not {keys.dtype} {tuple(keys.shape)}")
    return branch(mix64(keys.to(inputs.device)), "gradient attack", seed)


def check_epsilon(epsilon: float, norm: Norm) -> None:
    """Raise `UsageError` for an impossible radius."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise UsageError(f"epsilon is a radius, 0 or more, not {epsilon}")
    if norm not in ("linf", "l2"):
        raise UsageError(f"norm is linf or l2, not {norm!r}")


def check_radius(epsilon: float, norm: Norm, inputs: Tensor, bounds: Bounds | None) -> None:
    """Raise `UsageError` for a ball larger than the box, usually a mistake in the unit."""
    if bounds is None:
        return
    side = bounds[1] - bounds[0]
    most = side if norm == "linf" else side * math.sqrt(math.prod(inputs.shape[1:]))
    if epsilon > most:
        raise UsageError(
            f"epsilon {epsilon:g} is larger than the box, whose values lie in [{bounds[0]:g}, {bounds[1]:g}]: "
            f"at most {most:g} ({norm}). Pixels are in the scale from 0 to 1 here: 8 of 255 is {8 / 255:.4f}"
        )
