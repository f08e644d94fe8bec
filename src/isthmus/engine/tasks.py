"""Programs that the engine runs, and their state."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from isthmus.core.types import Floats
from isthmus.engine.requests import Fill, Gradient, Likelihood, Request, Score, Similarity
from isthmus.engine.scoring import AskedScore, take_candidates
from isthmus.text.vocabulary import Vocabulary

Value = TypeVar("Value", covariant=True)
Steps = Generator[Request, Any, Value]


class Stop(Exception):
    """Thrown into an attack that must end; it should conclude with the best it has."""


class BudgetSpent(Stop):
    """Nothing is left of the query budget. A request that fits in part is answered in part: what was not asked about
    comes back as the true class with certainty, which no search takes for progress."""


class TimeSpent(Stop):
    """The example's share of the time is used up."""


class Program(Protocol[Value]):
    """One attack on one example, ready to run."""

    @property
    def key(self) -> int:
        """Names its stream of randomness (64 bits)."""

    @property
    def budget(self) -> int | None:
        """Maximum number of queries; None: no limit."""

    @property
    def label(self) -> int:
        """True class of its text."""

    def start(self, vocabulary: Vocabulary) -> Steps[Value]:
        """The generator to be run."""


@dataclass(slots=True, eq=False)
class EngineTask(Generic[Value]):
    """A program that is running or has ended, then with its value or the reason why it has none."""

    program: Program[Value]
    steps: Steps[Value]
    asked: AskedScore
    budget: int | None = None
    request: Request | None = None
    served: list[Floats] = field(default_factory=list)  # answers to the first candidates of a request served in parts
    logical: int = 0  # queries asked for
    seconds: float = 0.0
    late: bool = False  # whether it was told that its time is up
    looks: int = 0  # fresh draws that its judge has seen
    unasked: int = 0  # rows of the present request for which the budget does not reach
    value: Value | None = None
    error: str | None = None
    timed_out: bool = False  # whether it has none because its time was up, or its victim's

    @property
    def physical(self) -> int:
        """Distinct texts among those that it asked for."""
        return len(self.asked.seen)

    def beyond(self, request: Request, budget: int) -> bool:
        """Whether the budget does not reach for a single candidate of the request."""
        if not isinstance(request, Score) or request.fresh or not request.count:
            return False
        return self.logical + request.each > budget

    def within(self, request: Request, budget: int) -> Request:
        """The request, or as many of its first candidates as the budget still reaches for."""
        if not isinstance(request, Score):
            return request
        left = (budget - self.logical) // request.each
        if request.fresh or request.count <= left:
            return request
        request.asked, self.unasked = left, (request.count - left) * request.each
        return take_candidates(request, 0, left)

    def turn(self, most: Callable[[int], int]) -> Similarity:
        """The part of its `Similarity` request whose turn it is: all of it, or `most(words)` candidates more."""
        request, start = self.request, self.asked.done
        assert isinstance(request, Similarity)
        stop = min(request.count, start + most(_count_compared(request)))
        self.asked.done = 0 if stop == request.count else stop
        return request if stop - start == request.count else request.take(start, stop)

    def cost(self, limit: int) -> int:
        """About how many tokens models will read for its request; the victim reads no more than `limit` of a text."""
        request = self.request
        if type(request) is Score:
            words = len(request.base.ids)
            return (request.rows - self.asked.done * request.each) * ((words if words < limit else limit) + 2)
        if isinstance(request, Similarity):
            return (request.count - self.asked.done) * (_count_compared(request) + 2)
        if isinstance(request, Fill | Likelihood):
            return len(request.positions) * (min(len(request.base), 128) + 2)
        if isinstance(request, Gradient):
            return request.draws * (len(request.base) + 2)
        return 0


def _count_compared(request: Similarity) -> int:
    """Words of a candidate that are read."""
    return len(request.base) if request.window is None else min(request.window, len(request.base))


def no_progress(answer: Floats, label: int, count: int) -> Floats:
    """Scores of candidates that nobody asked about: certain of the true class, so that no search takes one."""
    scores = np.zeros((count, answer.shape[1]), answer.dtype)
    scores[:, label] = 1
    return scores
