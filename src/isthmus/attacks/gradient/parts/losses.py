"""Losses that gradient attacks climb, for every draw: larger is closer to the goal.

    margin          max_{i != y} f_i - f_y                                    towards t:  f_t - max_{i != t} f_i
    cross-entropy   log sum_i e^{f_i} - f_y = softplus(u),  u = log sum_{i != y} e^{f_i} - f_y     towards t:  negated

The gradient of the cross-entropy is that of u times the sigmoid of u. Where a model is confident that factor is zero in
float32, and the gradient with it, though its direction is as clear as ever; so each row's factors are divided by the
largest of its draws. The direction, which is all that an attack uses, does not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from isthmus.attacks.gradient.parts.problem import LabelGoal, Loss, SlopedLoss

_Rule = Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor | None]]
"""From float64 logits, index of the label, and whether the slope is asked for: the untargeted value, and the slope."""


class KnownLoss(SlopedLoss):
    """A loss whose gradient is written out: autograd's own has a dozen small tensors, a fifth of a small network's time
    at the sizes that the last rows of an attack have."""

    def __init__(self, rule: _Rule) -> None:
        self.rule = rule

    def __call__(self, logits: Tensor, goal: LabelGoal) -> Tensor:
        """The loss of each draw [rows, draws], part of the graph if the logits are."""
        label = _label_index(logits, goal)
        if logits.requires_grad and torch.is_grad_enabled():
            value: Tensor = _Known.apply(logits, label, self.rule)  # type: ignore[no-untyped-call]
        else:
            value = self.rule(logits.double(), label, False)[0]
        return -value if goal.targeted else value

    def with_slope(self, logits: Tensor, goal: LabelGoal) -> tuple[Tensor, Tensor]:
        """The loss of each draw [rows, draws], and its gradient with respect to the logits, both float64."""
        value, slope = self.rule(logits.double(), _label_index(logits, goal), True)
        assert slope is not None
        return (-value, slope.neg_()) if goal.targeted else (value, slope)


class _Known(torch.autograd.Function):
    """A `KnownLoss` as a node of a graph."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, label: Tensor, rule: Any) -> Tensor:
        """Compute value and gradient together."""
        value, slope = rule(logits.double(), label, True)
        ctx.save_for_backward(slope)
        ctx.kind = logits.dtype
        found: Tensor = value
        return found

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of each draw, weighted."""
        (slope,) = ctx.saved_tensors
        return (slope * weight.unsqueeze(2)).to(ctx.kind), None, None


def _cross_entropy(logits: Tensor, label: Tensor, slope: bool) -> tuple[Tensor, Tensor | None]:
    others = logits.scatter(2, label, -math.inf)
    whole = others.logsumexp(dim=-1, keepdim=True)
    # log (1 - p_y) / p_y, so that -log p_y = softplus(odds) is exact where p_y rounds to 1 [rows, draws].
    odds = (whole - logits.gather(2, label)).squeeze(2)
    value = functional.softplus(odds)
    if not slope:
        return value, None
    moves = others.sub_(whole).exp_().scatter_(2, label, -1.0)  # [rows, draws, classes]: p_c / (1 - p_y), and -1 at y
    if odds.shape[1] > 1:
        # The gradient of a draw has the factor 1 - p_y: relative to the largest of its row, or all would underflow.
        factor = functional.logsigmoid(odds)
        moves.mul_((factor - factor.amax(dim=1, keepdim=True)).exp_().unsqueeze(2))
    return value, moves


def _margin(logits: Tensor, label: Tensor, slope: bool) -> tuple[Tensor, Tensor | None]:
    others = logits.scatter(2, label, -math.inf)
    best = others.amax(dim=-1, keepdim=True)
    value = (best - logits.gather(2, label)).squeeze(2)
    if not slope:
        return value, None
    moves = (others == best).double()  # Classes that are equally far share the gradient.
    return value, moves.div_(moves.sum(dim=2, keepdim=True)).scatter_(2, label, -1.0)


label_cross_entropy = KnownLoss(_cross_entropy)
"""The cross-entropy of the label, or less that of the target [rows, draws]; its gradient rescaled row by row."""
margin = KnownLoss(_margin)
"""The lead of the best other class, or of the target [rows, draws]."""


class _Towards(SlopedLoss):
    """The lead of one class over the label."""

    def __init__(self, target: Tensor) -> None:
        self.target = target

    def __call__(self, logits: Tensor, goal: LabelGoal) -> Tensor:
        """The lead of each draw [rows, draws]."""
        logits = logits.double()
        return (logits.gather(2, self._index(logits)) - logits.gather(2, _label_index(logits, goal))).squeeze(-1)

    def with_slope(self, logits: Tensor, goal: LabelGoal) -> tuple[Tensor, Tensor]:
        """The lead, and 1 at the class, -1 at the label."""
        slope = torch.zeros_like(logits, dtype=torch.float64).scatter_(2, self._index(logits), 1.0)
        label = _label_index(logits, goal)
        return self(logits, goal), slope.scatter_add_(2, label, slope.new_full((), -1.0).expand_as(label))

    def _index(self, logits: Tensor) -> Tensor:
        return self.target.view(-1, 1, 1).expand(-1, logits.shape[1], 1)


def towards(target: Tensor) -> Loss:
    """The lead of each row's class `target` [rows] over its label; the goal is any class but the label."""
    return _Towards(target)


def _label_index(logits: Tensor, goal: LabelGoal) -> Tensor:
    return goal.label.view(-1, 1, 1).expand(-1, logits.shape[1], 1)  # [rows, draws, 1], an index into the classes
