"""``train.jsonl``: one line per logged step and per evaluation, without clock times.

    {"step": 10, "epoch": 0.05, "cross_entropy": 0.69, "loss": 0.69, "learning_rate": 8e-05, "gradient_norm": 1.7}
    {"step": 200, "epoch": 1.0, "dev_accuracy": 0.83, "dev_loss": 0.41, "dev_ece": 0.06, "dev_information": {...}, ...}
    {"step": 200, "epoch": 1.0, "dev_f1": 0.71, "dev_exact_match": 0.6, "dev_loss": 1.3}        question answering

    {"step": 100, "epoch": 0.5, "gradient_shares": {"smoothness": 0.08}}       at step 1 and every hundredth
    {"step": 200, "epoch": 1, "selection": "begins"}

Shares say how long the gradient of a term is beside that of the task's (`isthmus.training.shares`). The last kind says
that the best weights are looked for from there on, where a defence begins later than the training. Each line ends with
its checksum (`isthmus.core.lines`). A checkpoint remembers how long the file was; a resumed run cuts it back to that
length, so the same lines follow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.files import writing
from isthmus.core.lines import seal


def select_judged(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows whose weights could be selected: those after the selection began, or all of them."""
    begins = [number for number, row in enumerate(rows) if "selection" in row]
    return list(rows[begins[-1] + 1 :] if begins else rows)


class TrainLog:
    """Appends rows to a file; without a path it keeps nothing."""

    def __init__(self, path: Path | None, length: int = 0) -> None:
        """Open `path` and truncate it to `length` bytes."""
        self._path = path
        if path is not None:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                os.truncate(path, min(length, path.stat().st_size))

    @property
    def length(self) -> int:
        """Number of bytes so far."""
        return 0 if self._path is None else self._path.stat().st_size

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; it has reached the operating system when this returns."""
        if self._path is not None:
            with writing(self._path), self._path.open("ab") as stream:
                stream.write(seal(json.dumps(row).encode()))
