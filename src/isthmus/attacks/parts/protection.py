"""Which words an attack may touch: whole columns, or spans that match a pattern, can be protected.

The payload must survive: a phishing text without its link, or an injection without its command, has evaded nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UnknownName, UsageError
from isthmus.text.words import Words


@dataclass(frozen=True, slots=True)
class Protection:
    """Columns and patterns that no edit may touch.

    `columns` None leaves it to the attack: most protect the premise of a pair that has one.
    """

    columns: tuple[str, ...] | None = None
    pattern: str | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise UsageError(f"the pattern {self.pattern!r} is not a regular expression: {error}") from error

    def check(self, fields: Sequence[str]) -> None:
        """Refuse columns that the data does not have, and protecting everything."""
        for column in self.columns or ():
            if column not in fields:
                raise UnknownName("column", column, fields)
        if self.columns is not None and set(fields) <= set(self.columns):
            raise UsageError(f"all columns ({', '.join(fields)}) are protected: nothing is left to attack")

    def editable(self, texts: Mapping[str, str], usual: Sequence[str] = ("premise",)) -> NDArray[np.bool_] | None:
        """For every word of all fields whether it may be touched; None where everything may.

        `usual` are the columns of a pair that the attack itself leaves alone.
        """
        columns = self.columns
        if columns is None:
            columns = tuple(name for name in usual if name in texts) if len(texts) > 1 else ()
        if not columns and self.pattern is None:
            return None
        pattern = re.compile(self.pattern) if self.pattern is not None else None
        masks = []
        for name, text in texts.items():
            spans = Words.of(text).offsets()
            mask = np.full(len(spans), name not in columns)
            for match in pattern.finditer(text) if pattern is not None else ():
                for index, (start, end) in enumerate(spans):
                    mask[index] &= end <= match.start() or start >= match.end()
            masks.append(mask)
        return np.concatenate(masks)
