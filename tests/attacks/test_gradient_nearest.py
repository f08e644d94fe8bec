"""DeepFool and CW: the smallest moves, where they are known."""

from __future__ import annotations

import gradient_toys as toys
import pytest
import torch
from torch import Tensor, nn

from isthmus.attacks import CW, DeepFool
from isthmus.core.errors import UsageError


def distances(model: nn.Linear, inputs: Tensor, labels: Tensor) -> Tensor:
    """min_k |f_k - f_y| / ‖w_k - w_y‖."""
    with torch.no_grad():
        logits, rows = model(inputs), torch.arange(len(inputs))
        gaps = (logits - logits[rows, labels].unsqueeze(1)).abs()
        lengths = (model.weight.unsqueeze(0) - model.weight[labels].unsqueeze(1)).norm(dim=2)
        return (gaps / lengths).scatter(1, labels.unsqueeze(1), torch.inf).amin(dim=1)


def test_deepfool_is_exact_on_an_affine_model_in_one_step() -> None:
    model, inputs = toys.affine(), toys.pixels()
    labels = toys.answers(model, inputs)
    once = DeepFool(steps=1, overshoot=0.0).run(model, inputs, labels, bounds=None)
    assert torch.allclose(once.l2, distances(model, inputs, labels), rtol=1e-9)
    ended = DeepFool().run(model, inputs, labels, bounds=None)
    assert ended.success.all()
    assert torch.allclose(ended.l2, 1.02 * distances(model, inputs, labels), rtol=1e-9)


def test_deepfool_looks_at_the_likeliest_classes_only() -> None:
    model, inputs = toys.affine(classes=6), toys.pixels(40)
    labels = toys.answers(model, inputs)
    one, every = (DeepFool(rivals=most).run(model, inputs, labels, bounds=None) for most in (1, 5))
    assert (one.l2 >= every.l2 - 1e-12).all()
    assert float(one.l2.sum()) > float(every.l2.sum())
    assert one.backward < every.backward


def test_deepfool_crosses_boundaries_where_the_box_cuts_its_steps() -> None:
    model, inputs = toys.affine(classes=3, size=40), toys.pixels(64, 40).round()
    labels = toys.answers(model, inputs)
    result = DeepFool().run(model, inputs, labels)
    assert result.success.all()
    assert (result.l2 >= distances(model, inputs, labels)).all()


def test_deepfool_drops_rows_that_are_done() -> None:
    model, inputs = toys.network(), toys.pixels(64)
    labels = toys.answers(model, inputs)
    result = DeepFool(steps=100).run(model, inputs, labels, bounds=None)
    assert result.success.all()
    assert result.backward < 10 * 2 * 64


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("searches", [1, 6])
def test_cw_converges_to_the_distance_from_above(targeted: bool, searches: int) -> None:
    model, inputs = toys.affine(classes=2), 0.25 + 0.5 * toys.pixels(24)
    inputs = inputs[distances(model, inputs, toys.answers(model, inputs)) > 0.15]
    labels = toys.answers(model, inputs)
    # With a fixed c the move ends at the boundary where c exceeds twice the distance over the slope.
    attack = CW(c=0.8 if searches == 1 else 0.1, searches=searches, steps=250, learning_rate=0.005)
    result = attack.run(model, inputs, labels, targets=1 - labels if targeted else None)
    share = result.l2 / distances(model, inputs, labels)
    assert result.success.all()
    assert float(share.min()) >= 1 - 1e-9
    assert float(share.max()) <= 1.02


def test_cw_reaches_its_targets_and_keeps_its_confidence() -> None:
    model, inputs = toys.network(), toys.pixels(16)
    labels = toys.answers(model, inputs)
    targets = (labels + 1) % 3
    attack = CW(c=0.1, searches=4, steps=80, learning_rate=0.05, confidence=0.5)
    result = attack.run(model, inputs, labels, targets=targets)
    assert result.success.any()
    with torch.no_grad():
        logits = model(result.adversarial)[result.success]
    own = logits.gather(1, targets[result.success].unsqueeze(1)).squeeze(1)
    others = logits.scatter(1, targets[result.success].unsqueeze(1), -torch.inf).amax(dim=1)
    assert ((own - others) >= 0.5 - 1e-9).all()
    plain = CW(c=0.1, searches=4, steps=80, learning_rate=0.05).run(model, inputs, labels, targets=targets)
    both = plain.success & result.success
    assert (plain.l2[both] < result.l2[both]).all()


def test_cw_moves_pixels_that_are_exactly_black_or_white() -> None:
    model = toys.affine(classes=2).float()
    inputs = toys.pixels(16).round().float()
    labels = toys.answers(model, inputs)
    result = CW(c=0.01, searches=5, steps=100, learning_rate=0.05).run(model, inputs, labels)
    assert result.success.any()
    moved = (result.adversarial - inputs).abs()[result.success]
    assert (moved.amax(dim=1) > 0.01).all()
    assert result.adversarial.isfinite().all()


def test_cw_without_a_box_needs_no_tanh() -> None:
    model, inputs = toys.affine(classes=2), toys.random(12, 9)
    labels = toys.answers(model, inputs)
    result = CW(c=1.0, searches=5, steps=300, learning_rate=0.02).run(model, inputs, labels, bounds=None)
    share = result.l2 / distances(model, inputs, labels)
    assert result.success.all()
    assert 1 - 1e-9 <= float(share.min()) <= float(share.max()) <= 1.02


def test_rows_without_progress_end_early_and_lose_little() -> None:
    model, inputs = toys.network(), toys.pixels(16)
    labels = toys.answers(model, inputs)
    early, whole = (
        CW(c=1.0, searches=2, steps=200, abort_early=abort).run(model, inputs, labels) for abort in (True, False)
    )
    assert early.backward < whole.backward
    both = early.success & whole.success
    assert float((early.l2 / whole.l2)[both].median()) < 1.01
    assert float((early.l2 / whole.l2)[both].mean()) < 1.1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CW(c=0.0), "c is a number above 0"),
        (lambda: CW(learning_rate=float("inf")), "learning_rate"),
        (lambda: CW(steps=0), "at least 1"),
        (lambda: CW(confidence=-1.0), "0 or more"),
        (lambda: CW(inside=0.0), "above 0 and below 1"),
        (lambda: DeepFool(overshoot=-0.1), "0 or more"),
        (lambda: DeepFool(rivals=0), "at least 1"),
        (lambda: DeepFool().run(toys.network(), toys.pixels(2), torch.zeros(2).long(), targets=torch.ones(2).long()),
         "leave targets out"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_right_are_refused(make: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()  # type: ignore[operator]
