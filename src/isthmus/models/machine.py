"""What this machine's arithmetic can be trusted with.

Two rows of equal length should get the same bits whatever else is in their batch: otherwise an attack's result would
depend on how many examples are in flight. Intel's matrix library promises that only in its strict mode, which costs
nothing measurable; without it a product of fewer than 16 rows, or one split over several threads, differs in the last
bits.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys

_STRICT = ("MKL_CBWR", "AUTO,STRICT")

_TRY_BFLOAT16 = """
import torch
with torch.inference_mode():
    layer = torch.nn.Linear(64, 64).to(torch.bfloat16)
    assert torch.isfinite(layer(torch.ones(64, 64, dtype=torch.bfloat16)).float()).all()
"""


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
        fits = (torch.equal(torch.nn.functional.linear(rows[:n], weight, bias), whole[:n]) for n in range(4, 17))
        return 4 if all(fits) else 16


@functools.cache
def bfloat16_works() -> bool:
    """Whether bfloat16 products run on this CPU.

    Some virtual machines announce a matrix unit and then kill the process that uses it, so a child process tries.
    """
    try:
        tried = subprocess.run([sys.executable, "-c", _TRY_BFLOAT16], capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0
