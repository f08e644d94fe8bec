"""Attacks that carry over between heads on one encoder."""

from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys
from image_toys import image_model, images, text_model

from isthmus.core.errors import UsageError
from isthmus.data import Splits
from isthmus.measures import Transferability
from isthmus.measures.base import Facts, Subject
from isthmus.measures.transferability import DELTA, DELTA_OTHER, GAP, PRODUCT, TAU, make_head

QUICK = {"heads": 2, "fit_on": 40, "fit_steps": 30, "width": 8}


@pytest.fixture
def splits() -> Splits:
    return Splits("halves", {"train": images(40, "train"), "test": images(30)})


def test_figures_are_those_of_the_pairs(splits):
    found = Transferability(epsilon=0.3, **QUICK)(image_model(False), splits)
    rows = found.details["pairs"]
    assert [row["heads"] for row in rows] == [[0, 1], [1, 0]]
    for row in rows:
        assert row["gap"] == pytest.approx(row["delta_other"] - row["delta"])
    for name, key in ((DELTA, "delta"), (DELTA_OTHER, "delta_other"), (GAP, "gap"), (TAU, "tau")):
        assert found.figure(name).estimate == pytest.approx(np.mean([row[key] for row in rows]))
    gap = found.figure(GAP)
    assert gap.low <= gap.estimate <= gap.high
    assert found.plots == ()
    assert found.figure(TAU).estimate < 0.2  # The heads learned the halves.
    assert found.figure(DELTA).estimate < 1  # The attack does something.
    assert Transferability(epsilon=1e-7, **QUICK)(image_model(False), splits).figure(DELTA).estimate == 1


def test_the_models_own_head_is_left_as_it_was(splits):
    model = image_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    Transferability(**QUICK)(model, splits, n=8)
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_runs_are_correlated_with_constant_and_error(splits):
    subjects = []
    for seed, beta in ((1, 0.1), (2, 0.01), (3, 0.001)):
        each = Subject.of(image_model(False, seed=seed), splits, name=f"run{seed}")
        each.facts = Facts("vib", {"beta": beta})
        subjects.append(each)
    subjects[0].others = tuple(subjects[1:])
    found = Transferability(over="beta", epsilon=0.3, **QUICK).measure(subjects[0])
    assert [plot.name for plot in found.plots] == ["transferability", "error"]
    assert [series.name for series in found.plots[0].series] == ["0.001", "0.01", "0.1"]
    rows = found.details["pairs"]
    r = found.figure(f"Pearson's r of gap and {PRODUCT}", "6 pairs")
    wanted = np.corrcoef([row["lipschitz"] for row in rows], [row["gap"] for row in rows])[0, 1]
    assert r.estimate == pytest.approx(wanted, nan_ok=True)
    assert found.figure(f"p of gap and {TAU}", "3 runs") is not None


def test_texts_with_a_bottleneck_have_heads_and_stock_models_do_not():
    data = Splits("toys", {split: toys.dataset(split, 12, 0) for split in ("train", "test")})
    found = Transferability(epsilon=1.0, **QUICK)(text_model(), data)
    assert 0 <= found.figure(DELTA).estimate <= 1
    with pytest.raises(UsageError, match="head of its own encoder"):
        Transferability(**QUICK)(toys.classifier(), data)
    with pytest.raises(UsageError, match="heads is 1"):
        Transferability(heads=1)


def test_a_head_says_where_it_lies_and_has_four_parameters():
    head: Any = make_head(3, 4, 2)
    assert head.weight is head[0].weight
    assert len(list(head.parameters())) == 4
