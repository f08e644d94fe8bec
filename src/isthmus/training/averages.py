"""An exponential moving average of the weights over the training steps.

    a_0 = w_0,     a_t = d a_{t-1} + (1 - d) w_t          after every step t, with the decay d

Training never sees it: the weights, the random numbers and the log are the same bits with and without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from isthmus.core.errors import RunError

if TYPE_CHECKING:
    from torch import Tensor, nn

_PREFIX = "average."


class AveragedWeights:
    """The average of every trainable parameter of a model."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.own = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.values = {name: value.detach().clone() for name, value in self.own.items()}

    def update(self) -> None:
        """Update the average with the current weights, after a step."""
        with torch.no_grad():
            torch._foreach_lerp_(list(self.values.values()), list(self.own.values()), 1 - self.decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model has its averaged weights; buffers are those of the last step."""
        kept = {name: value.detach().clone() for name, value in self.own.items()}
        self._put(self.values)
        try:
            yield
        finally:
            self._put(kept)

    def _put(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.own.items():
                value.copy_(values[name])

    def tensors(self) -> dict[str, Tensor]:
        """The state that a checkpoint stores."""
        return {f"{_PREFIX}{name}": value for name, value in self.values.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from a checkpoint's state."""
        for name, value in self.values.items():
            if (key := f"{_PREFIX}{name}") not in tensors:
                raise RunError(f"the checkpoint has no average of {name}: delete the folder of checkpoints")
            value.copy_(tensors[key])
