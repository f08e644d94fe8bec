"""Climbs in the embeddings, against loops written out by hand."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients
from torch.nn import functional

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.defences import Batch
from isthmus.defences.alum import both_ways
from isthmus.defences.parts.perturbation import Climb, Dice, keep_within, start
from isthmus.defences.parts.smoothness import kl, symmetric_kl


@pytest.mark.parametrize("scale", ["paper", "relative"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_freelb_is_the_loop_of_its_paper(dropout: float, scale: Any) -> None:
    model = toys.classifier(dropout=dropout).train()
    batch = batch_of(model)
    defence = defences.FreeLB(steps=3, step_size=0.4, init_magnitude=0.2, max_norm=0.5, scale=scale)
    found = gradients(defence, model, batch)

    model.zero_grad()
    mask = batch.inputs["attention_mask"].unsqueeze(-1).float()
    words = model.embed(batch.inputs["input_ids"]).detach()
    lengths = batch.inputs["attention_mask"].sum(dim=1).tolist()
    units = [
        float(row[:n].norm(dim=1).mean()) if scale == "relative" else 1.0 for row, n in zip(words, lengths, strict=True)
    ]
    delta = start(words, mask, 0.2, batch.stream("freelb")) * torch.tensor(units).view(-1, 1, 1)
    for _ in range(3):
        delta = delta.detach().requires_grad_()
        torch.manual_seed(3)  # the same dropout masks in every step
        logits = model(**batch.inputs, inputs_embeds=model.embed(batch.inputs["input_ids"]) + delta).logits
        (functional.cross_entropy(logits, batch.labels) / 3).backward()
        assert delta.grad is not None
        for row in range(len(delta)):
            moved = delta[row].detach() + 0.4 * units[row] * delta.grad[row] / delta.grad[row].norm()
            delta.data[row] = moved * min(1.0, 0.5 * units[row] / float(moved.norm()))
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
    scaled = keep_within(delta, float(norms.median())).flatten(1).norm(dim=1)
    assert torch.allclose(scaled, norms.clamp(max=float(norms.median())))


def test_lengths_left_open_are_those_of_the_scale() -> None:
    assert defences.FreeLB().lengths == (0.03, 0.03, 0.09)
    assert defences.FreeLB(scale="paper").lengths == (0.1, 0.1, 0.3)
    assert defences.PGD(scale="paper", step_size=0.2).lengths == (0.2, 0.1, 0.3)
    assert defences.FreeLBpp(scale="paper").lengths == (0.03, 0.05, 0.0)
    # Without a limit ten of FreeLB's own steps go three times as far, which MiniLM does not stand.
    longest = {
        each: each.lengths.start + (each.steps - 1) * each.lengths.step
        for each in (defences.FreeLBpp(), defences.FreeLB())
    }
    further, limited = longest.values()
    assert limited <= further < 1.5 * limited
    with pytest.raises(UsageError, match="scale"):
        defences.FreeLB(scale="absolute")  # type: ignore[arg-type]


def test_a_relative_climb_does_not_know_the_unit_of_the_embeddings() -> None:
    """Word vectors ten times as long, read by a model that divides them by ten, get the same loss."""

    class Tenth(torch.nn.Module):
        def __init__(self, model: Any, times: float) -> None:
            super().__init__()
            self.model, self.times = model, times

        device = property(lambda self: self.model.device)

        def embed(self, ids: Any) -> Any:
            return self.model.embed(ids) * self.times

        def forward(self, *, inputs_embeds: Any, hidden: bool = False, **inputs: Any) -> Any:
            return self.model(**inputs, inputs_embeds=inputs_embeds / self.times, hidden=hidden)

    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    for scale, same in (("relative", True), ("paper", False)):
        defence = defences.PGD(steps=2, scale=scale, clean=0.0)  # type: ignore[arg-type]
        one, ten = (
            float(terms.total().detach())
            for times in (1.0, 10.0)
            for terms in defence.losses(Tenth(model, times), batch)
        )
        assert (one == pytest.approx(ten, rel=1e-5)) is same


def test_freelbpp_has_no_limit() -> None:
    """Each of its nine steps has one length, and the last point lies further than FreeLB may go."""
    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    losses = {}
    for cls in (defences.FreeLB, defences.FreeLBpp):
        defence = cls(step_size=0.3, init_magnitude=0.0, max_norm=0.3 if cls is defences.FreeLB else 0.0)
        walked = []
        for terms in defence.losses(model, batch):
            (terms.total()).backward()
            walked.append(float(terms.total().detach()) * defence.steps)
        losses[cls] = walked
    assert [len(walked) for walked in losses.values()] == [3, 10]
    assert max(losses[defences.FreeLBpp]) > max(losses[defences.FreeLB])
    assert losses[defences.FreeLBpp][:2] == pytest.approx(losses[defences.FreeLB][:2], rel=1e-5)


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


@pytest.mark.parametrize("defence", [defences.FreeLB(steps=3), defences.PGD(steps=2)], ids=str)
def test_a_step_leaves_nothing_behind(defence: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[weakref.ref[Climb]] = []
    usual = Climb.__init__

    def note(self: Climb, *given: Any, **named: Any) -> None:
        begun.append(weakref.ref(self))
        usual(self, *given, **named)

    monkeypatch.setattr(Climb, "__init__", note)
    model = toys.classifier().train()
    gradients(defence, model, batch_of(model))
    gc.collect()
    assert [climb() for climb in begun] == [None]


def test_pgd_trains_at_a_worse_place_and_mixes_with_the_clean_one() -> None:
    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    (clean,) = [terms.total().detach() for terms in defences.Standard().losses(model, batch)]
    harsh = defences.PGD(steps=3, step_size=0.5, max_norm=2, clean=0.0)
    (worse,) = [terms.total().detach() for terms in harsh.losses(model, batch)]
    assert worse > clean
    mixed = [
        terms.total() for terms in defences.PGD(steps=3, step_size=0.5, max_norm=2, clean=0.25).losses(model, batch)
    ]
    assert float(torch.stack(mixed).sum()) == pytest.approx(float(0.25 * clean + 0.75 * worse), rel=1e-5)
    only_clean = gradients(defences.PGD(steps=2, clean=1.0), model, batch)
    assert close(only_clean, gradients(defences.Standard(), model, batch))


def test_pgd_is_climbing_first_and_training_at_the_end() -> None:
    model = toys.classifier(dropout=0.3).train()
    batch = batch_of(model)
    defence = defences.PGD(steps=2, step_size=0.4, init_magnitude=0.2, max_norm=0.5, scale="paper", clean=0.0)
    found = gradients(defence, model, batch)
    model.zero_grad()
    mask = batch.inputs["attention_mask"].unsqueeze(-1).float()
    delta = start(model.embed(batch.inputs["input_ids"]).detach(), mask, 0.2, batch.stream("pgd"))
    for step in range(3):
        delta = delta.detach().requires_grad_(step < 2)
        torch.manual_seed(3)
        logits = model(**batch.inputs, inputs_embeds=model.embed(batch.inputs["input_ids"]) + delta).logits
        loss = functional.cross_entropy(logits, batch.labels)
        if step == 2:
            loss.backward()
            break
        (gradient,) = torch.autograd.grad(loss, delta)
        gradient = gradient * mask
        delta = keep_within(delta.detach() + 0.4 * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1), 0.5)
    assert close(found, {name: value.grad for name, value in model.named_parameters() if value.grad is not None})


def expected_smoothness(defence: Any, model: Any, batch: Batch, divergence: Any) -> None:
    """Leave the gradients of SMART or ALUM behind, each pass with the dice of the first, written out."""
    embed, labels = model.embed, batch.labels
    ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"].unsqueeze(-1).float()
    torch.manual_seed(3)
    clean = model(**batch.inputs).logits
    words = embed(ids).detach() * mask
    squares = words.square().sum(dim=(1, 2)) / (16 * mask.sum(dim=(1, 2)))
    unit = squares.sqrt().view(-1, 1, 1) if defence.mode == "relative" else torch.ones(())
    noise = torch.randn(*ids.shape, 16, generator=batch.stream(defence.name)) * defence.noise * unit * mask
    noise.requires_grad_()
    torch.manual_seed(3)
    p = model(**batch.inputs, inputs_embeds=embed(ids).detach() + noise).logits.log_softmax(-1)
    q = clean.detach().log_softmax(-1)
    inner = (p.exp() * (p - q)).sum()
    if isinstance(defence, defences.SMART):
        inner = inner + (q.exp() * (q - p)).sum()
    (gradient,) = torch.autograd.grad(inner, noise)
    if defence.mode != "released":
        largest = gradient.flatten(1).abs().amax(1).view(-1, 1, 1)
        delta = noise.detach() / unit + defence.step_size * gradient / largest
        delta = delta.clamp(-defence.radius, defence.radius) * unit
    else:
        delta = noise.detach() + defence.step_size * gradient
        delta = delta / delta.abs().amax(-1, keepdim=True)
    delta = torch.where(mask.bool(), delta, torch.zeros_like(delta))
    torch.manual_seed(3)
    moved = model(**batch.inputs, inputs_embeds=embed(ids) + delta).logits
    loss = functional.cross_entropy(clean, labels) + defence.strength * divergence(moved, clean)
    if "teacher" in model.companions:
        taught = model.companions["teacher"].eval()(**batch.inputs).logits.detach()
        loss = loss + defence.proximal * symmetric_kl(clean, taught)
    loss.backward()


def both_detached(moved: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    one = functional.kl_div(clean.detach().log_softmax(-1), moved.softmax(-1), reduction="batchmean")
    other = functional.kl_div(moved.detach().log_softmax(-1), clean.softmax(-1), reduction="batchmean")
    return one + other


@pytest.mark.parametrize("mode", ["relative", "paper", "released"])
@pytest.mark.parametrize("cls", [defences.ALUM, defences.SMART])
def test_smoothness_is_its_formula(cls: Any, mode: Any) -> None:
    defence = cls(mode=mode, strength=3.0, noise=0.02, step_size=0.05, radius=0.04)
    model = toys.classifier(dropout=0.2).train()
    defence.prepare(model, toys.dataset("train", 4, 0))
    if "teacher" in model.companions:
        with torch.no_grad():
            teacher: Any = model.companions["teacher"]
            teacher.backbone.own_head().weight.mul_(1.5)
    batch = batch_of(model)
    batch.opens_step = False  # a teacher that stands still is easier to write out
    found = gradients(defence, model, batch)
    model.zero_grad()
    expected_smoothness(defence, model, batch, both_detached if cls is defences.ALUM else symmetric_kl)
    expected = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    assert close(found, expected, 3e-6)


def test_alum_holds_the_target_of_each_direction_fixed() -> None:
    """Only the weight of a side's own entropy is left: d KL(p ‖ sg q) = d Σ p (log p - log q)."""
    p, q = torch.randn(5, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    both_ways(p, q).backward()
    log_p, log_q = p.detach().log_softmax(-1), q.detach().log_softmax(-1)
    for logits, own, other in ((p, log_p, log_q), (q, log_q, log_p)):
        gap = own - other
        expected = own.exp() * (gap - (own.exp() * gap).sum(-1, keepdim=True)) / 5
        assert logits.grad is not None
        assert torch.allclose(logits.grad, expected, atol=1e-6)


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


def test_a_search_does_not_depend_on_how_many_sentences_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of the released code adds the gradient as it is: the mean over a batch would shrink it."""
    monkeypatch.setattr("isthmus.defences.parts.smoothness.gaussian_start", lambda like, _: torch.full_like(like, 0.1))
    model = toys.classifier(dropout=0.0).train()
    whole = batch_of(model, 6)
    one = Batch({name: value[:1] for name, value in whole.inputs.items()}, whole.labels[:1], seed=5)
    defence = defences.ALUM(mode="released", noise=1.0, step_size=0.5)
    found = []
    for batch in (whole, one):
        clean = model(**batch.inputs)
        found.append(defence.perturb(model, batch, clean, Dice(model), both_ways).embeddings)
    assert torch.allclose(found[0][:1], found[1], atol=1e-5)


@pytest.mark.parametrize("mode", ["relative", "paper", "released"])
def test_the_perturbation_keeps_to_its_ball(mode: Any) -> None:
    defence = defences.ALUM(mode=mode, radius=0.02, step_size=0.5)
    delta, gradient = 0.01 * torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    unit = torch.tensor([1.0, 2.0, 5.0]).view(-1, 1, 1) if mode == "relative" else None
    largest = defence._step(delta, gradient, unit).abs()
    if mode == "paper":
        assert float(largest.max()) <= 0.02 + 1e-9
    elif mode == "relative":
        assert torch.allclose(largest.amax(dim=(1, 2)), torch.tensor([0.02, 0.04, 0.1]))
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
    teacher: Any = model.companions["teacher"]
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
        (defences.FreeLB, {"steps": 2.5}),
        (defences.FreeLB, {"max_norm": math.inf}),
        (defences.PGD, {"steps": -1}),
        (defences.SMART, {"proximal": -0.5}),
        (defences.SMART, {"mode": "papers"}),
        (defences.ALUM, {"radius": -1e-5}),
        (defences.InfoBERT, {"beta": -0.1}),
        (defences.InfoBERT, {"alpha": -5e-3}),
        (defences.InfoBERT, {"alpha": math.nan}),
        (defences.InfoBERT, {"lowest": 0.9, "highest": 0.5}),
        (defences.InfoBERT, {"lowest": 0.5, "highest": 0.5}),
        (defences.InfoBERT, {"lowest": -0.1}),
        (defences.InfoBERT, {"highest": 1.1}),
        (defences.InfoBERT, {"mode": "released code"}),
        (defences.InfoBERT, {"adversary": "fgsm"}),
        (defences.InfoBERT, {"p_t_given_x": "aux"}),
        (defences.InfoBERT, {"p_t_given_x": "auxiliary", "features": "global"}),
        (defences.VIB, {"beta": -1.0}),
        (defences.VIB, {"beta": math.inf}),
        (defences.VIB, {"deterministic": True}),
        (defences.VIB, {"shift": math.nan}),
        (defences.VUB, {"latent": -1}),
        (defences.VUB, {"cap": "examples"}),
        (defences.VUB, {"entropy_weight": -1.0}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "-".join(f"{k}={v}" for k, v in value.items()),
)
def test_wrong_settings_are_refused(cls: Any, parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(parameters)).removeprefix("p_t_given_")):
        cls(**parameters)
