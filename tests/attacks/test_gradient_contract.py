"""What every attack on tensors promises, driven by one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradient_toys as toys
import pytest
import torch
from torch import nn

from isthmus.attacks import FGSM, PGD, EncoderTarget, GradientAttack, GradientSettings
from isthmus.attacks.gradient.parts import problem, spaces
from isthmus.core import catalog
from isthmus.core.errors import UsageError, VictimError

CASES: dict[str, dict[str, Any]] = {
    "cw": {"c": 0.1, "steps": 30, "learning_rate": 0.1, "searches": 4},
    "deepfool": {},
    "fgsm": {"epsilon": 0.2},
    "auto": {"epsilon": 0.2, "steps": 10, "queries": 30},
    "bim": {"epsilon": 0.2, "steps": 8},
    "pgd": {"epsilon": 0.2, "steps": 8, "restarts": 2},
    "margin_pgd": {"epsilon": 0.2, "steps": 8, "restarts": 3},
}
NAMES = sorted(CASES)
BOUNDED = [name for name in NAMES if "epsilon" in CASES[name]]


def build(name: str, **more: Any) -> GradientAttack:
    attack = catalog.build("attacks", name, {**CASES[name], **more})
    assert isinstance(attack, GradientAttack)
    return attack


def test_every_attack_has_a_case() -> None:
    assert [entry.name for entry in catalog.entries("attacks") if entry.kind == "gradient"] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_has_the_equation_and_the_headings(name: str) -> None:
    text = catalog.find("attacks", name).docstring
    for heading in ("\n\n    ", "References:", "Where we depart:", "Relations:", "Example:"):
        assert heading in text, heading
    assert all(parameter.doc for parameter in catalog.find("attacks", name).parameters)


@pytest.mark.parametrize("name", NAMES)
def test_success_is_what_the_model_says_and_the_box_holds(name: str) -> None:
    model, inputs = toys.network(), toys.pixels()
    labels = toys.answers(model, inputs)
    labels[:3] = (labels[:3] + 1) % 3
    result = build(name).run(model, inputs, labels)
    assert result.skipped.tolist() == [True] * 3 + [False] * (len(inputs) - 3)
    assert torch.equal(result.adversarial[:3], inputs[:3])
    assert torch.equal(result.success, (toys.answers(model, result.adversarial) != labels) & ~result.skipped)
    assert torch.equal(result.predicted, toys.answers(model, result.adversarial))
    assert torch.equal(result.robust, ~result.success & ~result.skipped)
    assert result.success.any()
    assert float(result.adversarial.min()) >= 0
    assert float(result.adversarial.max()) <= 1
    assert torch.allclose(result.l2, (result.adversarial - inputs).norm(dim=1))
    assert not result.blind.any()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_other_rows(name: str) -> None:
    model, inputs = toys.network(), toys.pixels(12)
    labels, keys = toys.answers(model, inputs), torch.arange(12) * 7
    whole = build(name).run(model, inputs, labels, keys=keys)
    order = torch.tensor([5, 0, 11, 3, 8])
    part = build(name).run(model, inputs[order], labels[order], keys=keys[order], rows=2)
    assert torch.allclose(part.adversarial, whole.adversarial[order], atol=1e-9)
    assert torch.equal(part.success, whole.success[order])


@pytest.mark.parametrize("randomised", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("name", NAMES)
def test_where_looking_waits_for_the_device_rows_end_as_they_would(
    name: str, norm: str, randomised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if norm == "l2" and "norm" not in {parameter.name for parameter in catalog.find("attacks", name).parameters}:
        pytest.skip("it has one norm")
    more = {} if norm == "linf" else {"norm": "l2", "epsilon": 0.5}
    model, inputs = toys.Noisy() if randomised else toys.network(), toys.pixels(24)
    labels = torch.arange(24) % 3
    usual = build(name, **more).run(model, inputs, labels, skip_wrong=False)
    asked: list[Any] = []

    def waits(values: Any) -> bool:
        asked.append(values)
        return True

    for module in (spaces, problem):
        monkeypatch.setattr(module, "waits", waits)
    waiting = build(name, **more).run(model, inputs, labels, skip_wrong=False)
    assert asked or name in ("deepfool",)
    assert torch.allclose(waiting.adversarial, usual.adversarial, atol=1e-9)
    assert torch.equal(waiting.success, usual.success)


@pytest.mark.parametrize("randomised", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_it_moves_rows_to_where_a_run_finds_them(name: str, randomised: bool) -> None:
    model, inputs = toys.Noisy() if randomised else toys.network(), toys.pixels(12)
    labels = torch.arange(12) % 3
    found = build(name).run(model, inputs, labels, seed=5, skip_wrong=False, rows=12).adversarial
    moved = build(name).move(model, inputs, labels, seed=5)
    assert torch.equal(moved, found)
    assert not torch.equal(moved, inputs)


def test_which_attacks_are_the_same_work_every_time() -> None:
    assert FGSM().is_steady
    assert PGD(stop=False, random_start=False).is_steady
    assert not PGD(stop=False).is_steady
    assert not PGD(random_start=False).is_steady
    assert not PGD(stop=False, random_start=False, restarts=2).is_steady
    assert build("bim", stop=False).is_steady
    assert not any(build(name).is_steady for name in NAMES if name != "fgsm")


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_reproduces(name: str) -> None:
    model, inputs = toys.network(), toys.pixels()
    labels = toys.answers(model, inputs)
    first, again = (build(name).run(model, inputs, labels, seed=3) for _ in range(2))
    assert torch.equal(first.adversarial, again.adversarial)


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_model_is_never_fooled_and_the_zero_gradient_is_reported(name: str) -> None:
    inputs, labels = toys.pixels(6), torch.ones(6, dtype=torch.int64)
    fixed = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    for model in (lambda rows: fixed.expand(len(rows), 3), lambda rows: fixed + 0 * rows.sum(dim=1, keepdim=True)):
        result = build(name).run(model, inputs, labels)
        assert not result.success.any()
        assert result.robust.all()
        assert result.blind.all()
        assert result.adversarial.isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_a_randomised_model_is_attacked_over_draws_and_judged_on_others(name: str) -> None:
    model, inputs = toys.Noisy(), toys.pixels(40)
    labels = toys.answers(nn.Sequential(model.encoder, model.head), inputs)
    target = EncoderTarget(model, model.encode, model.decode)
    result = build(name).run(target, inputs, labels, draws=8, fresh=30, rows=1200)
    assert result.success.any()
    assert torch.equal(result.success, (result.fooled > 0.5) & ~result.skipped)
    assert model.encoded < result.forward / 2  # One encoding serves all draws of a row.
    plain = build(name).run(model, inputs, labels, draws=8, fresh=30, rows=1200)
    assert torch.allclose(plain.adversarial, result.adversarial, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_with_torchs_own_noise_is_reproduced(name: str) -> None:
    from isthmus.attacks import ModuleTarget

    inner, inputs = toys.network(), toys.pixels(12)
    labels = toys.answers(inner, inputs)
    target = ModuleTarget(lambda rows: inner(rows + 0.05 * torch.randn_like(rows)), stochastic=True)
    first, again = (build(name).run(target, inputs, labels, draws=4) for _ in range(2))
    assert torch.equal(first.adversarial, again.adversarial)
    assert first.success.any()


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_no_gradient_meanwhile_and_modes_come_back(name: str) -> None:
    seen = []

    class Watched(nn.Sequential):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            seen.append((self.training, any(parameter.requires_grad for parameter in self.parameters())))
            found: torch.Tensor = super().forward(rows)
            return found

    model: Any = Watched(toys.network())
    model[0][2].bias.requires_grad_(False)
    model.train()
    model[0][0].eval()
    inputs = toys.pixels(5)
    labels = toys.answers(toys.network(), inputs)
    build(name).run(model, inputs, labels)
    assert set(seen) == {(False, False)}
    assert model.training
    assert not model[0][0].training
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, True, False]
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_no_projection_exceeds_epsilon(name: str, norm: str) -> None:
    if name not in BOUNDED:
        pytest.skip("it looks for the nearest point of all")
    model, labels = toys.network().float(), torch.zeros(24, dtype=torch.int64)
    for epsilon in (0.0, 0.003, 0.1, 0.7):
        for bounds in ((0.0, 1.0), None):
            inputs = toys.pixels().float()
            attack = build(name, epsilon=epsilon, norm=norm)
            result = attack.run(model, inputs, labels, bounds=bounds, skip_wrong=False)
            moved = (result.adversarial.double() - inputs.double()).flatten(1)
            assert float(moved.norm(dim=1).max() if norm == "l2" else moved.abs().max()) <= epsilon


@pytest.mark.parametrize("name", NAMES)
def test_one_row_and_constant_images_are_attacked(name: str) -> None:
    model = toys.network()
    for value in (0.0, 1.0, 0.5):
        inputs = torch.full((1, 9), value, dtype=torch.float64)
        longer = {"steps": 100} if name == "cw" else {}
        result = build(name, **longer).run(model, inputs, toys.answers(model, inputs))
        assert result.adversarial.shape == (1, 9)
        assert result.adversarial.isfinite().all()
        assert float(result.l2) > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_may_not_move_does_not(name: str) -> None:
    model, inputs = toys.network(), toys.pixels()
    movable = torch.arange(9).remainder(2).eq(0).unsqueeze(0)
    result = build(name).run(model, inputs, toys.answers(model, inputs), movable=movable)
    moved = result.adversarial != inputs
    assert moved.any()
    assert not moved[:, 1::2].any()


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_that_is_one_number_for_all_coordinates_is_climbed(name: str) -> None:
    # Autograd gives that of a plain sum as a view of one number, in which nothing can be overwritten.
    def model(rows: torch.Tensor) -> torch.Tensor:
        total = rows.sum(dim=1)
        return torch.stack([total, torch.full_like(total, 4.5)], dim=1)

    inputs = toys.pixels(40)
    result = build(name).run(model, inputs, toys.answers(model, inputs))
    assert result.success.any()
    assert not result.blind.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layout", ["transposed", "expanded", "in a graph"])
def test_inputs_of_any_layout_are_read_and_left_alone(name: str, layout: str, recwarn: pytest.WarningsRecorder) -> None:
    model, inputs = toys.network(), toys.pixels(24)
    given = inputs.t().contiguous().t() if layout == "transposed" else inputs.clone()
    if layout == "expanded":
        inputs = inputs[:1].repeat(24, 1)
        given = inputs[:1].expand(24, -1)
    elif layout == "in a graph":
        given = given.requires_grad_()
    labels = toys.answers(model, inputs)
    result, usual = (build(name).run(model, each, labels) for each in (given, inputs))
    assert torch.equal(given, inputs)
    assert torch.equal(result.adversarial, usual.adversarial)
    assert not result.adversarial.requires_grad
    assert not recwarn.list


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_answers_nonsense_near_by_is_not_fooled(name: str) -> None:
    def model(rows: torch.Tensor) -> torch.Tensor:
        logits = torch.stack([rows.sum(dim=1), 9 - rows.sum(dim=1)], dim=1) * 0.01
        logits = logits + torch.tensor([5.0, 0.0], dtype=rows.dtype)
        return torch.where((rows != 0.5).any(dim=1, keepdim=True), logits * torch.nan, logits)

    inputs = torch.full((3, 9), 0.5, dtype=torch.float64)
    result = build(name).run(model, inputs, torch.zeros(3, dtype=torch.int64))
    assert not result.success.any()


def test_large_rows_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.attacks.gradient import base

    monkeypatch.setattr(base, "_NUMBERS", 9 * 20)
    seen = []
    model, inputs = toys.network(), toys.pixels(50)

    def counted(rows: torch.Tensor) -> torch.Tensor:
        seen.append(len(rows))
        found: torch.Tensor = model(rows)
        return found

    result = FGSM(epsilon=0.2).run(counted, inputs, toys.answers(model, inputs))
    assert max(seen) == 20
    assert len(result.success) == 50


Wrong = Callable[[], object]
IMAGES, LABELS = toys.pixels(4), torch.zeros(4, dtype=torch.int64)
MODEL = toys.network()
WRONG: dict[str, tuple[Wrong, str]] = {
    "bytes": (lambda: FGSM().run(MODEL, (IMAGES * 255).byte(), LABELS), "divide by 255"),
    "half": (lambda: FGSM().run(MODEL, IMAGES.half(), LABELS), r"inputs.float\(\)"),
    "list": (lambda: FGSM().run(MODEL, [[0.5]], LABELS), "torch.as_tensor"),  # type: ignore[arg-type]
    "one image": (lambda: FGSM().run(MODEL, IMAGES[0], LABELS), r"inputs\[None\]"),
    "nothing": (lambda: FGSM().run(MODEL, IMAGES[:0], LABELS[:0]), "at least one row"),
    "range": (lambda: FGSM().run(MODEL, IMAGES * 255, LABELS), "bounds="),
    "not a number": (lambda: FGSM().run(MODEL, IMAGES / 0 * 0, LABELS), "row 0 .* not numbers"),
    "label": (lambda: FGSM().run(MODEL, IMAGES, LABELS + 3), "classes 0 to 2"),
    "negative label": (lambda: FGSM().run(MODEL, IMAGES, LABELS - 1), "classes 0 to 2"),
    "label type": (lambda: FGSM().run(MODEL, IMAGES, LABELS.double()), "class numbers"),
    "label count": (lambda: FGSM().run(MODEL, IMAGES, LABELS[:3]), "for 4 rows"),
    "target": (lambda: FGSM().run(MODEL, IMAGES, LABELS, targets=LABELS), "its own label 0"),
    "target class": (lambda: FGSM().run(MODEL, IMAGES, LABELS, targets=LABELS + 7), "targets hold 7"),
    "keys": (lambda: FGSM().run(MODEL, IMAGES, LABELS, keys=torch.zeros(4)), "int64"),
    "movable": (lambda: FGSM().run(MODEL, IMAGES, LABELS, movable=torch.ones(4, 3, dtype=torch.bool)), "does not fit"),
    "mask type": (lambda: FGSM().run(MODEL, IMAGES, LABELS, movable=torch.ones(4, 9)), "True or False"),
    "epsilon": (lambda: FGSM(epsilon=8.0).run(MODEL, IMAGES, LABELS), "8 of 255 is 0.0314"),
    "l2 epsilon": (lambda: PGD(epsilon=3.1, norm="l2").run(MODEL, IMAGES, LABELS), "at most 3 "),
    "negative epsilon": (lambda: FGSM(epsilon=-0.1), "0 or more"),
    "no epsilon": (lambda: PGD(epsilon=float("nan")), "0 or more"),
    "norm": (lambda: PGD(norm="l1"), "linf or l2"),  # type: ignore[arg-type]
    "steps": (lambda: PGD(steps=0), "at least 1"),
    "step size": (lambda: PGD(step_size=0.0), "above 0"),
    "restarts": (lambda: PGD(restarts=0), "at least 1"),
    "bounds": (lambda: GradientSettings(bounds=(1.0, 0.0)), "least and the largest"),
    "draws": (lambda: GradientSettings(draws=0), "at least 1"),
    "both": (lambda: FGSM().run(MODEL, IMAGES, LABELS, GradientSettings(), seed=1), "not both"),
    "no model": (lambda: FGSM().run(7, IMAGES, LABELS), "torch module"),  # type: ignore[arg-type]
}
ANSWERS_WRONG: dict[str, tuple[Wrong, str]] = {
    "one output": (lambda: FGSM().run(lambda rows: rows[:, :1], IMAGES, LABELS), "one output"),
    "shape": (lambda: FGSM().run(lambda rows: rows[:, 0], IMAGES, LABELS), "classes"),
    "nothing": (lambda: FGSM().run(lambda rows: None, IMAGES, LABELS), "NoneType"),  # type: ignore[arg-type, return-value]
    "not a number": (lambda: FGSM().run(lambda rows: rows / 0 * 0, IMAGES, LABELS), "not numbers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_right_is_said_before_anything_runs(case: str) -> None:
    call, words = WRONG[case]
    with pytest.raises(UsageError, match=words):
        call()


@pytest.mark.parametrize("case", ANSWERS_WRONG)
def test_a_model_that_gives_no_logits_is_said_to(case: str) -> None:
    call, words = ANSWERS_WRONG[case]
    with pytest.raises(VictimError, match=words):
        call()
