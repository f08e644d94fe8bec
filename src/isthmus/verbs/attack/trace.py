"""Every query of an attack, one JSON line each: ``attacks/<name>.trace.jsonl``.

    {"id": "test:17", "query": 3, "texts": {"text": "a quiett film"}, "scores": [0.21, 0.79]}

Lines are written as the answers come and reach the system before the row of their example does, so that a finished row
always has its trace. Lines of examples without a row (a kill, an error that is tried again) are dropped when the attack
goes on; at the end the file is put in the order of the rows, which makes it the same however often it was interrupted.
An example whose row is there but whose lines are not (the attack ran without ``--trace``, or a line does not match its
checksum) is attacked again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np

from isthmus.core.files import appending, replacing, writing
from isthmus.core.lines import seal_row, whole_lines

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

_BUFFER = 1 << 20


class Trace:
    """An open trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ids: Mapping[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._stream: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def counts(self) -> dict[str, int]:
        """Number of lines of each example."""
        found: dict[str, int] = {}
        for key, _, _ in _find_lines(self.path):
            found[key] = found.get(key, 0) + 1
        return found

    def begin(self, ids: Mapping[int, str], keep: Sequence[str]) -> None:
        """Drop the lines of every example but those of `keep`; `ids` are the examples' ids by the engine's keys."""
        self._ids, self._numbers = ids, {}
        self.order(keep)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = self.path.open("ab", buffering=_BUFFER)

    def note(self, key: int, texts: Mapping[str, str], scores: Any) -> None:
        """Write one query."""
        assert self._stream is not None
        name = self._ids[key]
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        row = {"id": name, "query": number, "texts": dict(texts), "scores": _round_scores(scores)}
        with appending(self.path):
            self._stream.write(seal_row(row))

    def flush(self) -> None:
        """Flush the file."""
        if self._stream is not None:
            with appending(self.path):
                self._stream.flush()

    def order(self, ids: Sequence[str]) -> None:
        """Rewrite the file with the lines of `ids`, in that order, and no others."""
        self.close()
        places: dict[str, list[tuple[int, int]]] = {key: [] for key in ids}
        for key, start, end in _find_lines(self.path):
            if key in places:
                places[key].append((start, end))
        spans = [span for key in ids for span in places[key]]
        size = self.path.stat().st_size if self.path.exists() else 0
        if spans != sorted(spans) or sum(end - start for start, end in spans) != size:
            _copy_spans(self.path, spans)

    def close(self) -> None:
        """Flush and close the file."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None


def is_traced(result: AttackResult, lines: int) -> bool:
    """Whether every query of a result was recorded."""
    return lines == result.logical_queries or result.outcome in ("error", "timed_out")


def _round_scores(scores: Any) -> list[float]:
    return [float(f"{score:.7g}") for score in np.asarray(scores, np.float32).tolist()]


def _find_lines(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield the example of each complete line, and its start and end; damaged lines are left out."""
    if not path.exists():
        return
    with writing(path), path.open("rb") as stream:
        for line in whole_lines(stream):
            if line.row is not None and not line.is_damaged:
                yield str(line.row.get("id")), line.start, line.end


def _copy_spans(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    """Replace a file by these parts of it; a trace may be too large for the memory."""
    with writing(path), path.open("rb") as source, replacing(path) as target:
        for start, end in spans:
            source.seek(start)
            target.write(source.read(end - start))
