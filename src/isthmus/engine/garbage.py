"""Garbage collection while attacks run."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_EVERY_S = 10.0
_collected = time.monotonic()
"""When the old was last collected; a process that has just begun has none."""
_running = 0
"""Runs that have begun and not ended: some take turns."""
_thresholds = gc.get_threshold()
"""Those of garbage collection before the first of them."""


@contextmanager
def freeze_garbage() -> Iterator[None]:
    """Exclude existing objects from garbage collection: scanning them repeatedly would cost more than the attacks.

    What was frozen goes to the oldest generation afterwards, which is hardly ever collected: a process that attacks
    again and again would keep its garbage. So that of a run is collected at its end, that of before at its beginning,
    the old only every few seconds, because there may be a lot to walk.
    """
    global _running
    if not _running:
        _freeze()
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            gc.set_threshold(*_thresholds)
            gc.collect()  # While the rest is frozen this looks at what the runs made, and at nothing else.
            gc.unfreeze()


def _freeze() -> None:
    global _collected, _thresholds
    is_due = time.monotonic() - _collected > _COLLECT_EVERY_S
    gc.collect(2 if is_due else 1)
    _collected = time.monotonic() if is_due else _collected
    gc.freeze()
    _thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 50, 100)
