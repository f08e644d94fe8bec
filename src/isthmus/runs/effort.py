"""What a piece of work cost, over all the sessions it took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def measure_effort(effort: dict[str, float]) -> Iterator[None]:
    """Add the seconds that the block takes to `effort`, where it may note those of other processes."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    effort["wall_s"] += time.perf_counter() - wall
    effort["cpu_s"] += time.process_time() - cpu


def sum_effort(before: Any, effort: Mapping[str, float]) -> dict[str, float]:
    """Effort of all sessions that ended; one that was killed is not known."""
    total = dict(before) if isinstance(before, Mapping) else {}
    for key, value in effort.items():
        added = total.get(key, 0) + value
        total[key] = added if isinstance(added, int) else round(added, 4)
    return total
