"""Cells of the tables in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def stack(figure: str, interval: str, style: str = "") -> Text:
    """A figure above its interval."""
    from rich.text import Text

    return Text.assemble((figure, style), "\n", (interval, "dim"))
