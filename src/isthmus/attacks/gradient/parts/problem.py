"""A batch of rows under attack: the points, the goal, and how gradients are computed.

An attack names the rows it still works on, so that what is done costs nothing more. The loss of a row is its mean over
the shared draws of the search; whether a row is fooled there, more than half of these draws say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.randomness import branch, copy_keys, draw_normal, draw_uniform
from isthmus.attacks.gradient.parts.spaces import Space, lengths, waits
from isthmus.attacks.gradient.parts.targets import Draws, GradientTarget

Loss = Callable[[Tensor, "LabelGoal"], Tensor]
"""From logits [rows, draws, classes] and goal to what is climbed, one number for each draw [rows, draws]."""


class SlopedLoss(ABC):
    """A loss that knows its own gradient, so that the graph ends at the logits."""

    @abstractmethod
    def __call__(self, logits: Tensor, goal: LabelGoal) -> Tensor:
        """The loss of each draw [rows, draws]."""

    @abstractmethod
    def with_slope(self, logits: Tensor, goal: LabelGoal) -> tuple[Tensor, Tensor]:
        """The same, and its gradient with respect to the logits [rows, draws, classes]."""


_LOOKS = 8
"""Steps from one look for rows that are done to the next, where a look waits for a GPU."""


class LabelGoal(NamedTuple):
    """The goal of the attack for each row."""

    label: Tensor  # the class to leave, or the class to reach [rows]
    targeted: bool

    def at(self, rows: Tensor) -> LabelGoal:
        """The goal for some of the rows."""
        return LabelGoal(self.label[rows], self.targeted)

    def is_reached(self, logits: Tensor) -> Tensor:
        """Whether each draw reaches the goal; False if a logit is not finite."""
        chosen = logits.argmax(dim=-1)
        label = self.label.view(-1, *[1] * (chosen.dim() - 1))
        reached = (chosen == label) if self.targeted else (chosen != label)
        return reached if _all_finite(logits) else reached.logical_and_(logits.isfinite().all(dim=-1))


def _mean(each: Tensor) -> Tensor:
    """The mean over draws [rows]."""
    return each.squeeze(1) if each.shape[1] == 1 else each.mean(dim=1)


def _most(reached: Tensor) -> Tensor:
    """Whether more than half of the draws are True [rows]."""
    return reached.squeeze(1) if reached.shape[1] == 1 else reached.double().mean(dim=1) > 0.5


def _all_finite(values: Tensor) -> bool:
    """Whether all values are known to be finite; a GPU would have to be waited for."""
    return values.device.type == "cpu" and math.isfinite(float(values.sum()))


def _zero_what_is_no_number(values: Tensor) -> Tensor:
    """Replace NaN and infinity by zero, in place."""
    # On a CPU one sum tells that nothing is to be done, at a third of the price.
    return values if _all_finite(values) else values.nan_to_num_(0.0, 0.0, 0.0)


class Slope(NamedTuple):
    """The model's answers at some points, with a gradient."""

    gradient: Tensor  # of the mean loss, zero where nothing may move [rows, ...]
    loss: Tensor  # [rows]
    logits: Tensor  # [rows, draws, classes]
    fooled: Tensor  # [rows]


class Passes:
    """Number of rows sent through the model, each draw counted."""

    def __init__(self) -> None:
        self.forward, self.backward = 0, 0


