"""Trains on a defence's losses: with the Hugging Face Trainer, or a loop over resident tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.training.fit import train
from isthmus.training.settings import Progress, TrainingSettings

if TYPE_CHECKING:
    from isthmus.training.resident import Resident, train_resident

__all__ = ["Progress", "Resident", "TrainingSettings", "train", "train_resident"]


def __getattr__(name: str) -> Any:
    if name in ("Resident", "train_resident"):
        from isthmus.training import resident

        return getattr(resident, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
