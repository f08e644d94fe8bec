"""Each term's share of the gradient: closed forms, and that measuring changes no bit of a training."""

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from training_toys import classifier, same_bits, splits, weights

from isthmus.core import progress as work
from isthmus.core.hardware import bfloat16_works
from isthmus.core.types import Output
from isthmus.defences import ALUM, SMART, VIB, Batch, Defence, FreeLB, InfoBERT, Terms
from isthmus.report.training.sentences import describe_collapse, hardly_trained, shares_line
from isthmus.training import TrainingSettings, shares, train
from isthmus.training.numerics import autocast_on
from isthmus.training.resident import Resident, train_resident
from isthmus.training.shares import GradientShares
from isthmus.training.walk import walk


class Linear(torch.nn.Module):
    """Two parameters, of which a term may reach one only."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
        self.beside = torch.nn.Parameter(torch.tensor(1.0))
        self.companions = torch.nn.ModuleDict()

    def forward(self, x):
        return Output(x @ self.weight)


@dataclass(frozen=True)
class Scaled(Defence):
    """A second term that is the first one times a number, and a third that moves another weight."""

    factor: float = 0.25
    yields: int = 1

    def losses(self, model, batch):
        for _ in range(self.yields):
            logits = model(**batch.inputs).logits.float()
            loss = torch.nn.functional.cross_entropy(logits, batch.labels)
            again = torch.nn.functional.cross_entropy(model(**batch.inputs).logits.float(), batch.labels)
            yield Terms({"cross_entropy": loss, "scaled": self.factor * again, "beside": 7 * model.beside})


def measured(defence, model=None, autocast=contextlib.nullcontext, passes=(1.0,)):
    model, found = model or Linear(), GradientShares()
    for number, weight in enumerate(passes):
        stream = torch.Generator().manual_seed(number)
        batch = Batch({"x": torch.randn(4, 2, generator=stream)}, torch.arange(4) % 2)
        walk(defence, model, batch, backward=_backward, autocast=autocast, weight=weight, shares=found)
        assert not batch.is_measured
    return found.take(1)


def _backward(loss, retain_graph):
    loss.backward(retain_graph=retain_graph)


@pytest.mark.parametrize("yields", [1, 3])
@pytest.mark.parametrize("passes", [(1.0,), (0.5, 0.25, 0.25)])
def test_the_share_of_a_multiple_is_its_factor_and_weights_the_task_does_not_reach_count_for_nothing(yields, passes):
    found = measured(Scaled(0.25, yields), passes=passes)
    assert found == {"scaled": pytest.approx(0.25, rel=1e-6), "beside": 0.0}


@pytest.mark.skipif(not bfloat16_works("cpu"), reason="bfloat16 arithmetic crashes on this machine")
def test_the_share_in_bfloat16():
    autocast = autocast_on(torch.device("cpu"), "bf16")
    assert measured(Scaled(2.0**-6), autocast=autocast)["scaled"] == pytest.approx(2.0**-6, rel=1e-2)


def test_a_loss_of_one_term_has_no_shares():
    assert measured(Defence()) == {}


@dataclass(frozen=True)
class Squares(Defence):
    """½‖w‖² and a · Σ w: gradients w and a, so the share is a √4 / ‖w‖."""

    def losses(self, model, batch):
        yield Terms({"task": 0.5 * model.weight.square().sum()})
        yield Terms({"sum": 0.1 * model.weight.sum()})


def test_terms_of_different_yields_are_compared_with_the_first():
    norm = Linear().weight.norm().item()
    assert measured(Squares()) == {"sum": pytest.approx(0.1 * 2 / norm)}


DEFENCES = {
    "smart": SMART(),
    "alum": ALUM(),
    "freelb": FreeLB(),
    "vib": VIB(),
    "infobert": InfoBERT(),
    "infobert with a climb": InfoBERT(adversary="freelb"),
}


def trained(defence, folder=None, **given):
    settings = TrainingSettings(epochs=1, batch_size=8, learning_rate=1e-2, precision="fp32", log_every=1, **given)
    return train(splits(32, 8), classifier(), defence, settings=settings, folder=folder, device="cpu")


@pytest.mark.parametrize("name", DEFENCES)
def test_measuring_changes_no_bit(name, monkeypatch):
    plainly = weights(trained(DEFENCES[name]))
    monkeypatch.setattr(shares, "EVERY", 1)
    often = weights(trained(DEFENCES[name]))
    monkeypatch.setattr(GradientShares, "is_wanted", lambda self, step: False)
    never = weights(trained(DEFENCES[name]))
    assert same_bits(plainly, never)
    assert same_bits(often, never)


def test_the_log_holds_the_first_step_and_every_hundredth(tmp_path, monkeypatch):
    monkeypatch.setattr(shares, "EVERY", 3)
    trained(Scaling(0.5), tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    found = {row["step"]: row["gradient_shares"] for row in rows if "gradient_shares" in row}
    assert found == {step: {"scaled": pytest.approx(0.5, rel=1e-5)} for step in (1, 3)}
    assert [row["epoch"] for row in rows if "gradient_shares" in row] == [0.25, 0.75]
    assert shares_line(rows) == "Gradient relative to the task's, at steps 1 and 3: scaled 50 % to 50 %"


@dataclass(frozen=True)
class Scaling(Defence):
    """The cross-entropy, and a multiple of it."""

    factor: float = 0.5

    def losses(self, model, batch):
        loss = torch.nn.functional.cross_entropy(model(**batch.inputs).logits.float(), batch.labels)
        yield Terms({"cross_entropy": loss, "scaled": self.factor * loss})


class Hears:
    def __init__(self):
        self.notes = []

    def on_step(self, step, total, metrics):
        pass

    def on_work(self, title, done, total, figures):
        pass

    def on_note(self, message):
        self.notes.append(message)


@pytest.mark.parametrize(("factor", "expected"), [(9e-4, 1), (1.1e-3, 0)])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_share_that_stays_under_a_thousandth_is_warned_about_once(
    tmp_path, monkeypatch, factor, expected, accumulation
):
    monkeypatch.setattr(shares, "EVERY", 2)
    stream, hears = torch.Generator().manual_seed(0), Hears()
    data = Resident({"x": torch.randn(48, 2, generator=stream)}, torch.arange(48) % 2)
    settings = TrainingSettings(epochs=2, batch_size=4, accumulation=accumulation, precision="fp32", information=0)
    with work.watch(hears):
        train_resident(data, Linear(), Scaling(factor), dev=data, settings=settings, folder=tmp_path)
    assert len(hears.notes) == expected
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert hardly_trained(rows) == ["scaled"] * expected
    if expected:
        assert "scaled" in hears.notes[0]
        assert "9.0e-04" in hears.notes[0]


def information(accuracy: float, rate: float, told: float) -> dict[str, Any]:
    return {
        "dev_accuracy": accuracy,
        "dev_information": {"rate": rate, "label_information": told, "loss": 2.3 - told},
    }


def test_a_code_that_tells_nothing_of_the_label_is_said_to_have_collapsed():
    rows: list[dict[str, Any]] = [{"step": 1}, information(0.1, 109.2, -0.14), information(0.12, 5.3, 0.003)]
    assert "tells 0.00 of the label's 2.30 nats on development data (rate 5.3 nats)" in describe_collapse(rows)
    assert "beta" in describe_collapse(rows)
    assert describe_collapse([information(0.9, 20.0, 1.9), *rows])  # The last epoch decides.
    assert not describe_collapse([*rows, information(0.9, 20.0, 1.9)])
    assert not describe_collapse([{"dev_accuracy": 0.1, "dev_information": {"label_information": 0.0, "loss": 2.3}}])
    assert not describe_collapse([])
