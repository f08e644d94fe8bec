"""A job that squares numbers, for tests that run it in processes of their own."""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from isthmus.core.errors import IsthmusError
from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.runs.journal import BusyError, Journal
from isthmus.verbs.observer import Observer
from isthmus.verbs.rows_file import RowsJob


@dataclass(frozen=True)
class Square:
    """A result."""

    id: str
    outcome: str = "right"
    value: int | None = None
    reason: str | None = None

    def to_row(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(eq=False)
class Squares(RowsJob[Square]):
    """Row i holds seed + i²; every seventh is an error the first time."""

    ready: Any
    folder: RunFolder
    seed: int = 0
    n: int = 30
    pause: float = 0.0
    last: int | None = None
    """The number after which it stops, as a killed process does."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"seed": self.seed}

    @property
    def asked(self) -> Sequence[str]:
        return [f"test:{number}" for number in range(self.n)]

    @property
    def unusable(self) -> Sequence[Any]:
        return [SimpleNamespace(id="test:3", reason="no text")]

    def choose_file(self) -> AttackFile:
        return self.folder.attack_file("squares", self.settings)

    def about(self, known: Mapping[str, Any]) -> dict[str, Any]:
        return {"n": max(self.n, int(known.get("n") or 0))}

    def read(self, row: Mapping[str, Any]) -> Square:
        return Square(**row)

    def reject(self, bad: Any) -> Square:
        return Square(bad.id, "error", reason=bad.reason)

    def produce(
        self, file: AttackFile, journal: Journal, missing: set[str], effort: dict[str, float]
    ) -> Generator[Square, None, None]:
        # Not in the order of the data.
        for number in sorted((int(key.split(":")[1]) for key in missing), reverse=True):
            time.sleep(self.pause)
            if number == self.last:
                raise KeyboardInterrupt
            effort["made"] = effort.get("made", 0) + 1
            yield Square(f"test:{number}", value=self.seed + number**2)

    def order(self, header: Mapping[str, Any]) -> Sequence[str]:
        return [f"test:{number}" for number in range(header["n"])]

    def conclude(self, file: AttackFile, header: Mapping[str, Any], results: Sequence[Square]) -> dict[str, Any]:
        return {"summary": {"sum": sum(result.value or 0 for result in results)}}


def ready(**request: Any) -> Any:
    return SimpleNamespace(
        request=SimpleNamespace(**{"retry_errors": False, "command": None, **request}),
        observer=Observer(),
        source=SimpleNamespace(shown="squares"),
        probe_effort=dict,
    )


def dawdle(name: str) -> None:
    """Wait a moment after every look at a file, every new name and every lock, so that the other process gets ahead.

    How long differs by process and place: over some rounds each of two processes is the slower one everywhere.
    """
    chance = random.Random(name)

    def slow(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return inner(*arguments, **named)
            finally:
                time.sleep(chance.choice((0.0, 0.0, 0.001, 0.004)))

        return call

    for module, name in ((os, "stat"), (os, "open"), (os, "replace"), (fcntl, "flock")):
        setattr(module, name, slow(getattr(module, name)))


def race(place: Path, name: str, seed: int, rounds: int) -> list[Any]:
    """Run the job in one folder after another, each at the same moment as the other process."""
    said: list[Any] = []
    dawdle(name)
    for number in range(rounds):
        (place / f"{number}-{name}").touch()
        while not all((place / f"{number}-{each}").exists() for each in "ab"):
            pass
        try:
            said.append(Squares(ready(), RunFolder(place / str(number)), seed, pause=0.001).run().made)
        except BusyError:
            said.append("busy")
        except IsthmusError as error:
            said.append(str(error))
    return said


if __name__ == "__main__":
    print(json.dumps(race(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
