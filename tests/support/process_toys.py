"""A victim that other processes can open by name."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import UnknownName

GOOD, BAD = {"good", "great", "fine"}, {"bad", "dull", "poor"}


class Counting:
    """Counts good and bad words; `dies_on` is a word that ends the process that reads it."""

    labels = ("negative", "positive")

    def __init__(self, dies_on: str = "", once: str = "", stochastic: bool = False) -> None:
        self.dies_on, self.once, self.stochastic = dies_on, once, stochastic

    def scores(self, texts: Any, keys: Any = None) -> Any:
        rows = []
        for number, text in enumerate(texts):
            words = text["text"].split()
            if self.dies_on in words and not (self.once and Path(self.once).exists()):
                if self.once:
                    Path(self.once).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            value = sum(word in GOOD for word in words) - sum(word in BAD for word in words) + 0.25
            if self.stochastic:
                value += (int(keys[number]) % 1000) / 1000 - 0.5
            rows.append([1 / (1 + np.exp(value)), 1 / (1 + np.exp(-value))])
        return np.array(rows, np.float32)


@dataclass
class Toy:
    """Where the processes get their victim from."""

    options: dict[str, Any] = field(default_factory=dict)
    error: Any = None

    def victim(self) -> Any:
        print("a library that is loaded may say something")
        if self.error == "unknown":
            raise UnknownName("model", "tyo", ["toy"])
        if self.error is not None:
            raise self.error
        return Counting(**self.options)

    def models(self, names: Any) -> dict[str, Any]:
        assert names == "none"
        return {}
