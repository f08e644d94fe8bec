"""The ensemble: its parts where their answers are known, and what each is there for."""

from __future__ import annotations

from typing import Any

import gradient_toys as toys
import numpy as np
import pytest
import torch
from scipy.optimize import linprog, minimize
from torch import Tensor

from isthmus.attacks import PGD, Auto
from isthmus.attacks.gradient.parts.apgd import checkpoints
from isthmus.attacks.gradient.parts.fab import reach, walk
from isthmus.attacks.gradient.parts.problem import LabelGoal, Passes, Problem
from isthmus.attacks.gradient.parts.spaces import Ball, Space
from isthmus.attacks.gradient.parts.square import ImageGrid, share_at
from isthmus.attacks.gradient.parts.targets import as_target


def problem_of(model: torch.nn.Module, inputs: Tensor, bounds: tuple[float, float] | None = (0.0, 1.0)) -> Problem:
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    keys, goal = torch.arange(len(inputs)), LabelGoal(toys.answers(model, inputs), targeted=False)
    with torch.no_grad():
        classes = model(inputs).shape[1]
    return Problem(
        as_target(model), inputs, goal, Space(bounds, None),
        classes=classes, numbers=keys, keys=keys, draws=1, passes=Passes(),
    )  # fmt: skip


def test_the_checkpoints_are_the_papers() -> None:
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]


def smallest_linf(slope: Tensor, rise: float, point: Tensor) -> float:
    """By linear programming: minimise t with slope . d = rise, |d| <= t, the box kept."""
    size = len(point)
    cost = np.r_[np.zeros(size), 1.0]
    eye = np.eye(size)
    limits = np.block([[eye, -np.ones((size, 1))], [-eye, -np.ones((size, 1))]])
    walls = [(-float(value), 1 - float(value)) for value in point] + [(0, None)]
    found = linprog(cost, limits, np.zeros(2 * size), np.r_[slope.numpy(), 0.0][None], [rise], walls)
    return float(found.fun) if found.success else float("nan")


def smallest_l2(slope: Tensor, rise: float, point: Tensor) -> float:
    walls = [(-float(value), 1 - float(value)) for value in point]
    line: Any = {"type": "eq", "fun": lambda move: float(slope.numpy() @ move - rise)}
    options: Any = {"maxiter": 500, "ftol": 1e-14}
    solve: Any = minimize
    found = solve(
        lambda move: move @ move, np.zeros(len(point)), jac=lambda move: 2 * move, bounds=walls,
        constraints=[line], method="SLSQP", options=options,
    )  # fmt: skip
    return float(np.sqrt(found.fun)) if found.success else float("nan")


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_projection_onto_a_hyperplane_is_the_smallest_move_in_the_box(norm: str) -> None:
    points, slopes = toys.pixels(30, 6), toys.random(30, 6, seed=4)
    slopes[0, :5] = 0
    rises = toys.random(30, seed=5) * 0.8
    space = Space((0.0, 1.0), None)
    moves = reach(norm, slopes, rises, points, space)  # type: ignore[arg-type]
    assert float((points + moves).min()) >= -1e-12
    assert float((points + moves).max()) <= 1 + 1e-12
    compared = 0
    for row in range(30):
        wanted = (smallest_linf if norm == "linf" else smallest_l2)(slopes[row], float(rises[row]), points[row])
        if wanted == wanted:
            size = moves[row].abs().max() if norm == "linf" else moves[row].norm()
            assert float(size) == pytest.approx(wanted, rel=1e-4, abs=1e-6)
            assert float(slopes[row] @ moves[row]) == pytest.approx(float(rises[row]), abs=1e-9)
            compared += 1
    assert compared > 15


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_furthest_move_is_made_where_the_hyperplane_is_out_of_reach(norm: str) -> None:
    points, slopes = toys.pixels(5, 6), toys.random(5, 6, seed=4)
    moves = reach(norm, slopes, torch.full((5,), 1e3, dtype=torch.float64), points, Space((0.0, 1.0), None))  # type: ignore[arg-type]
    assert torch.allclose(points + moves, (slopes > 0).double())
    assert not reach(norm, 0 * slopes, torch.ones(5, dtype=torch.float64), points, Space((0.0, 1.0), None)).any()  # type: ignore[arg-type]
    assert not reach(norm, 0 * slopes, torch.ones(5, dtype=torch.float64), points, Space(None, None)).any()  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fab_ends_at_the_distance_of_an_affine_model(norm: str) -> None:
    model, inputs = toys.affine(classes=2), toys.pixels(12)
    problem = problem_of(model, inputs, None)
    ball = Ball(norm, 0.0, inputs, problem.space)  # type: ignore[arg-type]
    with torch.no_grad():
        found = walk(problem, ball, problem.every, 1 - problem.goal.label, 60)
        weight = model.weight[1] - model.weight[0]
        gap = (model(inputs) @ torch.tensor([1.0, -1.0], dtype=torch.float64)).abs()
    length = weight.abs().sum() if norm == "linf" else weight.norm()
    moves = found - inputs
    share = (moves.abs().amax(dim=1) if norm == "linf" else moves.norm(dim=1)) / (gap / length)
    assert (toys.answers(model, found) != problem.goal.label).all()
    assert 1 <= float(share.min()) <= float(share.max()) < 1.06


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_at_least_as_strong_as_pgd(norm: str, classes: int) -> None:
    model, inputs = toys.network(classes=classes), toys.pixels(64)
    labels, epsilon = toys.answers(model, inputs), 0.12 if norm == "linf" else 0.35
    auto = Auto(epsilon=epsilon, norm=norm, steps=30, queries=50).run(model, inputs, labels)  # type: ignore[arg-type]
    pgd = PGD(epsilon=epsilon, norm=norm, steps=30).run(model, inputs, labels)  # type: ignore[arg-type]
    assert 0 < int(auto.success.sum()) < 64
    assert int(auto.success.sum()) >= int(pgd.success.sum())


