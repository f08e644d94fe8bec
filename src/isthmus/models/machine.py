"""Arithmetic that does not depend on the batch.

Two rows of equal length should get the same bits whatever else is in their batch: otherwise an attack's result would
depend on how many examples are in flight. Intel's matrix library promises that only in its strict mode, which costs
nothing measurable; without it a product of fewer than 16 rows, or one split over several threads, differs in the last
bits.
"""

from __future__ import annotations

import functools
import os

_STRICT = ("MKL_CBWR", "AUTO,STRICT")

STRICT_ROWS = 2
"""Fewest rows of a batch where the strict mode is heard: a single row takes other kernels still (of convolutions)."""


def ask_for_strict_arithmetic() -> None:
    """Ask for results that do not depend on the size of a batch; heard if no large product was computed before."""
    os.environ.setdefault(*_STRICT)


@functools.cache
def fewest_rows() -> int:
    """The smallest batch whose rows get the bits they would get in a larger one, on this CPU."""
    import torch

    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rows, weight, bias = torch.randn(512, 384), torch.randn(384, 384), torch.randn(384)
        whole = torch.nn.functional.linear(rows, weight, bias)
        tried = range(STRICT_ROWS, 17)
        fits = (torch.equal(torch.nn.functional.linear(rows[:n], weight, bias), whole[:n]) for n in tried)
        return STRICT_ROWS if all(fits) else 16
