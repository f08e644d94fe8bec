"""What attacks climb: gradients that are written out, against autograd's of the formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from isthmus.attacks.gradient.parts.losses import label_cross_entropy, margin
from isthmus.attacks.gradient.parts.problem import LabelGoal
from isthmus.attacks.gradient.parts.spaces import Space, _box_around


def plain_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Of every draw."""
    flat = functional.cross_entropy(logits.flatten(0, 1), label.repeat_interleave(logits.shape[1]), reduction="none")
    return flat.view(logits.shape[:2])


def plain_margin(logits: Tensor, label: Tensor) -> Tensor:
    """Of every draw."""
    place = label.view(-1, 1, 1).expand(-1, logits.shape[1], 1)
    best = logits.scatter(2, place, -math.inf).amax(dim=2)
    return best - logits.gather(2, place).squeeze(2)


def slope(value: Tensor, logits: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(value.mean(dim=1).sum(), logits)
    return found


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize(("draws", "classes"), [(1, 10), (1, 2), (4, 5)])
def test_written_gradients_are_those_of_the_formulas(draws: int, classes: int, targeted: bool) -> None:
    torch.manual_seed(0)
    logits = (3 * torch.randn(30, draws, classes, dtype=torch.float64)).requires_grad_()
    goal, sign = LabelGoal(torch.randint(0, classes, (30,)), targeted), -1 if targeted else 1
    wanted = sign * plain_margin(logits, goal.label)
    assert torch.allclose(margin(logits, goal), wanted)
    assert torch.allclose(slope(margin(logits, goal), logits), slope(wanted, logits))
    value = label_cross_entropy(logits, goal)
    assert torch.allclose(value, sign * plain_cross_entropy(logits, goal.label))
    # Each row is divided by its largest factor sigmoid(u), so that a confident row keeps its gradient.
    each = plain_cross_entropy(logits, goal.label)
    largest = (1 - (-each).exp()).amax(dim=1).view(-1, 1, 1)
    assert torch.allclose(slope(value, logits), sign * slope(each, logits) / largest)


def test_classes_that_are_equally_far_share_the_gradient_of_the_margin() -> None:
    logits = torch.tensor([[[1.0, 4.0, 4.0, 0.0]]], requires_grad=True)
    found = slope(margin(logits, LabelGoal(torch.tensor([0]), False)), logits)
    assert found.flatten().tolist() == [-1.0, 0.5, 0.5, 0.0]


def test_a_loss_without_a_graph_has_the_same_value() -> None:
    logits = torch.randn(5, 2, 3, requires_grad=True)
    goal = LabelGoal(torch.tensor([0, 1, 2, 0, 1]), False)
    for loss in (margin, label_cross_entropy):
        assert torch.equal(loss(logits, goal), loss(logits.detach(), goal))
        assert not loss(logits.detach(), goal).requires_grad


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), None])
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1 / 255, 0.3])
def test_walls_of_a_ball_are_the_furthest_numbers_inside_it(
    kind: torch.dtype, bounds: tuple[float, float] | None, epsilon: float
) -> None:
    torch.manual_seed(0)
    centres = torch.rand(40, 1, 30, 30, dtype=kind)  # More than one part of the walls is computed at a time.
    centres[centres < 0.2], centres[centres > 0.9] = 0.0, 1.0
    low, high = _box_around(centres, epsilon, Space(bounds, None))
    for wall, way in ((low, -1), (high, 1)):
        distance = way * (wall.double() - centres.double())
        assert float(distance.min()) >= 0
        assert float(distance.max()) <= epsilon
        beyond = torch.nextafter(wall, wall.new_full((), way * math.inf))
        inside = way * (beyond.double() - centres.double()) <= epsilon
        if bounds is not None:
            inside &= (beyond >= bounds[0]) & (beyond <= bounds[1])
        if kind == torch.float32:  # Of float64 the differences themselves are rounded.
            assert not bool(inside.any())