class Problem:
    """Rows that are attacked together."""

    def __init__(
        self,
        target: GradientTarget,
        inputs: Tensor,
        goal: LabelGoal,
        space: Space,
        *,
        classes: int | None,
        numbers: Tensor,
        keys: Tensor,
        draws: int,
        passes: Passes,
        watches: bool = True,
    ) -> None:
        """`classes` is the target's number of classes, if known; without `watches` no gradient is checked."""
        self.target, self.inputs, self.goal, self.space = target, inputs, goal, space
        self.numbers, self.keys, self.passes = numbers, keys, passes
        self.draws = draws if target.stochastic else 1
        self.blind = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
        self._classes = classes
        self._seen: Tensor | None = torch.zeros_like(self.blind) if watches else None
        self.every = torch.arange(len(inputs), device=inputs.device)
        """The numbers of all rows."""
        self._own: dict[str, Tensor] = {}
        # A batch too small for bits of its own is filled up (`isthmus.arithmetic.machine`).
        self._least = fewest_rows() if inputs.device.type == "cpu" else 1

    @property
    def stochastic(self) -> bool:
        """Whether the target is randomised."""
        return self.target.stochastic

    @property
    def waits(self) -> bool:
        """Whether reading a value waits for the device."""
        return waits(self.inputs)

    def looks(self, step: int) -> bool:
        """Whether finished rows are searched for and dropped at this step; on a GPU only now and then."""
        return not self.waits or step % _LOOKS == _LOOKS - 1

    @property
    def classes(self) -> int:
        """The target's number of classes; the target is queried if it is unknown."""
        if self._classes is None:
            self._classes = self.logits(self.every[:1], self.inputs[:1]).shape[-1]
        return self._classes

    def logits(self, rows: Tensor, points: Tensor, purpose: str = "search") -> Tensor:
        """Logits at some points, without a gradient [rows, draws, classes]."""
        with torch.no_grad():
            return self._forward(rows, points, purpose)

    def is_fooled(self, rows: Tensor, logits: Tensor) -> Tensor:
        """Whether more than half of the draws reach the goal."""
        return _most(self.goal.at(rows).is_reached(logits))

    def slope(self, rows: Tensor, points: Tensor, loss: Loss, purpose: str = "search") -> Slope:
        """The gradient of a loss, with the logits."""
        leaf, goal = points.detach().requires_grad_(True), self.goal.at(rows)
        with torch.enable_grad():
            logits = self._forward(rows, leaf, purpose)
        answers = logits.detach()
        if isinstance(loss, SlopedLoss):
            each, weights = loss.with_slope(answers, goal)
            draws = each.shape[1]
            weights = (weights if draws == 1 else weights * (1 / draws)).to(logits.dtype)
            (gradient,) = self.backward(logits, leaf, weights=weights)
            value = _mean(each)
        else:
            with torch.enable_grad():
                graph = _mean(loss(logits, goal))
                (gradient,) = self.backward(graph, leaf)
            value = graph.detach()
        return Slope(self.watch(rows, gradient), value, answers, _most(goal.is_reached(answers)))

    def slopes(self, rows: Tensor, points: Tensor, rivals: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For each rival class [rows, k]: its lead [rows], the lead's gradient [rows, ...], and the gradient's length.

        One forward pass serves all of them.
        """
        leaf = points.detach().requires_grad_(True)
        own = self.goal.label[rows].unsqueeze(1)
        with torch.enable_grad():
            logits = self._forward(rows, leaf, "search")
        mean = logits.detach().mean(dim=1)  # [rows, classes], of [rows, draws, classes]
        ahead = mean.gather(1, rivals) - mean.gather(1, own)
        movable = None if self.space.movable is None else self.space.at(rows).movable
        largest: Tensor | None = None
        # Gradient of logit_rival - logit_own, averaged over draws: these weights on the logits, one backward pass each.
        whole = mean.new_zeros(rivals.shape[1], *mean.shape)
        whole.scatter_(2, own.expand(len(whole), -1, 1), -1.0).scatter_(2, rivals.t().unsqueeze(2), 1.0)
        whole.div_(logits.shape[1])
        for number, weights in enumerate(whole.unsqueeze(2).unbind(0)):
            keep = number + 1 < len(whole)
            (gradient,) = self.backward(logits, leaf, keep=keep, weights=weights.expand_as(logits))
            if self._seen is not None:
                size = gradient.abs()
                largest = size if largest is None else torch.maximum(largest, size, out=largest)
            if movable is not None:
                gradient = gradient * movable
            length = lengths(gradient)
            if not _all_finite(length):
                gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
                length = lengths(gradient)
            yield ahead[:, number], gradient, length
        if largest is not None:
            self.watch(rows, largest)

    def rivals(self, most: int) -> Tensor:
        """The classes that each row could become, the most likely first where not all are looked at [rows, k]."""
        if self.goal.targeted:
            return self.goal.label.unsqueeze(1)
        if self.classes - 1 <= most:
            steps = torch.arange(1, self.classes, device=self.inputs.device)
            # Every class but the label, in the order y + 1, y + 2, …, around the end.
            return (self.goal.label.unsqueeze(1) + steps) % self.classes
        logits = self.logits(self.every, self.inputs).mean(dim=1)
        # The label comes last.
        order = logits.scatter(1, self.goal.label.unsqueeze(1), -torch.inf).sort(dim=1, descending=True, stable=True)
        return order.indices[:, :most]

    def backward(self, value: Tensor, leaf: Tensor, keep: bool = False, weights: Tensor | None = None) -> tuple[Tensor]:
        """The gradient of the (weighted) sum of the values; zeros if they do not depend on the inputs."""
        self.passes.backward += len(leaf) * self.draws
        if not value.requires_grad:
            return (torch.zeros_like(leaf),)
        value = value.sum() if weights is None else value
        (found,) = torch.autograd.grad(
            value, leaf, weights, retain_graph=keep, allow_unused=True, materialize_grads=True
        )
        # That of a plain sum is one number seen from all coordinates, and steps overwrite what they are given.
        return (found.contiguous() if 0 in found.stride() else found,)

    def watch(self, rows: Tensor, gradient: Tensor) -> Tensor:
        """Record the rows whose first gradient was zero or not finite; values that are not finite become zero."""
        whole = None if self._seen is None else gradient.flatten(1).isfinite().all(dim=1)
        usable = self._usable(rows, gradient)
        if self._seen is not None and whole is not None:
            new = ~self._seen[rows]
            dead = ~whole | ~(usable.flatten(1) != 0).any(dim=1)
            self.blind[rows[new]] = dead[new]
            self._seen[rows] = True
            if bool(self._seen.all()):
                self._seen = None
        return usable

    def uniform(self, rows: Tensor, purpose: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Uniform numbers of each row's own stream, shaped like the inputs unless a shape is given."""
        drawn = draw_uniform(branch(self.keys[rows], purpose), (len(rows), *self._shape(shape)), 0)
        return drawn.to(self.inputs.dtype)

    def normal(self, rows: Tensor, purpose: str) -> Tensor:
        """Normal numbers of each row's own stream, shaped like the inputs."""
        drawn = draw_normal(branch(self.keys[rows], purpose), (len(rows), *self._shape(None)), 0)
        return drawn.to(self.inputs.dtype)

    def _shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:]) if shape is None else shape

    def _usable(self, rows: Tensor, gradient: Tensor) -> Tensor:
        usable = _zero_what_is_no_number(gradient)
        return usable if self.space.movable is None else self.space.at(rows).free(usable)

    def _forward(self, rows: Tensor, points: Tensor, purpose: str) -> Tensor:
        count = len(rows)
        self.passes.forward += count * self.draws
        if count < self._least:
            fill = torch.zeros(self._least - count, dtype=rows.dtype, device=rows.device)
            rows, points = torch.cat([rows, rows[fill]]), torch.cat([points, points[fill]])
        numbers, keys = self.numbers.index_select(0, rows), self._keys(purpose).index_select(0, rows)
        logits = self.target.logits(points, Draws(numbers, keys))
        return logits if len(logits) == count else logits[:count]

    def _keys(self, purpose: str) -> Tensor:
        """The keys of the draws of every row, the same whenever they are asked for."""
        if purpose not in self._own:
            self._own[purpose] = copy_keys(branch(self.keys, "draws", purpose), self.draws).view(-1, self.draws)
        return self._own[purpose]
