"""The interface by which a verb reports its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class RowResult(Protocol):
    """The result of one example, as a row of a journal."""

    @property
    def id(self) -> str:
        """Id of the example."""

    @property
    def outcome(self) -> str:
        """Outcome in one word."""

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record without clock times."""


class Observer:
    """Receives the progress of a verb; this one ignores it, and the command line's shows a bar.

    A subclass overrides the methods it needs; the others do nothing.

    >>> from isthmus import Observer, attack
    >>> class Outcomes(Observer):
    ...     def result(self, key, result):
    ...         print(key, result.outcome)
    >>> _ = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], "deepwordbug",
    ...            [("a dull plot", 0)], labels=("bad", "good"), progress=Outcomes())
    deepwordbug succeeded
    """

    def note(self, message: str) -> None:
        """Called with a note for the user."""

    def begin(self, key: str, total: int, results: Sequence[RowResult]) -> None:
        """Called when the work starts; `results` are those of an earlier, interrupted run."""

    def result(self, key: str, result: RowResult) -> None:
        """Called when an example is finished."""

    def queries(self, key: str, count: int) -> None:
        """Called with the number of model queries so far."""

    def end(self, key: str) -> None:
        """Called when the work is finished."""
