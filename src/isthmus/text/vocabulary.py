"""Words as small integers, so that a thousand candidates are one array.

`DELETE` stands for no word at all, `UNKNOWN` for the unknown token of whichever tokenizer reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

DELETE = 0
UNKNOWN = 1


class _Table(dict[str, int]):
    """Gives a new string the next id; a known one costs a plain look-up."""

    def __init__(self, strings: list[str]) -> None:
        super().__init__({"": DELETE})
        self.strings = strings

    def __missing__(self, string: str) -> int:
        self[string] = number = len(self.strings)
        self.strings.append(string)
        return number


class Vocabulary:
    """Interns strings: equal strings have equal ids, and an id never changes."""

    __slots__ = ("memory", "strings", "table", "unknown")

    def __init__(self, unknown: str = "[UNK]") -> None:
        self.unknown = unknown
        # Tables by word id that others keep; they go when the ids go.
        self.memory: dict[Any, dict[int, Any]] = {}
        self.strings = ["", unknown]
        self.table = _Table(self.strings)

    def __len__(self) -> int:
        return len(self.strings)

    def id(self, string: str) -> int:
        """The id of a string."""
        return self.table[string]

    def ids(self, strings: Iterable[str]) -> NDArray[np.int32]:
        """The ids of several strings."""
        table = self.table
        return np.array([table[string] for string in strings], np.int32)
