"""Which words an attack may touch: whole columns, spans that match a pattern, and links or numbers can be protected.

The payload must survive: a phishing text without its link, or an injection without its command, has evaded nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts._matching import find_spans
from isthmus.attacks.parts.payload import KINDS
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.parameter_values import check_names
from isthmus.text.words import Words


@dataclass(frozen=True, slots=True)
class Protection:
    """Columns, patterns and kinds of payload that no edit may touch.

    `columns` None leaves it to the attack: most protect the premise of a pair that has one.
    """

    columns: tuple[str, ...] | None = None
    pattern: str | None = None
    kinds: tuple[str, ...] = ()
    """Names in `isthmus.attacks.parts.payload.KINDS`: ``url``, ``email``, ``phone``."""

    def __post_init__(self) -> None:
        for name in ("columns", "kinds"):
            check_names(name, getattr(self, name))
        if not isinstance(self.pattern, str | None):
            raise UsageError(f"the pattern is a regular expression, not {self.pattern!r:.80}")
        for kind in self.kinds:
            if kind not in KINDS:
                raise UnknownName("kind to protect", kind, KINDS)
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise UsageError(f"the pattern {self.pattern!r} is not a regular expression: {error}") from error

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide a result; kinds are included only if some are protected, as in older folders."""
        found: dict[str, Any] = {"columns": self.columns, "pattern": self.pattern}
        return {**found, "kinds": sorted(self.kinds)} if self.kinds else found

    def check(self, fields: Sequence[str]) -> None:
        """Refuse columns that the data does not have, and protecting everything."""
        for column in self.columns or ():
            if column not in fields:
                raise UnknownName("column", column, fields)
        if self.columns is not None and set(fields) <= set(self.columns):
            raise UsageError(f"all columns ({', '.join(fields)}) are protected: nothing is left to attack")

    def try_on(self, texts: Iterable[Mapping[str, str]]) -> None:
        """Match the pattern once on every text, so that one that takes too long is refused before anything begins."""
        for text in texts if self.pattern is not None else ():
            for field in text.values():
                self._matches(field)

    def _matches(self, text: str) -> list[tuple[int, int]]:
        """The matches of a pattern or a kind of payload; only our own patterns are known to end."""
        own = [match.span() for kind in self.kinds for match in re.finditer(KINDS[kind], text)]
        return own if self.pattern is None else [*own, *find_spans(self.pattern, text)]

    def editable(self, texts: Mapping[str, str], usual: Sequence[str] = ("premise",)) -> NDArray[np.bool_] | None:
        """For every word of all fields whether it may be touched; None where everything may.

        `usual` are the columns of a pair that the attack itself leaves alone.
        """
        columns = self.columns
        if columns is None:
            columns = tuple(name for name in usual if name in texts) if len(texts) > 1 else ()
        if not columns and not self.kinds and self.pattern is None:
            return None
        masks = []
        for name, text in texts.items():
            spans = Words.of(text).offsets()
            mask = np.full(len(spans), name not in columns)
            for first, last in self._matches(text):
                for index, (start, end) in enumerate(spans):
                    mask[index] &= end <= first or start >= last
            masks.append(mask)
        return np.concatenate(masks)
