"""Words as small integers, so that a thousand candidates are one array.

`DELETE` stands for no word at all, `UNKNOWN` for the unknown token of whichever tokenizer reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

DELETE = 0
UNKNOWN = 1


class Vocabulary:
    """Interns strings: equal strings have equal ids, and an id never changes."""

    __slots__ = ("_ids", "strings", "unknown")

    def __init__(self, unknown: str = "[UNK]") -> None:
        self.unknown = unknown
        self.strings = ["", unknown]
        self._ids = {"": DELETE}

    def __len__(self) -> int:
        return len(self.strings)

    def id(self, string: str) -> int:
        """The id of a string."""
        found = self._ids.get(string)
        if found is None:
            found = self._ids[string] = len(self.strings)
            self.strings.append(string)
        return found

    def ids(self, strings: Iterable[str]) -> NDArray[np.int32]:
        """The ids of several strings."""
        return np.array([self.id(string) for string in strings], np.int32)
