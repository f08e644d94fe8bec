"""Linear layers by oneDNN, with weights laid out beforehand, where torch's own library is slow.

Intel's matrix library, which torch computes float32 products with, uses narrow instructions on processors of others: 90
billion operations a second on a core of an AMD EPYC with AVX-512, where oneDNN, which is part of torch too, has 200. In
bfloat16 torch asks oneDNN as well, but lays the weights out again for every product.

Which library computes is decided by the processor alone, never by a measurement: a run that is continued must get the
same bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

_ROWS = 2048
"""Rows of a product for which weights are laid out; any number of rows may be multiplied."""


class _LinearLayout:
    """The weights of a layer as oneDNN wants them, and which values they were made of."""

    def __init__(self, layer: nn.Linear) -> None:
        self.made_of = _state(layer)
        self._plain = layer.weight.detach()
        self.weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._plain, _ROWS)

    @functools.cached_property
    def back(self) -> Tensor:
        """The same for the product that takes a gradient back."""
        found: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._plain.T.contiguous(), _ROWS)
        return found


class _Product(torch.autograd.Function):
    """A product that can be differentiated with respect to its rows, and to nothing else."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: _LinearLayout, bias: Tensor | None) -> Tensor:
        ctx.layout = layout
        return _multiply(rows, layout.weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _multiply(gradients[0], ctx.layout.back, None), None, None


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return found


_layouts: WeakKeyDictionary[nn.Linear, _LinearLayout] = WeakKeyDictionary()


@functools.cache
def pays() -> bool:
    """Whether oneDNN is there and torch's own products are slow on this processor."""
    backends: Any = torch.backends
    there = backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return bool(there and backends.mkl.is_available() and not _by_intel())


def _by_intel() -> bool:
    """Whether the processor is one of those that Intel's library has its best kernels for; so where nobody says."""
    try:
        return "AuthenticAMD" not in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return True


@contextlib.contextmanager
def lay_out(model: nn.Module, *, inputs: bool = False) -> Iterator[None]:
    """Inside the block the linear layers of a model on the CPU answer by oneDNN, wherever nothing is differentiated.

    With `inputs` also where something is, which may then be the input of the model but no weight.
    """
    layers = [each for each in model.modules() if type(each) is nn.Linear and _fits(each)] if pays() else []
    before = [layer.__dict__.get("forward") for layer in layers]
    for layer in layers:
        layer.__dict__["forward"] = product(layer, inputs=inputs)
    try:
        yield
    finally:
        for layer, outer in zip(layers, before, strict=True):
            if outer is None:
                del layer.__dict__["forward"]
            else:
                layer.__dict__["forward"] = outer


def without_layouts(model: nn.Module) -> nn.Module:
    """The model, usually a copy that was made inside such a block, with torch's own products."""
    for layer in model.modules():
        if hasattr(layer.__dict__.get("forward"), "by_onednn"):
            del layer.__dict__["forward"]
    return model


def _fits(layer: nn.Linear) -> bool:
    weight = layer.weight
    usual = weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu"
    own = layer.__dict__.get("forward")
    return usual and not weight.is_inference() and (own is None or hasattr(own, "by_onednn"))


def product(layer: nn.Linear, *, inputs: bool = False) -> Callable[[Tensor], Tensor]:
    """The layer as a function, its weights laid out unless they were already."""
    layout = _layouts.get(layer)
    if layout is None or layout.made_of != _state(layer):
        layout = _layouts[layer] = _LinearLayout(layer)
    found, weight, bias, plain = layout, layout.weight, layer.bias, layer.weight

    def multiply(rows: Tensor) -> Tensor:
        if rows.dtype != plain.dtype or not rows.numel():
            return nn.functional.linear(rows, plain, bias)
        if not torch.is_grad_enabled():
            return _multiply(rows, weight, bias)
        if inputs:
            return _Product.apply(rows, found, None if bias is None else bias.detach())  # type: ignore[no-any-return, no-untyped-call]
        return nn.functional.linear(rows, plain, bias)

    multiply.by_onednn = True  # type: ignore[attr-defined]
    return multiply


_steps = [0]


def _count_step(*_: Any) -> None:
    """Count the steps of all optimisers: fused ones change weights and leave the tensors' version as it was."""
    _steps[0] += 1


register_optimizer_step_post_hook(_count_step)


def _state(layer: nn.Linear) -> tuple[int, int, int, torch.dtype]:
    """Changes whenever the weights do."""
    weight = layer.weight
    return weight.data_ptr(), weight._version, _steps[0], weight.dtype
