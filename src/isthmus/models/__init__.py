"""Backbones, the slots a defence fills, and everything that can be attacked.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isthmus.models.machine import ask_for_strict_arithmetic

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.slots import Bottleneck, Latent, Noise, Slot, Slots, WordMask, register_slot
    from isthmus.models.storage import load_model
    from isthmus.models.victims.classifier import ClassifierVictim

ask_for_strict_arithmetic()

_HOMES = {
    "Bottleneck": "slots",
    "Classifier": "classifier",
    "ClassifierVictim": "victims.classifier",
    "Latent": "slots",
    "Noise": "slots",
    "Slot": "slots",
    "Slots": "slots",
    "WordMask": "slots",
    "load_model": "storage",
    "register_slot": "slots",
}

__all__ = [
    "Bottleneck",
    "Classifier",
    "ClassifierVictim",
    "Latent",
    "Noise",
    "Slot",
    "Slots",
    "WordMask",
    "load_model",
    "register_slot",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
