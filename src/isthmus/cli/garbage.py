"""Garbage collection while a command loads its libraries."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collect_rarely() -> Iterator[None]:
    """Inside, garbage is collected rarely.

    Loading torch and transformers makes a million objects that stay; walking them again and again took a seventh of the
    time from the command to the first query. The engine does the same while it attacks.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
