"""The few things a training asks about its fellow processes (accelerate launch, torchrun)."""

from __future__ import annotations

import os


def count() -> int:
    """How many processes train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The number of this process."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this is the process that writes files."""
    return rank() == 0


def wait() -> None:
    """Wait until every process is here."""
    if count() > 1:
        import torch

        torch.distributed.barrier()
