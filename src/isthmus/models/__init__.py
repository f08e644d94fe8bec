"""Backbones, the slots that a defence fills, and all kinds of victims.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from isthmus.arithmetic.machine import ask_for_strict_arithmetic

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.images import ImageClassifier
    from isthmus.models.importance import WordImportance, fold_word_mask, importance_of, word_importance
    from isthmus.models.slots import Bottleneck, Latent, Noise, Slot, Slots, WordMask, register_slot
    from isthmus.models.stock import from_transformers
    from isthmus.models.storage import load_model
    from isthmus.models.victims import CallableVictim, HttpVictim, OnnxVictim, load_victim, sklearn_victim, wrap
    from isthmus.models.victims.classifier import ClassifierVictim

ask_for_strict_arithmetic()

_HOMES = {
    "Bottleneck": "slots",
    "CallableVictim": "victims",
    "Classifier": "classifier",
    "ClassifierVictim": "victims.classifier",
    "HttpVictim": "victims",
    "ImageClassifier": "images",
    "Latent": "slots",
    "Noise": "slots",
    "OnnxVictim": "victims",
    "Slot": "slots",
    "Slots": "slots",
    "WordImportance": "importance",
    "WordMask": "slots",
    "fold_word_mask": "importance",
    "from_transformers": "stock",
    "importance_of": "importance",
    "load_model": "storage",
    "load_victim": "victims",
    "register_slot": "slots",
    "sklearn_victim": "victims",
    "word_importance": "importance",
    "wrap": "victims",
}

__all__ = [
    "Bottleneck",
    "CallableVictim",
    "Classifier",
    "ClassifierVictim",
    "HttpVictim",
    "ImageClassifier",
    "Latent",
    "Noise",
    "OnnxVictim",
    "Slot",
    "Slots",
    "WordImportance",
    "WordMask",
    "fold_word_mask",
    "from_transformers",
    "importance_of",
    "load_model",
    "load_victim",
    "register_slot",
    "sklearn_victim",
    "word_importance",
    "wrap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
