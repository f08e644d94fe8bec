"""Float32 is float32 while a model is scored, whatever the user has switched on for speed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from isthmus.arithmetic.machine import full_float32
from isthmus.models import Classifier, wrap

BACKENDS: Any = torch.backends
SWITCHES = (BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn, BACKENDS.cuda.matmul, BACKENDS.mkldnn.matmul)


def precisions() -> list[str]:
    return [switch.fp32_precision for switch in SWITCHES]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = precisions()
    yield
    for switch, precision in zip(SWITCHES, before, strict=True):
        switch.fp32_precision = precision
    torch.set_float32_matmul_precision("highest")


def older() -> None:
    torch.set_float32_matmul_precision("high")
    BACKENDS.cudnn.allow_tf32 = True


def newer() -> None:
    for switch in SWITCHES:
        switch.fp32_precision = "tf32"


def mixed() -> None:
    older()
    BACKENDS.cuda.matmul.fp32_precision = "ieee"


@pytest.mark.parametrize("switched_on", [older, newer, mixed])
def test_inside_nothing_is_rounded_and_afterwards_all_is_as_it_was(switched_on):
    switched_on()
    before = precisions()
    assert "tf32" in before
    with full_float32(), full_float32():
        assert set(precisions()) <= {"ieee", "none"}
    assert precisions() == before
    with pytest.raises(KeyError), full_float32():
        raise KeyError
    assert precisions() == before


@pytest.mark.parametrize("form", ["cnn", "lstm"])
def test_scores_and_gradients_are_computed_so(form, monkeypatch):
    options = {"vectors": None, "width": 4, "hidden": 5, "filters": 4, "widths": (1, 2)}
    model = Classifier.create(form, ("bad", "good"), texts=["a fine dull film"], options=options, seed=0)
    seen = []
    forward = type(model).forward

    def watched(self, *args, **kwargs):
        seen.append(precisions())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model), "forward", watched)
    newer()
    victim = wrap(model, device="cpu")
    victim.scores([{"text": "a fine film"}])
    assert seen
    assert all(set(each) == {"ieee"} for each in seen)
    assert precisions() == ["tf32"] * 4
