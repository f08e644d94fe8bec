"""Computes linear layers by oneDNN, with weights laid out beforehand, where torch itself is slow or inexact.

Intel's matrix library, which torch computes float32 products with, uses narrow instructions on processors of others: 90
billion operations a second on a core of an AMD EPYC with AVX-512, where oneDNN, which is part of torch too, has 200. In
bfloat16 torch asks oneDNN as well, but lays the weights out again for every product.

On a processor with Intel's matrix unit (AMX) a row's bits in bfloat16 depend on how many rows are multiplied with it:
oneDNN sums 1,536 inputs in one way for 13 to 36 rows and for more than 390, and in another for those between. Such
layers are multiplied in blocks of a few fixed sizes whose bits agree (`_block_sizes`).

Which library computes is decided by the processor alone, never by a measurement of time: a run that is continued must
get the same bits.
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
_BLOCKS = (32, 64, 128, 256, 512, 1024)
"""Rows of a block, where a product is cut into blocks."""
_USUAL = 256
"""The block whose bits count. Others are used where they have the same."""
_TRIED = (*range(2, 65), 96, 160, 256, 390, 400, 512, 1024, 2048)
"""Numbers of rows on which it is tried whether a product needs blocks."""


class _LinearLayout:
    """The weights of a layer in oneDNN's layout, and the values they were made from."""

    def __init__(self, layer: nn.Linear) -> None:
        self.made_of = _state(layer)
        self._plain = layer.weight.detach()
        self.forward = _Laid(self._plain)

    @functools.cached_property
    def back(self) -> _Laid:
        """The layout of the transposed product, which takes a gradient back."""
        return _Laid(self._plain.T.contiguous())


class _Laid:
    """A matrix [outputs, width] in oneDNN's layout, and the blocks in which rows are multiplied with it."""

    def __init__(self, weight: Tensor) -> None:
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        outputs, width = weight.shape
        inexact = weight.dtype == torch.bfloat16
        self._blocks = _block_sizes(width, outputs, torch.get_num_threads()) if inexact else ()

    def multiply(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Rows [..., width] times the matrix, plus the bias: [..., outputs]."""
        if not self._blocks:
            return _multiply(rows, self._weight, bias)
        flat = rows.reshape(-1, rows.shape[-1])  # [rows, width]
        parts = list(self._in_blocks(flat, bias))
        whole = parts[0] if len(parts) == 1 else torch.cat(parts)
        return whole.view(*rows.shape[:-1], -1)

    def _in_blocks(self, rows: Tensor, bias: Tensor | None) -> Iterator[Tensor]:
        """Multiply in the largest blocks first; the rest is padded with zeros to the smallest block that holds it."""
        largest, at = self._blocks[-1], 0
        while at < len(rows):
            left = len(rows) - at
            size = next((size for size in self._blocks if size >= left), largest)
            block = rows[at : at + size]
            if left < size:
                block = torch.cat([block, block.new_zeros(size - left, block.shape[1])])
            yield _multiply(block, self._weight, bias)[:left]
            at += size


class _Product(torch.autograd.Function):
    """A product that can be differentiated with respect to its rows only."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, layout: _LinearLayout, bias: Tensor | None) -> Tensor:
        ctx.layout = layout
        return layout.forward.multiply(rows, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.layout.back.multiply(gradients[0], None), None, None


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return found


@functools.cache
def _block_sizes(width: int, outputs: int, threads: int) -> tuple[int, ...]:
    """Numbers of rows, the smallest first, whose products in bfloat16 give a row the same bits.

    Empty where any number of rows does.
    """
    del threads  # They decide how the product is cut.
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        rows = torch.randn(max(_TRIED), width, dtype=torch.bfloat16)
        weight = torch.randn(outputs, width).bfloat16()
        laid = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
        usual = _multiply(rows[:_USUAL], laid, None)

        def fits(count: int) -> bool:
            both = min(count, _USUAL)
            return torch.equal(_multiply(rows[:count], laid, None)[:both], usual[:both])

        if all(fits(count) for count in _TRIED):
            return ()
        return tuple(size for size in _BLOCKS if fits(size))


_layouts: WeakKeyDictionary[nn.Linear, _LinearLayout] = WeakKeyDictionary()


@functools.cache
def pays(kind: torch.dtype) -> bool:
    """Whether oneDNN is available and torch's own products of this type are slow on this processor, or inexact."""
    backends: Any = torch.backends
    if not (backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    if kind == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(backends.mkl.is_available() and not _by_intel())


def _by_intel() -> bool:
    """Whether Intel's library has its best kernels for this processor; True if the maker is unknown."""
    try:
        return "AuthenticAMD" not in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return True


@contextlib.contextmanager
def lay_out(model: nn.Module, *, inputs: bool = False) -> Iterator[None]:
    """Inside, linear layers of a model on the CPU are computed by oneDNN where nothing is differentiated.

    With `inputs` also where something is, which may then be the input of the model but no weight.
    """
    layers = [each for each in model.modules() if type(each) is nn.Linear and _fits(each)]
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
    """The model with torch's own products; it is usually a copy that was made inside such a block."""
    for layer in model.modules():
        if hasattr(layer.__dict__.get("forward"), "by_onednn"):
            del layer.__dict__["forward"]
    return model


def _fits(layer: nn.Linear) -> bool:
    weight = layer.weight
    usual = weight.dtype in (torch.float32, torch.bfloat16) and weight.device.type == "cpu" and pays(weight.dtype)
    own = layer.__dict__.get("forward")
    return usual and not weight.is_inference() and (own is None or hasattr(own, "by_onednn"))


def product(layer: nn.Linear, *, inputs: bool = False) -> Callable[[Tensor], Tensor]:
    """The layer as a function; lays out its weights unless that is done."""
    layout = _layouts.get(layer)
    if layout is None or layout.made_of != _state(layer):
        layout = _layouts[layer] = _LinearLayout(layer)
    found, laid, bias, plain = layout, layout.forward, layer.bias, layer.weight

    def multiply(rows: Tensor) -> Tensor:
        if rows.dtype != plain.dtype or not rows.numel():
            return nn.functional.linear(rows, plain, bias)
        if not torch.is_grad_enabled():
            return laid.multiply(rows, bias)
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


def _state(layer: nn.Linear) -> tuple[int, int, int, torch.dtype, int]:
    """A value that changes with the weights and with everything that decides their blocks."""
    weight = layer.weight
    return weight.data_ptr(), weight._version, _steps[0], weight.dtype, torch.get_num_threads()
