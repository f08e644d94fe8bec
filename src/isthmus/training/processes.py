"""Communication of the processes that train together (accelerate launch, torchrun)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def count() -> int:
    """Number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Rank of this process."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this is the process that writes files."""
    return rank() == 0


def wait() -> None:
    """Wait until every process calls this."""
    if count() > 1:
        import torch

        torch.distributed.barrier()


def average_gradients(model: nn.Module, accelerator: Any) -> None:
    """Replace every gradient by its mean over the processes, in one reduction."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    here = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32)
    # A parameter used in one process only must be updated in all, or their weights part; one used in none, in none.
    anywhere = accelerator.reduce(here.to(accelerator.device), reduction="sum").tolist()
    used = [parameter for parameter, count in zip(parameters, anywhere, strict=True) if count]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in used]
    flat = accelerator.reduce(torch.cat([gradient.reshape(-1) for gradient in gradients]), reduction="mean")
    start = 0
    for parameter, gradient in zip(used, gradients, strict=True):
        parameter.grad = flat[start : start + gradient.numel()].view_as(gradient)
        start += gradient.numel()


def mean_over(accelerator: Any) -> Callable[[Tensor], Tensor] | None:
    """A function that averages values over the processes; None if there is only one."""
    if accelerator.num_processes == 1:
        return None
    return lambda values: accelerator.reduce(values, reduction="mean")


def sum_over(accelerator: Any) -> Callable[[Tensor], Tensor] | None:
    """A function that sums values over the processes; None if there is only one."""
    if accelerator.num_processes == 1:
        return None
    return lambda values: accelerator.reduce(values.to(accelerator.device), reduction="sum")
