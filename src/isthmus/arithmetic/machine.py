"""Arithmetic that does not depend on the batch.

Two rows of equal length should get the same bits whatever else is in their batch: otherwise an attack's result would
depend on how many examples are in flight. Intel's matrix library promises that only in its strict mode, which costs
nothing measurable; without it a product of fewer than 16 rows, or one split over several threads, differs in the last
bits.

And float32 should mean float32: on a GPU torch computes the convolutions and recurrences of float32 models in TF32
unless told otherwise, with 10 bits of a number where float32 has 23.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_STRICT = ("MKL_CBWR", "AUTO,STRICT")

STRICT_ROWS = 2
"""Fewest rows of a batch where the strict mode is heard: a single row takes other kernels still (of convolutions)."""


def ask_for_strict_arithmetic() -> None:
    """Ask for results that do not depend on the batch size; has an effect only before the first large product."""
    os.environ.setdefault(*_STRICT)


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute float32 products, convolutions and recurrences in float32, whatever the user has set.

    A margin found in TF32 is off by more than what certificates allow for rounding, and an attack that succeeds in TF32
    may not in float32.
    """
    import torch

    backends: Any = torch.backends
    switches = (backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul, backends.mkldnn.matmul)
    kept = [switch.fp32_precision for switch in switches]
    older: tuple[str, bool] | None
    try:
        # torch itself reads the older switches, and fails where they contradict the newer ones.
        older = torch.get_float32_matmul_precision(), backends.cudnn.allow_tf32
    except RuntimeError:  # The newer ones were set apart from them.
        older = None
    _set_older(older and ("highest", False))
    for switch in switches:
        switch.fp32_precision = "ieee"
    try:
        yield
    finally:
        _set_older(older)
        for switch, before in zip(switches, kept, strict=True):
            switch.fp32_precision = before


def _set_older(values: tuple[str, bool] | None) -> None:
    import torch

    if values is not None:
        torch.set_float32_matmul_precision(values[0])
        torch.backends.cudnn.allow_tf32 = values[1]


_WIDTHS = ((384, 384), (384, 1536), (1536, 384), (384, 2))
"""Widths before and after a layer, for whoever has no model to ask."""


def fewest_rows(model: nn.Module | None = None) -> int:
    """The smallest batch size from which rows get the same bits as in a large batch, on this CPU.

    Every size is tried at the widths of the model's own layers: a library that has kernels of its own for one to three
    rows needs no batch of 16, and one that shares narrow products among threads needs it for these alone.
    """
    import torch

    layers = [] if model is None else list(model.modules())
    linear = [each for each in layers if isinstance(each, torch.nn.Linear)]
    widths = {(each.in_features, each.out_features) for each in linear} or _WIDTHS
    half = any(each.weight.dtype == torch.bfloat16 for each in linear)
    least = max(_fewest_rows(*sizes, half, torch.get_num_threads()) for sizes in widths)
    other = model is None or any(isinstance(each, torch.nn.RNNBase | torch.nn.Conv1d) for each in layers)
    return 16 if other and least > STRICT_ROWS else least


@functools.cache
def _fewest_rows(width: int, outputs: int, half: bool, threads: int) -> int:
    """The smallest batch size for one linear layer, in bfloat16 or float32, with this number of threads."""
    del threads  # They decide how the product is cut.
    import torch

    from isthmus.arithmetic.products import pays, product

    kind = torch.bfloat16 if half else torch.float32
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer, rows = torch.nn.Linear(width, outputs), torch.randn(256, width).to(kind)
        torch.nn.init.normal_(layer.weight)
        layer.to(kind)
    ways = [product(layer)] if pays(kind) else []
    if not (half and ways):  # Gradients of weights are torch's own, in float32.
        ways.append(layer)
    misfits = list[int]()
    with torch.inference_mode():
        for multiply in ways:
            whole = multiply(rows)
            misfits += [n for n in range(STRICT_ROWS, 17) if not torch.equal(multiply(rows[:n]), whole[:n])]
    return min(max([STRICT_ROWS, *(n + 1 for n in misfits)]), 16)
