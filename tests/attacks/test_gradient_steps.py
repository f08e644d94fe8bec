"""FGSM, BIM and PGD: identities between them, and the ball."""

from __future__ import annotations

import gradient_toys as toys
import pytest
import torch
from torch.nn import functional

from isthmus.attacks import BIM, FGSM, PGD
from isthmus.attacks.gradient.parts.spaces import Ball, Space


def loss(model: torch.nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return functional.cross_entropy(model(inputs), labels, reduction="none")


def test_fgsm_moves_every_unclipped_coordinate_by_epsilon() -> None:
    model, inputs = toys.network(), toys.pixels()
    labels = toys.answers(model, inputs)
    moved = (FGSM(epsilon=0.1).run(model, inputs, labels).adversarial - inputs).abs()
    clipped = (inputs < 0.1) | (inputs > 0.9)
    assert (~clipped).any()
    assert torch.allclose(moved[~clipped], torch.tensor(0.1, dtype=torch.float64))
    assert (moved[clipped] <= 0.1).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_one_step_of_bim_is_fgsm(norm: str) -> None:
    model, inputs = toys.network(), toys.pixels()
    labels = toys.answers(model, inputs)
    once = FGSM(epsilon=0.2, norm=norm).run(model, inputs, labels)  # type: ignore[arg-type]
    step = BIM(epsilon=0.2, norm=norm, steps=1, step_size=0.2).run(model, inputs, labels)  # type: ignore[arg-type]
    assert torch.equal(once.adversarial, step.adversarial)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_loses_more_than_fgsm_on_average(norm: str) -> None:
    model, inputs = toys.network(), toys.pixels(64)
    labels = toys.answers(model, inputs)
    once = FGSM(epsilon=0.15, norm=norm).run(model, inputs, labels)  # type: ignore[arg-type]
    many = PGD(epsilon=0.15, norm=norm, steps=20, step_size=0.05, stop=False).run(model, inputs, labels)  # type: ignore[arg-type]
    assert loss(model, many.adversarial, labels).mean() >= loss(model, once.adversarial, labels).mean()
    assert int(many.success.sum()) >= int(once.success.sum())


def test_pgd_without_a_random_start_is_bim() -> None:
    model, inputs = toys.network(), toys.pixels()
    labels = toys.answers(model, inputs)
    bim = BIM(epsilon=0.1, steps=7).run(model, inputs, labels)
    pgd = PGD(epsilon=0.1, steps=7, random_start=False).run(model, inputs, labels)
    assert torch.equal(bim.adversarial, pgd.adversarial)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_linear_model_falls_exactly_at_its_distance(norm: str) -> None:
    model, inputs = toys.affine(classes=2), toys.pixels()
    labels, rows = toys.answers(model, inputs), torch.arange(len(inputs))
    with torch.no_grad():
        weight = model.weight[1] - model.weight[0]
        gap = (model(inputs)[rows, 0] - model(inputs)[rows, 1]).abs()
    distance = gap / (weight.abs().sum() if norm == "linf" else weight.norm())
    for share, fooled in ((0.99, False), (1.01, True)):
        for row in range(4):
            attack = PGD(epsilon=share * float(distance[row]), norm=norm, steps=20, random_start=False)  # type: ignore[arg-type]
            found = attack.run(model, inputs[row : row + 1], labels[row : row + 1], bounds=None)
            assert bool(found.success) is fooled


def test_a_row_is_done_once_it_is_fooled_and_costs_nothing_more() -> None:
    model, inputs = toys.network(), toys.pixels(64)
    labels = toys.answers(model, inputs)
    stopped = PGD(epsilon=0.3, steps=30).run(model, inputs, labels)
    whole = PGD(epsilon=0.3, steps=30, stop=False).run(model, inputs, labels)
    assert whole.backward == 30 * 64
    assert stopped.backward < whole.backward / 2
    assert int(stopped.success.sum()) >= int(whole.success.sum())


def test_restarts_help_and_keep_the_highest_loss() -> None:
    model, inputs = toys.network(), toys.pixels(64)
    labels = toys.answers(model, inputs)
    one, many = (
        PGD(epsilon=0.12, steps=3, step_size=0.05, restarts=count, stop=False).run(model, inputs, labels)
        for count in (1, 6)
    )
    better = loss(model, many.adversarial, labels) - loss(model, one.adversarial, labels)
    assert (better[~many.success] >= -1e-12).all()
    assert better.max() > 0
    assert not (one.success & ~many.success).any()


def test_targets_are_reached() -> None:
    model, inputs = toys.network(), toys.pixels(32)
    labels = toys.answers(model, inputs)
    targets = (labels + 1) % 3
    result = PGD(epsilon=0.6, steps=40).run(model, inputs, labels, targets=targets)
    assert result.success.any()
    assert torch.equal(result.success, toys.answers(model, result.adversarial) == targets)


def test_a_confident_float32_model_still_has_a_gradient() -> None:
    model, inputs = toys.affine(classes=2).float(), toys.pixels().float()
    model.weight.data *= 60
    labels = toys.answers(model, inputs)
    far = loss(model, inputs, labels) == 0
    assert far.any()  # The cross-entropy of float32 says nothing there.
    result = FGSM(epsilon=0.3).run(model, inputs, labels)
    assert not result.blind.any()
    assert (result.linf[far] > 0).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_starts_fill_the_ball_evenly(norm: str) -> None:
    centres = torch.zeros(4000, 3, dtype=torch.float64)
    ball = Ball(norm, 0.5, centres, Space(None, None))  # type: ignore[arg-type]
    generator = toys.seeded()
    draws = (torch.rand if norm == "linf" else torch.randn)(4000, 3, generator=generator, dtype=torch.float64)
    points = ball.uniform(draws, torch.rand(4000, generator=generator, dtype=torch.float64))
    size = points.abs().amax(dim=1) if norm == "linf" else points.norm(dim=1)
    share = float((size < 0.25).double().mean())  # Half the radius holds an eighth of the volume.
    assert abs(share - 1 / 8) < 0.02
    assert points.mean(dim=0).abs().max() < 0.02
