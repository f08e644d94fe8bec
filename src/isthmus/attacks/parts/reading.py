"""The texts of an example, whatever a caller put into it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from isthmus.core.errors import DataError
from isthmus.core.types import Example


def readable(example: Example) -> dict[str, str]:
    """Its texts. What is not a text, or none that a tokenizer can read, is refused before it is laid out.

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
    """Its texts; none where it is no example, or has no fields at all."""
    return example.texts if isinstance(example, Example) and isinstance(example.fields, Mapping) else {}


def kind(value: object) -> str:
    """What a value is, for a message."""
    return "None" if value is None else f"{type(value).__name__} ({value!r:.60})"
