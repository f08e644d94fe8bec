"""Whether bfloat16 can be used on this CPU, found out without dying of it.

Some virtual machines advertise matrix instructions that then kill the process. So a child process tries first: it runs
one small product in bfloat16 and times it beside float32. Only what survives and is faster is used by default.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Literal

import torch

Verdict = Literal["faster", "slower", "unusable"]
_PATIENCE_S = 10.0


@functools.cache
def cpu_bfloat16() -> Verdict:
    """What bfloat16 is on this CPU: ``faster`` than float32, ``slower``, or ``unusable``."""
    if not hasattr(os, "fork"):
        return "unusable"
    child = os.fork()
    if child == 0:
        os._exit(_trial())
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "faster" if code == 0 else "slower" if code == 1 else "unusable"
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "unusable"


def supports_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 runs on a device at all."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return device.type != "cpu" or cpu_bfloat16() != "unusable"


def prefers_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is the better choice on a device."""
    return supports_bfloat16(device) if device.type != "cpu" else cpu_bfloat16() == "faster"


def _trial() -> int:
    """Exit code of the child: 0 if bfloat16 is faster, 1 if it is slower."""
    torch.set_num_threads(1)
    seconds = []
    for dtype in (torch.bfloat16, torch.float32):
        rows, weights = torch.ones(256, 384, dtype=dtype), torch.ones(1536, 384, dtype=dtype)
        torch.nn.functional.linear(rows, weights)
        best = float("inf")
        for _ in range(3):
            began = time.perf_counter()
            torch.nn.functional.linear(rows, weights)
            best = min(best, time.perf_counter() - began)
        seconds.append(best)
    return 0 if seconds[0] < seconds[1] else 1
