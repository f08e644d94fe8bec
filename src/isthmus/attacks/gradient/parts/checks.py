"""Checks of an attack's tensors; errors say what is wrong and what would work."""

from __future__ import annotations

import torch
from torch import Tensor

from isthmus.attacks.gradient.parts.spaces import Bounds
from isthmus.core.errors import UsageError, VictimError


def check_inputs(inputs: Tensor, bounds: Bounds | None) -> Tensor:
    """Return the inputs, or raise if they are not a batch of numbers inside the box."""
    if not isinstance(inputs, Tensor):
        raise UsageError(f"inputs are a torch tensor, not a {type(inputs).__name__}: torch.as_tensor makes one")
    if inputs.dtype not in (torch.float32, torch.float64):
        hint = "divide by 255 for pixels from 0 to 1" if not inputs.is_floating_point() else "inputs.float() makes one"
        raise UsageError(f"inputs are float32 or float64, not {_dtype_name(inputs)}: {hint}")
    if inputs.dim() < 2:
        raise UsageError(f"inputs are a batch [rows, ...], not of shape {tuple(inputs.shape)}: inputs[None] is one row")
    if not inputs.numel():
        raise UsageError(f"inputs of shape {tuple(inputs.shape)} hold nothing to attack: give at least one row")
    if not bool(inputs.isfinite().all()):
        row = int((~inputs.flatten(1).isfinite().all(dim=1)).nonzero()[0])
        raise UsageError(f"row {row} of the inputs has values that are not numbers: leave it out")
    inputs = inputs.detach()
    if bounds is not None:
        least, most = float(inputs.min()), float(inputs.max())
        if least < bounds[0] or most > bounds[1]:
            raise UsageError(
                f"inputs lie in [{least:g}, {most:g}], the box is [{bounds[0]:g}, {bounds[1]:g}]: rescale them (pixels "
                "from 0 to 1, normalisation inside the model), or pass bounds=(least, most), or None for embeddings"
            )
    return inputs


def check_labels(name: str, labels: Tensor, inputs: Tensor) -> Tensor:
    """Return the class numbers, one for each row, or raise."""
    if not isinstance(labels, Tensor) or labels.dtype.is_floating_point or labels.dtype in (torch.bool,):
        found = _dtype_name(labels) if isinstance(labels, Tensor) else type(labels).__name__
        raise UsageError(f"{name} are class numbers in an int64 tensor, not {found}")
    if labels.shape != (len(inputs),):
        raise UsageError(f"{name} of shape {tuple(labels.shape)} for {len(inputs)} rows: one class number for each")
    return labels.to(inputs.device, torch.int64)


def check_logits(logits: Tensor, labels: Tensor, targets: Tensor | None) -> None:
    """Raise if a model's first answer does not fit the labels, or is NaN."""
    classes = logits.shape[-1]
    if logits.dim() != 3 or logits.shape[0] != len(labels):
        raise VictimError(
            f"the model returned logits of shape {tuple(logits.shape)} for {len(labels)} rows: they are [rows, draws, "
            "classes]"
        )
    if classes < 2:
        raise VictimError(
            "the model has one output: gradient attacks need a logit for each of two or more classes (a single output "
            "f is [0, f])"
        )
    for name, values in (("labels", labels), ("targets", targets)):
        if values is not None and bool(((values < 0) | (values >= classes)).any()):
            found = int(values[(values < 0) | (values >= classes)][0])
            raise UsageError(f"{name} hold {found}, but the model has the classes 0 to {classes - 1}")
    if not bool(logits.isfinite().all()):
        raise VictimError("the model answers an unattacked row with logits that are not numbers: check its weights")


def check_movable(movable: Tensor | None, inputs: Tensor) -> Tensor | None:
    """Return a mask that can be broadcast to the inputs, with a row for each, or raise."""
    if movable is None:
        return None
    if movable.dtype != torch.bool:
        raise UsageError(f"movable is True or False for each coordinate (torch.bool), not {_dtype_name(movable)}")
    pairs = zip(movable.shape, inputs.shape, strict=False)
    if movable.dim() != inputs.dim() or any(own not in (1, wanted) for own, wanted in pairs):
        raise UsageError(f"movable of shape {tuple(movable.shape)} does not fit inputs of {tuple(inputs.shape)}")
    return movable.to(inputs.device).expand(len(inputs), *movable.shape[1:])


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
