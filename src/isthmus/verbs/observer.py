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

    def begin(self, key: str, total: int, results: Sequence[RowResult]) -> None:
        """An attack begins; `results` are those of an earlier, interrupted run."""

    def result(self, key: str, result: RowResult) -> None:
        """An example is finished."""

    def queries(self, key: str, count: int) -> None:
        """Called with the number of model queries so far."""

    def end(self, key: str) -> None:
        """The attack is finished."""


class Silent:
    """An observer that says nothing."""

    def note(self, message: str) -> None: ...  # noqa: D102
    def begin(self, key: str, total: int, results: Sequence[RowResult]) -> None: ...  # noqa: D102
    def result(self, key: str, result: RowResult) -> None: ...  # noqa: D102
    def queries(self, key: str, count: int) -> None: ...  # noqa: D102
    def end(self, key: str) -> None: ...  # noqa: D102
