"""The order of the examples in an epoch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import Sampler


class Ordered(Sampler[int]):
    """Gives another sampler its own stream, so that the order does not depend on earlier draws."""

    def __init__(self, sampler: Any, seed: Callable[[], int]) -> None:
        self.sampler, self.seed = sampler, seed

    def __iter__(self) -> Iterator[int]:
        seed = self.seed()
        self.sampler.generator = torch.Generator().manual_seed(seed)
        # Length grouping draws from python's stream in some versions.
        state = random.getstate()
        random.seed(seed)
        order = list(self.sampler)
        random.setstate(state)
        return iter(order)

    def __len__(self) -> int:
        return len(self.sampler)
