"""Checks of hyper-parameters and models, with their error messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from isthmus.models import Classifier


def at_least(defence: str, name: str, value: float, least: float) -> None:
    """Refuse a hyper-parameter that is too small or not a number."""
    if not (math.isfinite(value) and value >= least):
        raise UsageError(f"{defence}: {name} is {value}; it must be a number that is at least {least}")


def finite(defence: str, name: str, value: float) -> None:
    """Refuse a hyper-parameter that is not a number."""
    if not math.isfinite(value):
        raise UsageError(f"{defence}: {name} is {value}; it must be a number")


def check_whole(defence: str, name: str, value: Any, least: int) -> None:
    """Refuse a count that is not a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{defence}: {name} is {value!r}; it must be a whole number that is at least {least}")


def one_of(defence: str, name: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a mode that does not exist, and name those that do."""
    if value not in choices:
        raise UnknownName(f"{name} of {defence}", str(value), choices)


def fill(defence: object, defaults: Mapping[str, float]) -> None:
    """Set parameters that are None to the defaults of the chosen mode."""
    for name, value in defaults.items():
        if getattr(defence, name) is None:
            object.__setattr__(defence, name, value)


def needs_words(defence: str, model: Classifier) -> None:
    """Refuse a model without word embeddings."""
    if not hasattr(model, "table"):
        raise UsageError(
            f"{defence} works on word embeddings, and a {type(model).__name__} has none: "
            "take a text classifier, or a defence of the predictions alone such as confidence_penalty"
        )


def needs_one_vector(defence: str, model: Classifier) -> None:
    """Refuse a model that does not predict from one vector per text."""
    if not hasattr(model, "pooled_size"):
        raise UsageError(
            f"{defence} squeezes the pooled vector of a text classifier, and a {type(model).__name__} has none"
        )
    if model.answers_questions:
        raise UsageError(
            f"{defence} squeezes one vector per text, and question answering reads one per token: "
            "take infobert, freelb, pgd, smart or alum"
        )