def test_square_finds_what_has_no_gradient_and_the_mask_is_reported() -> None:
    model, inputs = toys.affine(classes=2), toys.pixels(24)

    def in_steps(rows: Tensor) -> Tensor:
        found: Tensor = model((rows * 32).round() / 32)
        return found

    labels = toys.answers(in_steps, inputs)
    result = Auto(epsilon=0.3, steps=5, queries=200).run(in_steps, inputs, labels)
    assert result.blind.all()
    assert result.success.any()
    assert not PGD(epsilon=0.3, random_start=False).run(in_steps, inputs, labels).success.any()


def test_rows_that_fell_to_the_first_attack_cost_the_later_ones_nothing() -> None:
    model, inputs = toys.network(), toys.pixels(64)
    labels = toys.answers(model, inputs)
    result = Auto(epsilon=0.9, steps=50).run(model, inputs, labels)
    assert result.success.all()
    assert result.backward < 10 * 64


def test_windows_shrink_and_fit_any_shape() -> None:
    assert [share_at(query, 10_000) for query in (0, 11, 51, 201)] == [0.8, 0.4, 0.2, 0.1]
    assert ImageGrid.of(torch.zeros(2, 3, 28, 20)) == (3, 28, 20)
    assert ImageGrid.of(torch.zeros(2, 7)) == (1, 1, 7)
    assert ImageGrid.of(torch.zeros(2, 5, 7)) == (1, 5, 7)
    assert ImageGrid(1, 28, 28).window(0.25) == (14, 14)
    assert ImageGrid(1, 1, 100).window(0.25) == (1, 25)
    assert ImageGrid(1, 28, 28).window(1e-9) == (1, 1)


def test_images_keep_their_shape() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), toys.network(18))
    inputs = toys.pixels(12, 18).view(12, 2, 3, 3)
    result = Auto(epsilon=0.2, steps=5, queries=20).run(model, inputs, toys.answers(model, inputs))
    assert result.adversarial.shape == inputs.shape
    assert float(result.linf.max()) <= 0.2
