"""Measures the share of the gradient of each loss term, at the first step and at every hundredth.

    share(term) = ‖∇ term‖ / ‖∇ task‖         over the weights that the task's own term reaches

The task's term is `cross_entropy`, or the first one where none is called that. A regulariser with a share of 1e-5 does
nothing, whatever its name promises. Terms are differentiated once more, each by itself, before the step's own backward
pass; that leaves gradients and random streams as they are, so training is the same to the last bit.

Of a climb through the word embeddings (FreeLB) the table of words counts in the last pass alone, since its gradient is
taken there for all passes together. A step of several forward passes has the sum of its passes; of several processes
the first one measures its own part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from isthmus.core import progress as work
from isthmus.defences.base import Batch, Terms

if TYPE_CHECKING:
    from torch import Tensor, nn

    Gradients = list[Tensor | None]

EVERY = 100
SMALL = 1e-3
"""A smaller share, twice in a row, is warned about."""
_TASK = "cross_entropy"


class GradientShares:
    """The shares of the terms of one training."""

    def __init__(self) -> None:
        self._sums: dict[str, Gradients] = {}
        self._before: dict[str, tuple[int, float]] = {}
        self._warned: set[str] = set()

    def is_wanted(self, step: int) -> bool:
        """Whether this step, counted from 1, is measured."""
        import torch.distributed

        # Between several processes the extra backward pass would disturb the exchange of gradients.
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return False
        return step == 1 or step % EVERY == 0

    def add(self, model: nn.Module, batch: Batch, terms: Terms, weight: float = 1.0) -> None:
        """Differentiate every term of a yield by itself; the graph stays for the backward pass."""
        from isthmus.defences.parts import perturbation

        perturbation.is_measured = True
        try:
            self._add(model, batch, terms, weight)
        finally:
            perturbation.is_measured = False

    def _add(self, model: nn.Module, batch: Batch, terms: Terms, weight: float) -> None:
        import torch

        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        batch.is_measured = True
        try:
            for name, value in terms.values.items():
                found: Gradients = [None] * len(parameters)
                if value.requires_grad:
                    found = list(torch.autograd.grad(value * weight, parameters, retain_graph=True, allow_unused=True))
                self._sums[name] = _add(self._sums[name], found) if name in self._sums else found
        finally:
            batch.is_measured = False

    def forget(self) -> None:
        """Drop what was added of a step that begins again."""
        self._sums = {}

    def take(self, step: int) -> dict[str, float]:
        """The share of every term but the task's since the last call; warns if one stays small.

        Empty where the loss has one term, or where the task's gradient is not a positive number.
        """
        import torch

        sums, self._sums = self._sums, {}
        if len(sums) < 2:
            return {}
        task = _TASK if _TASK in sums else next(iter(sums))
        reached = [index for index, gradient in enumerate(sums[task]) if gradient is not None]
        # One look at the device for all terms.
        norms = torch.stack([_norm([sums[name][index] for index in reached]) for name in sums]).tolist()
        lengths = dict(zip(sums, norms, strict=True))
        whole = lengths.pop(task)
        if not (math.isfinite(whole) and whole > 0 and all(map(math.isfinite, lengths.values()))):
            return {}
        shares = {name: length / whole for name, length in lengths.items()}
        self._warn(step, shares, task)
        return shares

    def _warn(self, step: int, shares: dict[str, float], task: str) -> None:
        for name, share in shares.items():
            earlier, self._before[name] = self._before.get(name), (step, share)
            if earlier is None or max(earlier[1], share) >= SMALL or name in self._warned:
                continue
            self._warned.add(name)
            work.note(
                f"{name} has almost no effect on the training: its gradient is {earlier[1]:.1e} of that of {task} at "
                f"step {earlier[0]} and {share:.1e} at step {step}. Give it more weight, or remove it."
            )


def _add(first: Gradients, second: Gradients) -> Gradients:
    return [b if a is None else a if b is None else a + b for a, b in zip(first, second, strict=True)]


def _norm(gradients: Gradients) -> Tensor:
    import torch

    there = [gradient.detach().float() for gradient in gradients if gradient is not None]
    return torch.stack(torch._foreach_norm(there)).norm() if there else torch.zeros(())
