"""Reads the texts of an example given by any caller."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isthmus.core.errors import DataError
from isthmus.core.types import Example


def readable(example: Example) -> dict[str, str]:
    """Its texts. Values that are not texts, or that no tokenizer can read, are refused before they are laid out.

    Left out instead, it would leave nothing to attack, and an attack without a candidate fails: the example would count
    as robust.
    """
    if not isinstance(example.fields, Mapping):
        raise DataError(f"the fields of an example are a mapping from names to texts, not {kind(example.fields)}")
    for name, value in example.fields.items():
        if not isinstance(value, str | np.ndarray):
            raise DataError(f"{name!r} holds {kind(value)}, not a text")
    if not (texts := example.texts):
        raise DataError("it has no text")
    for name, text in texts.items():
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{name!r} holds half of a surrogate pair, which no tokenizer can read") from None
    return texts


def texts_of(example: Example) -> dict[str, str]:
    """Its texts; empty if it is not an example, or has no fields."""
    return example.texts if isinstance(example, Example) and isinstance(example.fields, Mapping) else {}


def kind(value: object) -> str:
    """The type of a value, for a message."""
    return "None" if value is None else f"{type(value).__name__} ({value!r:.60})"
