"""Runs the generator of a defence's losses, and keeps the named terms.

    for each yielded Terms:  total = Σ values;  back-propagate weight · total;  resume

Both drivers walk through here, so a defence behaves the same under the Trainer and over resident tensors. Terms stay on
the device until they are read: on an accelerator every look at a number waits for the device, so the
ledger looks at many steps at once and still names the exact step and term that stopped being a number.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from isthmus.core.errors import TrainingError
from isthmus.core.types import Autocast
from isthmus.defences.base import Batch, Defence

if TYPE_CHECKING:
    from torch import Tensor, nn

    from isthmus.models import Classifier
    from isthmus.training.shares import GradientShares

Backward = Callable[["Tensor", bool], None]
"""Back-propagate a scalar; the flag says whether to keep its graph."""
Reduce = Callable[["Tensor"], "Tensor"]


def walk(
    defence: Defence,
    model: Classifier,
    batch: Batch,
    *,
    backward: Backward,
    autocast: Autocast,
    weight: float = 1.0,
    shares: GradientShares | None = None,
) -> dict[str, Tensor]:
    """Back-propagate every yield of ``defence.losses``, scaled by `weight`; return the unscaled terms, detached.

    Mixed precision covers the forward passes, which run inside the generator, and not the backward ones. Where `shares`
    are wanted, every term is also differentiated by itself.
    """
    import torch

    sums: dict[str, Tensor] = {}
    generator = defence.losses(model, batch)
    # What is cast lasts as long as the outermost context: so every weight is cast once, however many passes there are.
    with torch.autocast(batch.labels.device.type, enabled=False):
        while True:
            with autocast():
                terms = next(generator, None)
            if terms is None:
                break
            # Only a GPU gains by it, and it takes the memory of another gradient.
            earlier = [parameter for parameter in model.parameters() if parameter.is_cuda] if sums else []
            for name, value in terms.values.items():
                detached = value.detach()
                sums[name] = sums[name] + detached if name in sums else detached
            if shares is not None:
                shares.add(model, batch, terms, weight)
            total = terms.total()
            with add_together(earlier):
                backward(total if weight == 1.0 else total * weight, terms.retain_graph)
    if not sums:
        raise TrainingError(f"the losses of {defence.name} yielded nothing; at least one term is needed")
    return sums


@contextlib.contextmanager
def add_together(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Inside, gradients are added to those from before the block in one step at its end.

    By itself a backward pass adds to one gradient after the other: for a GPU a small job per weight.
    """
    import torch

    before = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    for parameter, _ in before:
        parameter.grad = None
    yield
    both = [(old, parameter.grad) for parameter, old in before if parameter.grad is not None]
    if both:
        torch._foreach_add_([old for old, _ in both], [new for _, new in both])
    for parameter, old in before:
        parameter.grad = old


class Ledger:
    """Collects the terms of the steps since the last row of the log."""

    def __init__(self, reduce: Reduce | None = None) -> None:
        self._reduce = reduce
        self._waiting: list[tuple[int, float, tuple[str, ...], Tensor]] = []
        self._sums: dict[str, float] = {}
        self._steps: set[int] = set()

    def add(self, step: int, terms: dict[str, Tensor], weight: float = 1.0) -> None:
        """Add the terms of one pass of `step`, with its `weight` in that step."""
        import torch

        names = tuple(terms)
        self.note(step, weight, names, torch.stack([terms[name].float() for name in names]))

    def note(self, step: int, weight: float, names: tuple[str, ...], values: Tensor) -> None:
        """Add terms that are in one tensor [names]."""
        self._waiting.append((step, weight, names, values))

    def settle(self) -> None:
        """Copy pending terms from the device to the host; stop at the first that is not a finite number."""
        import torch

        if not self._waiting:
            return
        values = torch.cat([row for _, _, _, row in self._waiting])
        numbers: list[float] = (values if self._reduce is None else self._reduce(values)).tolist()
        waiting, self._waiting = self._waiting, []
        position = 0
        for step, weight, names, _ in waiting:
            self._steps.add(step)
            for name in names:
                value = numbers[position]
                position += 1
                if not math.isfinite(value):
                    raise not_finite(name, value, step)
                self._sums[name] = self._sums.get(name, 0.0) + weight * value

    def take(self) -> dict[str, float]:
        """Mean of every term over the steps since the last call, and their sum as `loss`."""
        self.settle()
        means = {name: value / len(self._steps) for name, value in self._sums.items()}
        self._sums, self._steps = {}, set()
        return {**means, "loss": math.fsum(means.values())}


def not_finite(name: str, value: float, step: int) -> TrainingError:
    """The error for a term or a gradient that is not finite."""
    return TrainingError(
        f"{name} became {value} at step {step}. Lower the learning rate, or the strength of the defence."
    )


def backward(loss: Tensor, retain_graph: bool) -> None:
    """Back-propagate without a scaler."""
    import torch

    torch.autograd.backward(loss, retain_graph=retain_graph)
