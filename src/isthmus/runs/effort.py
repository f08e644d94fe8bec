"""The cost of a piece of work, over all sessions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def measure_effort(effort: dict[str, float]) -> Iterator[None]:
    """Add the seconds of the block to `effort`, which may also collect those of other processes."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    effort["wall_s"] += time.perf_counter() - wall
    effort["cpu_s"] += time.process_time() - cpu


def sum_effort(before: Any, effort: Mapping[str, float]) -> dict[str, float]:
    """Sum the effort of all sessions that ended; that of a killed session is unknown."""
    total = dict(before) if isinstance(before, Mapping) else {}
    for key, value in effort.items():
        added = total.get(key, 0) + value
        total[key] = added if isinstance(added, int) else round(added, 4)
    return total
