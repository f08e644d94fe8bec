"""Checks a user's victim options before anything is asked."""

from __future__ import annotations

import math
from typing import Any

from isthmus.core.errors import UsageError


def check_number(name: str, value: Any, *, zero: bool = False) -> float:
    """Check that an option is a positive number; with `zero`, zero is allowed."""
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not right or value < 0 or (value == 0 and not zero):
        raise UsageError(f"{name} is a {'number that is not negative' if zero else 'positive number'}, not {value!r}")
    return float(value)


def check_whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """Check that an option is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{name} is a whole number of at least {least}, not {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Check that an option is true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is true or false, not {value!r}")
    return value


def check_name(name: str, value: Any) -> str:
    """Check that an option is a name that is not empty."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name} is a name, not {value!r}")
    return value
