"""What the machine can compute in fact, whatever it reports.

Some virtual machines announce Intel's matrix unit (AMX) but hide the CPUID leaf that describes its tiles. Libraries
then set it up wrongly, and the first bfloat16 product ends the process with an illegal instruction. No exception can
be caught, so a child process tries first.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
import warnings

from isthmus.core.errors import UnknownName, UsageError

_PATIENCE = 20.0
"""Seconds a product of two small matrices may take before the child counts as hung."""


def check_device(device: str | None) -> None:
    """Refuse a device that does not exist, and name those that do."""
    if device is None or device == "cpu":
        return
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda", "mps") or not re.fullmatch(r"\w+(:\d+)?", str(device)):
        raise UnknownName("device", str(device), ("cpu", "cuda", "cuda:0", "mps"))
    import torch

    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"the device {device!r} is not available here: use cpu")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and int(index or 0) >= count:
        found = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda" if count else "no CUDA device"
        raise UsageError(f"the device {device!r} is not available: torch finds {found} here. cpu always works")


def has_fast_bfloat16(device_type: str) -> bool:
    """Whether bfloat16 is worth using on ``cpu`` or ``cuda``: supported, faster than float32, and working.

    On CPUs that takes a matrix unit; with vector instructions alone (AVX512-BF16) it is no faster than float32.
    """
    import torch

    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # This answer has no public name in every torch we support.
    matrix_unit = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return device_type == "cpu" and matrix_unit is not None and bool(matrix_unit()) and bfloat16_works(device_type)


def attacks_faster_in_bfloat16(device_type: str) -> bool:
    """Whether attacks gain by bfloat16 although training does not: on a CPU whose vector instructions have it."""
    import torch

    # This answer has no public name in every torch we support.
    instructions = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device_type == "cpu" and instructions is not None and bool(instructions()) and bfloat16_works(device_type)


@functools.lru_cache(maxsize=4)
def bfloat16_works(device_type: str) -> bool:
    """Whether bfloat16 products on this device return a result, and do not end the process."""
    if device_type != "cpu" or not hasattr(os, "fork"):
        return True
    with warnings.catch_warnings():
        # Python warns of forking with threads about; the child uses none and lives for milliseconds.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _try_product()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return status == 0
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


def _try_product() -> None:
    """Multiply two matrices and exit without any clean-up that belongs to the parent."""
    import faulthandler

    import torch

    faulthandler.disable()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        torch.set_num_threads(1)
        # Smaller products take another path, which works where this one does not.
        factor = torch.ones(256, 64, dtype=torch.bfloat16)
        product = torch.nn.functional.linear(factor, factor)
        os._exit(0 if bool((product == 64).all()) else 1)
    except BaseException:
        os._exit(1)
