"""Defences on a GPU: no step waits for it more often than plain training does, and draws repeat."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, gradients
from encoder_cases import DEFENCES as WITHOUT_ATTACKS
from encoder_cases import built

from isthmus import defences
from isthmus.core.types import Example
from isthmus.defences import Batch, Defence
from isthmus.training.walk import walk

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

DEFENCES: dict[str, Defence] = {**WITHOUT_ATTACKS, "flat": defences.FLAT()}
PAIRS = '[["film", "plot"], ["dull", "warm"]]'
REPLACED = Example("one", {"text": "a plot", "made_from": "two", "replaced_words": PAIRS}, 0)


def on_gpu(defence: Defence) -> tuple[Any, Batch]:
    model = copy.deepcopy(built("bert")).to("cuda").train()
    defence.prepare(model, toys.dataset("train", 6, 0))
    batch = batch_of(model)
    inputs = {name: value.cuda() for name, value in batch.inputs.items()}
    return model, Batch(inputs, batch.labels.cuda(), examples=(REPLACED,) * len(batch), seed=5)


def waits(defence: Defence) -> list[str]:
    """What torch says about every wait of a step."""
    model, batch = on_gpu(defence)
    gradients(defence, model, batch)
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for terms in defence.losses(model, batch):
                terms.total().backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [f"{one.filename}:{one.lineno}" for one in caught if "synchroniz" in str(one.message)]


@functools.cache
def plain() -> list[str]:
    return waits(defences.Standard())


@pytest.mark.parametrize("name", DEFENCES)
def test_a_step_waits_no_more_often_than_plain_training(name: str) -> None:
    assert len(found := waits(DEFENCES[name])) <= len(plain()), found


@pytest.mark.parametrize("name", ["infobert-freelb", "freelb"])
def test_gradients_of_several_passes_add_up_as_they_do_on_their_own(name: str) -> None:
    defence = DEFENCES[name]
    model, batch = on_gpu(defence)
    expected = gradients(defence, model, batch)
    model.zero_grad()
    torch.manual_seed(3)
    walk(defence, model, batch, backward=lambda loss, _: loss.backward(), autocast=contextlib.nullcontext)
    found = {key: value.grad for key, value in model.named_parameters() if value.grad is not None}
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[key], expected[key], atol=1e-5) for key in found)


@pytest.mark.parametrize("name", ["vib", "infobert-freelb", "freelb", "flat"])
def test_draws_on_a_gpu_repeat(name: str) -> None:
    model, batch = on_gpu(DEFENCES[name])
    states = {key: value.clone() for key, value in model.state_dict().items()}
    first = gradients(DEFENCES[name], model, batch)
    model.load_state_dict(states)
    again = gradients(DEFENCES[name], model, batch)
    assert first.keys() == again.keys()
    assert all(torch.allclose(first[key], again[key], atol=1e-5) for key in first)
