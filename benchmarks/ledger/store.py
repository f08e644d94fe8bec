"""A file of cells: read, append, merge."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from isthmus.core.errors import DataError, IsthmusError
from isthmus.core.files import write_atomic
from isthmus.core.lines import seal_row
from isthmus.runs.journal import BusyError, Journal, read_every_row
from ledger.cells import Cell, Key

_PATIENCE_S = 60.0


class Contradiction(IsthmusError):
    """Two cells with one key and different outcomes."""


class Ledger:
    """The cells of one file. It is read when asked, so that what other processes appended is seen."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells().values())

    def __len__(self) -> int:
        return len(self.cells())

    def __contains__(self, key: Key) -> bool:
        return key.id in self.cells()

    def cells(self) -> dict[str, Cell]:
        """Every cell by its id, in the order of the file; two that contradict each other are an error."""
        found: dict[str, Cell] = {}
        for number, line in enumerate(read_every_row(self.path), start=1):
            try:
                cell = Cell.from_json(line)
            except DataError as error:
                raise DataError(f"{self.path} line {number}: {error}") from error
            known = found.setdefault(cell.key.id, cell)
            if difference := known.differs_from(cell):
                raise Contradiction(f"{self.path} line {number}: {_told(cell)} is there twice: {difference}")
        return found

    def append(self, cell: Cell) -> bool:
        """Write a cell; it is on the disk when this returns. False where the same cell is there already.

        A cell with the same key and other outcomes is refused: a number must not change without anybody noticing.
        """
        with self._opened() as journal:
            known = journal.rows.get(cell.key.id)
            if known is None:
                journal.append(cell.to_json())
            elif difference := Cell.from_json(known).differs_from(cell):
                raise Contradiction(
                    f"{self.path} holds {_told(cell)} with other results: {difference}. To take the new ones remove "
                    f"its line (id {cell.key.id})"
                )
        return known is None

    def replace(self, cells: Iterable[Cell]) -> None:
        """Put these cells in the file's place."""
        write_atomic(self.path, b"".join(seal_row(cell.to_json()) for cell in cells))

    def _opened(self) -> Journal:
        """The file, open for this process alone; another one needs it for a moment only."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return Journal(self.path)
            except BusyError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


Preference = Literal["neither", "ours", "theirs"]


def merge(into: Ledger, others: Iterable[Ledger], prefer: Preference = "neither") -> tuple[int, int]:
    """Add the cells of other files; how many were added and how many replaced.

    Where a cell is there with other outcomes nothing at all is written, unless one side is preferred.
    """
    cells = into.cells()
    added = replaced = 0
    for other in others:
        for key, cell in other.cells().items():
            known = cells.get(key)
            if known is None:
                cells[key], added = cell, added + 1
            elif difference := known.differs_from(cell):
                if prefer == "neither":
                    raise Contradiction(
                        f"{into.path} and {other.path} disagree about {_told(cell)}: {difference}. "
                        "Say which to keep: --prefer ours, or --prefer theirs"
                    )
                if prefer == "theirs":
                    cells[key], replaced = cell, replaced + 1
    if added or replaced:
        into.replace(cells.values())
    return added, replaced


def _told(cell: Cell) -> str:
    key = cell.key
    attack = key.attack["name"] if key.attack else "no attack"
    return f"{cell.row or key.method['name']} on {key.data['name']}, seed {key.seed}, {attack}, n = {key.n}"
