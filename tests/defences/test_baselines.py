"""R-Drop and random substitution, and defaults that do something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients
from torch.nn import functional

from isthmus import defences
from isthmus.core import progress
from isthmus.core.errors import UsageError
from isthmus.core.hardware import bfloat16_works
from isthmus.defences import Defence
from isthmus.defences.parts.smoothness import root_mean_square
from isthmus.defences.rdrop import drops
from isthmus.models import wrap
from isthmus.training import TrainingSettings, train
from isthmus.training.numerics import autocast_on, make_optimizer
from isthmus.training.resident import Resident, train_resident
from isthmus.training.shares import GradientShares
from isthmus.training.walk import walk

TABLE = str(Path(__file__).parents[1] / "support" / "synonyms.json")


def test_r_drop_is_the_loss_of_its_paper_halved() -> None:
    model = toys.classifier(dropout=0.3).train()
    batch = batch_of(model)
    torch.manual_seed(3)
    found = gradients(defences.RDrop(strength=0.7), model, batch)
    model.zero_grad()
    torch.manual_seed(3)
    twice = {name: torch.cat([value, value]) for name, value in batch.inputs.items()}
    first, second = model(**twice).logits.chunk(2)
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    assert not torch.allclose(p, q)
    divergence = 0.5 * (functional.kl_div(p, q, log_target=True, reduction="batchmean")
                        + functional.kl_div(q, p, log_target=True, reduction="batchmean"))  # fmt: skip
    both = functional.cross_entropy(first, batch.labels) + functional.cross_entropy(second, batch.labels)
    (0.5 * (both + 0.7 * divergence)).backward()
    assert close(found, {name: value.grad for name, value in model.named_parameters() if value.grad is not None})


def test_without_dropout_r_drop_is_standard_and_says_so() -> None:
    notes: list[str] = []

    class Hears:
        def on_work(self, title: str, done: int, total: int, figures: str) -> None: ...

        def on_note(self, message: str) -> None:
            notes.append(message)

    still, model = toys.classifier(dropout=0.0).train(), toys.classifier(dropout=0.1).train()
    assert (drops(still), drops(model)) == (False, True)
    with progress.watch(Hears()):
        defences.RDrop().prepare(model, toys.dataset("train", 4, 0))
        assert not notes
        defences.RDrop().prepare(still, toys.dataset("train", 4, 0))
    assert len(notes) == 1
    batch = batch_of(still)
    assert all(
        torch.equal(value, gradients(Defence(), still, batch)[name])
        for name, value in gradients(defences.RDrop(), still, batch).items()
    )


def test_random_substitution_draws_some_words_and_answers_by_one_pass() -> None:
    data, model = toys.dataset("train", 60, 0), toys.classifier()
    defence = defences.RandomSubstitution(table=TABLE, rate=0.5)
    defence.prepare(model, data)
    assert model.deployment is None
    assert not wrap(model, device="cpu").stochastic
    table = defence.synonyms()
    moved = {}
    for rate in (0.5, 1.0):
        made = defences.RandomSubstitution(table=TABLE, rate=rate).examples(model, data, 0, 0)
        assert made is not None
        pairs = [
            (old, new)
            for before, after in zip(data, made, strict=True)
            for old, new in zip(before.texts["text"].split(), after.texts["text"].split(), strict=True)
        ]
        assert all(new in table.draws(old) for old, new in pairs)
        moved[rate] = sum(old != new for old, new in pairs)
    assert 0.3 * moved[1.0] < moved[0.5] < 0.7 * moved[1.0]
    assert defence.examples(model, data, 0, 0) != defence.examples(model, data, 1, 0)
    with pytest.raises(UsageError, match="rate"):
        defences.RandomSubstitution(rate=2.0)


def shares_of(defence: Defence, precision: Any = "fp32") -> dict[str, float]:
    """Shares of the terms at a model that has learned a little."""
    model = toys.classifier(dropout=0.1)
    settings = TrainingSettings(epochs=2, batch_size=8, learning_rate=1e-2, precision="fp32", information=0)
    train(toys.splits(64, 8), model, settings=settings, device="cpu")
    model.train()
    defence.prepare(model, toys.dataset("train", 4, 0))
    if "teacher" in model.companions:  # at the first step it is the model
        for value in model.companions["teacher"].parameters():
            value.data *= 0.98
    batch, found = batch_of(model), GradientShares()
    torch.manual_seed(0)
    walk(defence, model, batch, backward=_backward, autocast=autocast_on(model.device, precision), shares=found)
    return found.take(1)


def _backward(loss: Any, retain_graph: bool) -> None:
    loss.backward(retain_graph=retain_graph)


@pytest.mark.parametrize(
    "precision",
    ["fp32", pytest.param("bf16", marks=pytest.mark.skipif(not bfloat16_works("cpu"), reason="no bfloat16"))],
)
@pytest.mark.parametrize("cls", [defences.SMART, defences.ALUM, defences.RDrop, defences.InfoBERT])
def test_no_term_of_a_default_has_less_than_a_thousandth_of_the_gradient(cls: Any, precision: str) -> None:
    found = shares_of(cls(), precision)
    assert found
    assert min(found.values()) > 1e-3


@pytest.mark.parametrize("cls", [defences.SMART, defences.ALUM])
def test_the_papers_radius_does_nothing(cls: Any) -> None:
    assert shares_of(cls(mode="paper"))["smoothness"] < 1e-3


def test_the_unit_of_smoothness_is_the_root_mean_square_of_a_coordinate() -> None:
    words, mask = torch.full((2, 3, 4), 2.0), torch.ones(2, 3, 1)
    words[1], mask[1, 2] = 3.0, 0.0
    words[1, 2] = 100.0  # padding
    assert root_mean_square(words, mask).flatten().tolist() == pytest.approx([2.0, 3.0])


def test_infobert_has_the_papers_values_by_name() -> None:
    paper, ours = defences.InfoBERT(preset="paper"), defences.InfoBERT()
    assert (paper.alpha, paper.beta, paper.critic_rate) == (5e-3, 5e-2, 0.0)
    assert ours.alpha == 0.5
    assert defences.InfoBERT(preset="paper", beta=1e-3).beta == 1e-3


@pytest.mark.parametrize(("critic_rate", "expected"), [(1e-3, 1e-3), (0.0, 1e-4)])
def test_the_critic_has_a_rate_of_its_own(critic_rate: float, expected: float) -> None:
    model, settings = toys.classifier(), TrainingSettings(learning_rate=1e-4)
    defences.InfoBERT(critic_rate=critic_rate).prepare(model, toys.dataset("train", 4, 0))
    optimizer = make_optimizer(model, settings)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    critic = {id(p) for p in model.companions["critic"].parameters()}
    assert {rates[key] for key in critic} == {expected}
    assert {rate for key, rate in rates.items() if key not in critic} == {1e-4}
    assert len(rates) == sum(1 for p in model.parameters() if p.requires_grad)
    assert optimizer.param_groups[0]["lr"] == 1e-4, "the first group's rate is the one that is logged"


class Two(torch.nn.Module):
    """Two equal layers, of which one has a rate of its own."""

    def __init__(self, rate: float | None) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        self.right.load_state_dict(self.left.state_dict())
        self.right.own_learning_rate = rate  # type: ignore[assignment]
        self.companions = torch.nn.ModuleDict()

    def forward(self, x: Any) -> Any:
        from isthmus.core.types import Output

        return Output(self.left(x) + self.right(x))


def test_a_rate_of_its_own_follows_the_schedule_over_resident_tensors() -> None:
    """Adam's steps have the length of the rate, so equal layers move in the ratio of their rates."""
    stream = torch.Generator().manual_seed(0)
    data = Resident({"x": torch.randn(8, 2, generator=stream)}, torch.arange(8) % 2)
    settings = TrainingSettings(
        epochs=3, batch_size=8, learning_rate=1e-5, weight_decay=0.0, precision="fp32", information=0, max_grad_norm=0
    )
    torch.manual_seed(0)
    model = Two(4e-5)
    before = model.left.weight.detach().clone()
    train_resident(data, model, dev=data, settings=settings)
    left, right = ((layer.weight.detach() - before) for layer in (model.left, model.right))
    assert torch.allclose(right, 4 * left, rtol=2e-2, atol=1e-8)
    assert left.abs().min() > 0
