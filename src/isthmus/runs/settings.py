"""The settings that decide a result, as plain JSON values, and their short hash.

    hash = first 8 hex digits of sha256(canonical JSON of the settings)

Two runs with the same hash must end with the same rows; what cannot change a row (how many are in flight, how large the
cache is, how many examples are asked for) is left out, so that changing it continues the same file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np


def to_plain(value: Any) -> Any:
    """`value` as plain JSON."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, Path):
        return value.as_posix()
    if isinstance(value, re.Pattern):
        return value.pattern
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted(to_plain(part) for part in value)
    # An object without a JSON form is known by its name: a victim's class, a word list's class.
    return getattr(value, "name", None) or getattr(value, "__qualname__", None) or type(value).__qualname__


def short_hash(settings: Mapping[str, Any]) -> str:
    """Eight hex digits that name these settings; the order of keys does not matter."""
    canonical = json.dumps(to_plain(settings), sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]


def differences(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The changes between two settings, one line each: ``seed: 0 -> 1``."""
    found: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{key}.")
        elif to_plain(old) != to_plain(new):
            found.append(f"{prefix}{key}: {old} -> {new}")
    return found
