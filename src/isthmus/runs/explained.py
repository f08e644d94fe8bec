"""Explanations, and the file explanations.json that keeps them in a run folder.

    {"pwws": {"settings": …, "hash": …, "command": …, "explained": […]}, "pwws@1a2b3c4d": …}

The first settings take the plain name of what was explained, others get their hash, as in measures.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import isthmus
from isthmus.core.errors import RunError
from isthmus.core.lock import serialise
from isthmus.core.records import read_record, write_record
from isthmus.runs.folder import RunFolder
from isthmus.runs.settings import short_hash, to_plain

if TYPE_CHECKING:
    from isthmus.explanations.base import Explanation


@dataclass(frozen=True)
class Reading:
    """One model's explanation of one text, and of its attacked version."""

    model: str
    original: Explanation
    attacked: Explanation | None = None

    @property
    def sides(self) -> tuple[tuple[str, Explanation], ...]:
        """The texts with their names; a single text has none."""
        if self.attacked is None:
            return (("", self.original),)
        return ("original", self.original), ("attacked", self.attacked)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        attacked = None if self.attacked is None else self.attacked.to_json()
        return {"model": self.model, **self.original.to_json(), "attacked": attacked}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read an explanation that `to_json` made."""
        from isthmus.explanations.base import Explanation

        attacked = value.get("attacked")
        return cls(
            str(value["model"]),
            Explanation.from_json(value),
            None if attacked is None else Explanation.from_json(attacked),
        )


@dataclass(frozen=True)
class Explained:
    """One text, or a text and its attacked version, explained for one model or two."""

    title: str
    readings: tuple[Reading, ...]
    """The model's, then that of the model it is compared with."""
    truth: str | None = None
    """The true class, where it is known."""

    @property
    def explanation(self) -> Explanation:
        """The explanation of the text for the first model."""
        return self.readings[0].original

    @property
    def attacked(self) -> Explanation | None:
        """The explanation of the attacked text for the first model."""
        return self.readings[0].attacked

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the first model's explanation, and the other's under `against`."""
        first, *others = self.readings
        found = {**first.to_json(), "truth": self.truth, "title": self.title}
        return found if not others else {**found, "against": [other.to_json() for other in others]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read an explanation that `to_json` made."""
        readings = [Reading.from_json(value), *(Reading.from_json(each) for each in value.get("against") or ())]
        truth = value.get("truth")
        return cls(str(value["title"]), tuple(readings), None if truth is None else str(truth))


@dataclass(frozen=True)
class KeptExplanations:
    """Explanations that a run folder holds."""

    folder: RunFolder
    key: str
    settings: Mapping[str, Any]
    explained: tuple[Explained, ...]

    @property
    def title(self) -> str:
        """The explained texts and the method, as a title."""
        found = f"{self.key.split('@')[0]} by {self.settings.get('method')}"
        return f"{found}, beside {self.settings['against']}" if self.settings.get("against") else found


def keep(
    folder: RunFolder, name: str, settings: Mapping[str, Any], explained: Sequence[Explained], command: str | None
) -> KeptExplanations:
    """Write explanations into a run folder; those with the same settings are replaced."""
    folder.record()
    code = short_hash(settings)
    entry = {
        "settings": to_plain(settings),
        "hash": code,
        "isthmus": isthmus.__version__,
        "command": command,
        "explained": _without_nan([each.to_json() for each in explained]),
    }
    with folder.hold("explain"), serialise(folder.explanations_path, "explain"):
        known = _read_entries(folder)
        key = name if name not in known or known[name].get("hash") == code else f"{name}@{code}"
        write_record(folder.explanations_path, {**known, key: entry})
    return KeptExplanations(folder, key, settings, tuple(explained))


def check_kept(folder: RunFolder) -> None:
    """Refuse a folder whose file of explanations cannot be added to."""
    _read_entries(folder)


def read_explanations(folder: RunFolder) -> list[KeptExplanations]:
    """Read the explanations in a run folder, by name."""
    found = []
    for key, entry in sorted(_read_entries(folder).items()):
        try:
            explained = tuple(Explained.from_json(each) for each in entry["explained"])
            settings = dict(entry.get("settings") or {})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RunError(
                f"{folder.explanations_path}: {key} holds no explanations ({error}): move the file away"
            ) from error
        found.append(KeptExplanations(folder, key, settings, explained))
    return found


def _read_entries(folder: RunFolder) -> dict[str, dict[str, Any]]:
    if not folder.explanations_path.is_file():
        return {}
    value = read_record(folder.explanations_path)
    if not all(isinstance(entry, dict) for entry in value.values()):
        raise RunError(f"{folder.explanations_path} should hold an object of explanations: move it away")
    return value


def _without_nan(value: Any) -> Any:
    """Replace NaN by None: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
