"""Settings of the engine, and the cost of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from isthmus.core.errors import UsageError
from isthmus.core.types import Floats
from isthmus.engine.scoring import ScoreStatistics

QueryHook = Callable[[int, Mapping[str, str], Floats], None]
"""Told of a query: the key of its program, the text, the scores [classes]."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of the engine; none of them changes a result on a CPU, except the limits."""

    in_flight: int | None = None
    """Attacks run at once; by default 256 on a CPU and 8,192 on a GPU."""
    cache_megabytes: float = 64.0
    """Memory for scores already seen; 0 turns the cache off."""
    cache_stochastic: bool = False
    """Answer a stochastic victim's repeated texts from the cache (never done unless asked for)."""
    time_limit: float | None = None
    """Seconds an example may use: its own steps plus its share of the batches."""
    confirm: bool = True
    """Check successes found in bfloat16 again in float32 before they count."""
    vocabulary_limit: int = 2_000_000
    """Number of distinct words in the vocabulary before the engine finishes all attacks and clears it."""
    trace: QueryHook | None = field(default=None, repr=False, compare=False)
    """Told of every query that was answered, in the order in which each attack asked: key, texts, scores [classes]."""

    def __post_init__(self) -> None:
        if self.in_flight is not None and self.in_flight < 1:
            raise UsageError(f"in_flight must be at least 1, not {self.in_flight}")
        if self.time_limit is not None and not 0 < self.time_limit < math.inf:
            raise UsageError(f"the time limit is a positive number of seconds, not {self.time_limit}")


@dataclass(slots=True)
class EngineStatistics:
    """The cost of a run."""

    scores: ScoreStatistics
    examples: int = 0
    rounds: int = 0
    total_s: float = 0.0  # without the turns of other runs
    service_s: float = 0.0  # in models other than the victim, and in its gradient

    def add_service_time(self, seconds: float) -> None:
        """Count time spent in models other than the victim."""
        self.service_s += seconds
