"""Saves the trainable weights after every epoch, so that the training can be measured afterwards.

    snapshots/1.safetensors, snapshots/2.safetensors, …     by the name each parameter has in the classifier
    snapshots/averaged/1.safetensors, …                     their moving average, where that is kept

What a defence keeps beside the model (a critic, a teacher) is left out, as it is of a saved classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import RunError
from isthmus.core.files import remove_file
from isthmus.training.checkpoints import save_tensors

if TYPE_CHECKING:
    from torch import nn

    from isthmus.training.settings import TrainingSettings

FOLDER = "snapshots"
AVERAGED = "averaged"
_BESIDE = "companions."


def save_snapshot(
    model: nn.Module, trained: Iterable[nn.Parameter], folder: Path, epoch: int, *, averaged: bool = False
) -> None:
    """Save the trained parameters of `model` after `epoch` epochs; averaged ones separately."""
    chosen = {id(parameter) for parameter in trained}
    tensors = {
        name: parameter.detach().contiguous()
        for name, parameter in model.named_parameters()
        if id(parameter) in chosen and not name.startswith(_BESIDE)
    }
    place = folder / FOLDER / AVERAGED if averaged else folder / FOLDER
    save_tensors(tensors, place / f"{epoch}.safetensors")


def snapshots_into(
    folder: Path | None, model: nn.Module, trained: Callable[[], Iterable[nn.Parameter]], settings: TrainingSettings
) -> Callable[[int], None] | None:
    """A function that saves the weights after an epoch; None if not requested, or without a folder."""
    if folder is None or not settings.snapshots:
        return None
    return lambda epoch: save_snapshot(model, trained(), folder, epoch)


def load_snapshot(model: nn.Module, path: Path) -> None:
    """Load the weights of an epoch into a classifier of the same run."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    known = dict(model.named_parameters())
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read {path} ({error}): delete it, and that epoch is left out") from error
    for name, tensor in tensors.items():
        if name not in known or known[name].shape != tensor.shape:
            raise RunError(f"{path} does not fit the model of its run: {name} is not in it, or has another shape")
    with torch.no_grad():
        for name, tensor in tensors.items():
            known[name].copy_(tensor)


def clear_snapshots(folder: Path) -> None:
    """Delete what an earlier training left in the folder."""
    for path in (*(folder / FOLDER).glob("*.safetensors"), *(folder / FOLDER / AVERAGED).glob("*.safetensors")):
        remove_file(path)
