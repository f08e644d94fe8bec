"""Who wants to know how a verb comes along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]


class Observer(Protocol):
    """Told how an attack comes along; the command line shows a bar."""

    def note(self, message: str) -> None:
        """Something worth knowing happened."""

    def begin(self, key: str, total: int, rows: Sequence[Row]) -> None:
        """An attack begins; `rows` are those of an earlier, interrupted run."""

    def row(self, key: str, row: Row) -> None:
        """An example is finished."""

    def queries(self, key: str, count: int) -> None:
        """The attack goes on, and has asked the model so often by now."""

    def end(self, key: str) -> None:
        """The attack is finished."""


class Silent:
    """An observer that says nothing."""

    def note(self, message: str) -> None: ...  # noqa: D102
    def begin(self, key: str, total: int, rows: Sequence[Row]) -> None: ...  # noqa: D102
    def row(self, key: str, row: Row) -> None: ...  # noqa: D102
    def queries(self, key: str, count: int) -> None: ...  # noqa: D102
    def end(self, key: str) -> None: ...  # noqa: D102
