"""Shared by both training loops: precision, global random streams, the optimiser."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.core.hardware import bfloat16_works, has_fast_bfloat16
from isthmus.core.types import Autocast
from isthmus.training.settings import TrainingSettings

if TYPE_CHECKING:
    import torch
    from torch import nn


def autocast_on(device: torch.device, precision: str) -> Autocast:
    """A function that makes contexts in which `device` computes in `precision`: ``auto``, ``fp32`` or ``bf16``.

    Weights stay float32; ``auto`` takes bf16 where it is faster.
    """
    import torch

    if precision == "fp32" or (precision == "auto" and not has_fast_bfloat16(device.type)):
        return contextlib.nullcontext
    if not bfloat16_works(device.type):
        raise UsageError(
            "precision bf16 would end the process on this machine: its processor announces a matrix unit that cannot "
            "be used. Take fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before starting"
        )
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)


@contextlib.contextmanager
def avoid_planned_attention(device: torch.device) -> Iterator[None]:
    """Inside, cuDNN's attention is off on a GPU: it plans for every shape, a third of a small encoder's step."""
    import torch

    if device.type != "cuda":
        yield
        return
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)


@contextlib.contextmanager
def preserve_randomness() -> Iterator[None]:
    """Inside, the global streams of python, numpy and torch may change; they are restored afterwards."""
    import torch

    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_available() else []):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def seed_everything(seed: int) -> None:
    """Seed the global streams of python, numpy and torch, which layers such as dropout use."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextlib.contextmanager
def thaw_afterwards(model: nn.Module) -> Iterator[None]:
    """Unfreeze, after the block, what it froze: for the next training of the same model."""
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        yield
    finally:
        for parameter in moving:
            parameter.requires_grad_(True)


def make_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Make Adam or AdamW for the trainable parameters; biases, gains and normalisation layers are not decayed.

    A module may have an `own_learning_rate`, which then follows the same schedule.
    """
    import torch

    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    plain, rates = _find_undecayed(model), _own_rates(model)
    groups = [
        {
            "params": [p for name, p in trainable if (name in plain) is not decays and rates.get(name) == rate],
            "weight_decay": settings.weight_decay if decays else 0.0,
            **({"lr": rate, OWN: rate / settings.learning_rate} if rate else {}),
        }
        for rate in (None, *sorted(set(rates.values())))  # the model's own first: its rate is the one that is logged
        for decays in (True, False)
    ]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    devices = {parameter.device.type for _, parameter in trainable}
    return kind(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        betas=settings.betas,
        fused=True if devices <= {"cpu", "cuda"} else None,
    )


OWN = "own_rate"
"""Key of a parameter group: the factor of its learning rate to the model's, throughout the schedule."""


def _own_rates(model: nn.Module) -> dict[str, float]:
    """Parameters of modules that name a learning rate of their own."""
    found: dict[str, float] = {}
    for prefix, module in model.named_modules():
        if rate := getattr(module, "own_learning_rate", None):
            found |= {f"{prefix}.{name}" if prefix else name: float(rate) for name, _ in module.named_parameters()}
    return found


def _find_undecayed(model: nn.Module) -> set[str]:
    names = {name for name, parameter in model.named_parameters() if parameter.ndim < 2}
    for prefix, module in model.named_modules():
        if "norm" in type(module).__name__.lower():
            names |= {f"{prefix}.{name}" if prefix else name for name, _ in module.named_parameters()}
    return names


def digest(tensors: Mapping[str, Any]) -> str:
    """16 hex digits that identify a set of named tensors."""
    import torch

    total = hashlib.blake2b(digest_size=8)
    for name, value in sorted(tensors.items()):
        total.update(name.encode())
        if isinstance(value, torch.Tensor):
            total.update(str((value.dtype, tuple(value.shape))).encode())
            total.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()
