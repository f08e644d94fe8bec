"""Who wants to know how a verb comes along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class RowResult(Protocol):
    """What became of one example, as a row of a journal keeps it."""

    @property
    def id(self) -> str:
        """Of the example."""

    @property
    def outcome(self) -> str:
        """One word."""

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record without clock times."""


class Observer(Protocol):
    """Told how an attack comes along; the command line shows a bar.

    A subclass writes the methods it wants: the others do nothing, and have a body so that none is abstract.

    >>> from isthmus import Observer, attack
    >>> class Outcomes(Observer):
    ...     def result(self, key, result):
    ...         print(key, result.outcome)
    >>> _ = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], "deepwordbug",
    ...            [("a dull plot", 0)], labels=("bad", "good"), progress=Outcomes())
    deepwordbug succeeded
    """

    def note(self, message: str) -> None:
        """Something worth knowing happened."""
        return

    def begin(self, key: str, total: int, results: Sequence[RowResult]) -> None:
        """An attack begins; `results` are those of an earlier, interrupted run."""
        return

    def result(self, key: str, result: RowResult) -> None:
        """An example is finished."""
        return

    def queries(self, key: str, count: int) -> None:
        """The attack goes on, and has asked the model so often by now."""
        return

    def end(self, key: str) -> None:
        """The attack is finished."""
        return


class Silent(Observer):
    """An observer that says nothing."""
