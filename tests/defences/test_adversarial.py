"""Climbs in the embeddings, against loops written out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients
from torch.nn import functional

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.defences._ascent import Dice, start, within
from isthmus.defences._smoothness import kl, symmetric_kl


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_freelb_is_the_loop_of_its_paper(dropout: float) -> None:
    model = toys.classifier(dropout=dropout).train()
    batch = batch_of(model)
    defence = defences.FreeLB(steps=3, step_size=0.4, init_magnitude=0.2, max_norm=0.5)
    found = gradients(defence, model, batch)

    model.zero_grad()
    mask = batch.inputs["attention_mask"].unsqueeze(-1).float()
    delta = start(model.embed(batch.inputs["input_ids"]).detach(), mask, 0.2, batch.stream("freelb"))
    for _ in range(3):
        delta = delta.detach().requires_grad_()
        torch.manual_seed(3)  # the same dropout masks in every step
        logits = model(**batch.inputs, inputs_embeds=model.embed(batch.inputs["input_ids"]) + delta).logits
        (functional.cross_entropy(logits, batch.labels) / 3).backward()
        assert delta.grad is not None
        for row in range(len(delta)):
            moved = delta[row].detach() + 0.4 * delta.grad[row] / delta.grad[row].norm()
            delta.data[row] = moved * min(1.0, 0.5 / float(moved.norm()))
    expected = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    assert close(found, expected)


def test_the_start_lies_on_tokens_and_has_the_size_of_a_uniform_draw() -> None:
    like, mask = torch.zeros(200, 16, 32), torch.ones(200, 16, 1)
    mask[:, 10:] = 0
    delta = start(like, mask, 0.6, torch.Generator().manual_seed(0))
    assert not delta[:, 10:].any()
    norms = delta.flatten(1).norm(dim=1)
    assert float(norms.mean()) == pytest.approx(0.6 / math.sqrt(3), rel=0.02)
    assert float(norms.max()) <= 0.6


def test_a_perturbation_is_scaled_back_and_never_up() -> None:
    delta = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
    norms = delta.flatten(1).norm(dim=1)
    scaled = within(delta, float(norms.median())).flatten(1).norm(dim=1)
    assert torch.allclose(scaled, norms.clamp(max=float(norms.median())))
    assert torch.equal(within(delta, 0), delta)


def test_dice_repeat_and_end_where_one_pass_ends() -> None:
    model = toys.classifier(dropout=0.5).train()
    batch = batch_of(model)
    torch.manual_seed(1)
    model(**batch.inputs)
    after_one = torch.rand(1)
    torch.manual_seed(1)
    dice = Dice(model)
    first = model(**batch.inputs).logits
    dice.restore()
    assert torch.equal(model(**batch.inputs).logits, first)
    assert torch.equal(torch.rand(1), after_one)


def test_pgd_trains_at_a_worse_place_and_mixes_with_the_clean_one() -> None:
    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    (clean,) = [terms.total().detach() for terms in defences.Standard().losses(model, batch)]
    harsh = defences.PGD(steps=3, step_size=0.5, max_norm=2)
    (worse,) = [terms.total().detach() for terms in harsh.losses(model, batch)]
    assert worse > clean
    mixed = [
        terms.total() for terms in defences.PGD(steps=3, step_size=0.5, max_norm=2, clean=0.25).losses(model, batch)
    ]
    assert float(sum(mixed)) == pytest.approx(float(0.25 * clean + 0.75 * worse), rel=1e-5)
    only_clean = gradients(defences.PGD(steps=2, clean=1.0), model, batch)
    assert close(only_clean, gradients(defences.Standard(), model, batch))


def test_divergences() -> None:
    p, q = torch.randn(4, 3), torch.randn(4, 3)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=p), torch.distributions.Categorical(logits=q)
    ).mean()
    assert torch.allclose(kl(p, q), expected)
    assert torch.allclose(symmetric_kl(p, q), symmetric_kl(q, p))
    assert float(kl(p, p)) == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("cls", [defences.ALUM, defences.SMART])
def test_smoothness_needs_a_perturbation(cls: Any) -> None:
    model = toys.classifier(dropout=0.3).train()
    batch = batch_of(model)
    still = cls(noise=0.0, step_size=0.0, mode="paper", **({"proximal": 0.0} if cls is defences.SMART else {}))
    (terms,) = list(still.losses(model, batch))
    assert float(terms.values["smoothness"]) == pytest.approx(0, abs=1e-7)  # dropout is shared, so nothing differs
    loud = cls(mode="released", **({"proximal": 0.0} if cls is defences.SMART else {}))
    (terms,) = list(loud.losses(model, batch))
    assert float(terms.values["smoothness"]) > 1e-4


@pytest.mark.parametrize("mode", ["paper", "released"])
def test_the_perturbation_keeps_to_its_ball(mode: Any) -> None:
    defence = defences.ALUM(mode=mode, radius=0.02, step_size=0.5)
    delta, gradient = 0.01 * torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    largest = defence._step(delta, gradient).abs()
    if mode == "paper":
        assert float(largest.max()) <= 0.02 + 1e-9
    else:
        assert torch.allclose(largest.amax(dim=-1), torch.ones(3, 5))


def test_smarts_teacher_follows_and_is_not_saved(tmp_path: Any) -> None:
    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    defence = defences.SMART(strength=0.0, proximal=2.0, momentum=0.9)
    defence.prepare(model, toys.dataset("train", 4, 0))
    (terms,) = list(defence.losses(model, batch))
    assert float(terms.values["proximal"]) == pytest.approx(0, abs=1e-6)  # the teacher is still the model
    before = model.table.weight.detach().clone()
    model.table.weight.data += 1.0
    (terms,) = list(defence.losses(model, batch))
    teacher = model.companions["teacher"]
    assert torch.allclose(teacher.table.weight, before + 0.1, atol=1e-6)
    batch.opens_step = False
    (again,) = list(defence.losses(model, batch))
    assert torch.equal(again.values["proximal"], terms.values["proximal"])  # an accumulated step counts once
    assert not any(value.requires_grad for value in teacher.parameters())
    model.save(tmp_path / "model")
    assert not [file for file in (tmp_path / "model").iterdir() if "isthmus.safetensors" in file.name]


@pytest.mark.parametrize(
    ("cls", "parameters"),
    [
        (defences.FreeLB, {"steps": 0}),
        (defences.FreeLB, {"step_size": -1.0}),
        (defences.PGD, {"clean": 1.5}),
        (defences.SMART, {"strength": -1.0}),
        (defences.SMART, {"momentum": 1.0}),
        (defences.ALUM, {"noise": float("nan")}),
        (defences.InfoBERT, {"beta": -0.1}),
        (defences.InfoBERT, {"lowest": 0.9, "highest": 0.5}),
        (defences.VIB, {"beta": -1.0}),
        (defences.VUB, {"latent": -1}),
    ],
)
def test_wrong_settings_are_refused(cls: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(parameters))):
        cls(**parameters)
