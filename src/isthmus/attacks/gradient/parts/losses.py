"""What gradient attacks climb, for every draw: larger is nearer to the goal.

    margin          max_{i != y} f_i - f_y                                    towards t:  f_t - max_{i != t} f_i
    cross-entropy   log sum_i e^{f_i} - f_y = softplus(u),  u = log sum_{i != y} e^{f_i} - f_y     towards t:  negated

The gradient of the cross-entropy is that of u times the sigmoid of u. Where a model is confident that factor is zero in
float32, and the gradient with it, though its direction is as clear as ever; so each row's factors are divided by the
largest of its draws. The direction, which is all that an attack uses, does not change.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from isthmus.attacks.gradient.parts.problem import Goal, Loss


def cross_entropy(logits: Tensor, goal: Goal) -> Tensor:
    """The cross-entropy of the label, or less that of the target [rows, draws]; its gradient rescaled row by row."""
    logits, label = logits.double(), _label(logits, goal)
    odds = logits.scatter(2, label, -math.inf).logsumexp(dim=-1) - logits.gather(2, label).squeeze(-1)
    fixed = odds.detach()
    factor = functional.logsigmoid(fixed)
    factor = (factor - factor.amax(dim=1, keepdim=True)).exp()
    value = functional.softplus(fixed) + factor * (odds - fixed)
    return -value if goal.targeted else value


def margin(logits: Tensor, goal: Goal) -> Tensor:
    """How far the best other class is ahead, or how far the target is [rows, draws]."""
    logits, label = logits.double(), _label(logits, goal)
    others = logits.scatter(2, label, -math.inf).amax(dim=-1)
    ahead = others - logits.gather(2, label).squeeze(-1)
    return -ahead if goal.targeted else ahead


def towards(target: Tensor) -> Loss:
    """How far each row's class `target` [rows] is ahead of its label; the goal is any class but the label."""

    def ahead(logits: Tensor, goal: Goal) -> Tensor:
        logits = logits.double()
        aimed = target.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
        return (logits.gather(2, aimed) - logits.gather(2, _label(logits, goal))).squeeze(-1)

    return ahead


def _label(logits: Tensor, goal: Goal) -> Tensor:
    return goal.label.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
