"""isthmus makes text classifiers hard to fool, and proves how hard.

    from isthmus import load_model, load_data, attacks, defences, train

    model = train(load_data("rotten_tomatoes"), backbone="minilm", defence=defences.LabelSmoothing())
    for result in attacks.DeepWordBug()(model, load_data("rotten_tomatoes", split="test")[:100]):
        print(result)

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus import attacks, certificates, defences, explanations, measures
    from isthmus.data import load_data
    from isthmus.explanations.base import explain
    from isthmus.models import load_model
    from isthmus.models.victims import load_victim
    from isthmus.training import train

__version__ = "0.1.0"

__all__ = [
    "attacks", "certificates", "defences", "explain", "explanations", "load_data", "load_model", "load_victim", "measures",
    "train",
]  # fmt: skip

_HOMES = {
    "explain": "isthmus.explanations.base",
    "load_data": "isthmus.data",
    "load_model": "isthmus.models",
    "load_victim": "isthmus.models.victims",
    "train": "isthmus.training",
}
_MODULES = ("attacks", "certificates", "defences", "explanations", "measures")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"isthmus.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'isthmus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
