"""Keeps the examples that `Defence.examples` makes, one file per epoch: ``examples/<epoch>.jsonl``.

The file is written before the examples are used, so that a killed run does not make them again; making them may mean
attacking the model for hours. What the log should say of them lies beside it, in ``examples/<epoch>.json``, and while
they are being made what is there already in ``examples/<epoch>.part.jsonl``. Where several defences make examples one
after the other, what each of them made lies in a folder of its own, ``examples/<place>-<name>``, in the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isthmus.core import unfinished
from isthmus.core.errors import DataError, RunError
from isthmus.core.files import read_json, remove_tree, write_atomic, write_json
from isthmus.core.lines import read_line, seal_row
from isthmus.core.types import Answer, Example, Label
from isthmus.defences.base import Made
from isthmus.training import processes

Examples = Sequence[Example]
_ADDED = "added"


class ExampleStore:
    """The generated examples of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_epoch(self, epoch: int, make: Callable[[], Made | None]) -> Made | None:
        """The examples of `epoch`: read if they exist, else made by the main process, written, and read."""
        if processes.is_main():
            self.keep(epoch, make)
        processes.wait()
        return self._whole(epoch) if self._file(epoch).is_file() else None

    def part(self, name: str) -> ExampleStore:
        """The examples that one defence of several makes."""
        return ExampleStore(self.folder / name)

    def keep(self, epoch: int, make: Callable[[], Made | None]) -> Made | None:
        """Like `of_epoch`, for one process: the caller makes sure that no other calls it."""
        if not self._file(epoch).is_file():
            with unfinished.keep_in(self.folder / f"{epoch}.part.jsonl"):
                made = make()
                if made is not None:
                    self._write(epoch, made)
        return self._whole(epoch) if self._file(epoch).is_file() else None

    def newest(self, epoch: int) -> Made | None:
        """The examples of the last epoch before `epoch` that has any."""
        newest = self._newest(epoch - 1)
        return None if newest is None else self._whole(newest)

    def _whole(self, epoch: int) -> Made:
        notes = self._notes(epoch)
        added = notes.pop(_ADDED, None)
        return Made(self._read(epoch), notes, added if isinstance(added, int) else None)

    def latest(self, epoch: int) -> Examples | None:
        """The newest examples of `epoch` or an epoch before it."""
        newest = self._newest(epoch)
        return None if newest is None else self._read(newest)

    def _newest(self, epoch: int) -> int | None:
        known = [int(path.stem) for path in self.folder.glob("*.jsonl") if path.stem.isdigit()]
        return max((number for number in known if number <= epoch), default=None)

    def clear(self) -> None:
        """Delete the examples of all epochs."""
        remove_tree(self.folder)

    def _write(self, epoch: int, made: Made) -> None:
        notes = {**made.notes, **({_ADDED: made.added} if made.added is not None else {})}
        if notes:  # First: the examples are what says that all is there.
            write_json(self._file(epoch).with_suffix(".json"), notes)
        write_atomic(self._file(epoch), b"".join(seal_row(_make_row(example)) for example in made.examples))

    def _file(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.jsonl"

    def _notes(self, epoch: int) -> dict[str, Any]:
        path = self._file(epoch).with_suffix(".json")
        notes = read_json(path) if path.is_file() else {}
        return notes if isinstance(notes, dict) else {}

    def _read(self, epoch: int) -> Examples:
        path = self._file(epoch)
        try:
            lines = [read_line(line) for line in path.read_bytes().split(b"\n") if line]
            if any(line.row is None or line.is_damaged for line in lines):
                raise ValueError("a line does not match its checksum")
            rows = [line.row for line in lines if line.row is not None]
            return tuple(Example(row["id"], row["fields"], _read_label(row["label"])) for row in rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"cannot read the generated examples in {path} ({error}): delete the file") from error


def _make_row(example: Example) -> dict[str, Any]:
    if len(example.texts) != len(example.fields):
        raise DataError(f"the generated example {example.id} must hold nothing but texts to be written to a file")
    label = (
        example.label if isinstance(example.label, int) else [[answer.start, answer.text] for answer in example.label]
    )
    return {"id": example.id, "fields": example.texts, "label": label}


def _read_label(value: Any) -> Label:
    return value if isinstance(value, int) else tuple(Answer(int(start), str(text)) for start, text in value)
