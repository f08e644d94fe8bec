"""Attacks that move through rounds together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from isthmus.engine.scoring import Claims, Later, ScoreAnswers
from isthmus.engine.tasks import EngineTask, Value

_ENOUGH_CLAIMS = 512
"""Rows that wait for a second look before it is taken: as many as fill a launch."""
_PATIENCE = 3
"""Rounds after which it is taken anyway: who waits long would be left alone with the last rounds."""


@dataclass(slots=True)
class Lane(Generic[Value]):
    """Attacks that move together, and the round under way."""

    tasks: list[EngineTask[Value]] = field(default_factory=list)  # about to ask
    served: list[EngineTask[Value]] = field(default_factory=list)  # whose requests the round answers
    wait: Later | None = None  # for these answers
    held: list[tuple[list[EngineTask[Value]], Claims]] = field(default_factory=list)  # wait for a second look
    age: int = 0  # rounds since the first of them
    looked: list[list[EngineTask[Value]]] = field(default_factory=list)  # get theirs in this round
    look: Callable[[], list[ScoreAnswers]] | None = None

    @property
    def waiting(self) -> int:
        """Tasks that wait for a second look."""
        return sum(len(tasks) for tasks, _ in self.held)

    @property
    def is_due(self) -> bool:
        """Whether a second look is to be taken."""
        if not self.held:
            return False
        rows = sum(len(claims.again) for _, claims in self.held)
        return not self.tasks or rows >= _ENOUGH_CLAIMS or self.age >= _PATIENCE
