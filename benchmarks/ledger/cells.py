"""One cell of the ledger: its key, its outcomes, and both as a line."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import DataError
from isthmus.runs.settings import to_plain

OUTCOMES = {
    "failed": ".",  # right, and the attack failed: still right
    "succeeded": "x",
    "skipped": "w",  # wrong without any attack
    "abstained": "a",  # right before, and the model declines the text the attack ended with
    "timed_out": "t",
    "error": "e",
}
"""The character of each outcome. Of a cell without attack `.` is right and `w` is wrong."""

RIGHT, WRONG, DECLINED = ".", "w", "d"
"""`d`: the model declined the text as it was."""
_PLAIN = 600
"""Longest string of outcomes that is written as it is; the 9,824 of SNLI's test split take 1.5 kB packed."""
_PACKED = "zlib:"
_STEPS = 1000
"""Values of single texts are kept to a thousandth."""
_NONE = -(2**15)


@dataclass(frozen=True)
class Key:
    """What decides the outcomes of a cell. Everything in it is plain JSON."""

    data: Mapping[str, Any]
    """Name, split and fingerprint of the texts, and the fingerprint of what the model was trained on."""
    backbone: str
    method: Mapping[str, Any]
    """Name and every parameter of the defence."""
    training: Mapping[str, Any]
    seed: int
    n: int
    """Texts, the first of the split's seeded stratified order; of a whole split, in the order of the split."""
    way: Mapping[str, Any] = field(default_factory=dict)
    """Inference options; empty as the model is deployed."""
    attack: Mapping[str, Any] | None = None
    """Name, parameters, search and resources; None for clean accuracy."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Budget, time limit, preset: what is given."""
    measure: Mapping[str, Any] = field(default_factory=dict)
    """What is measured on the pairs that the attack made, and on whose pairs; empty where outcomes are counted."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, in the order of the fields; empty ones are left out."""
        found = {entry.name: to_plain(getattr(self, entry.name)) for entry in fields(self)}
        return {name: value for name, value in found.items() if value not in (None, {})}

    @cached_property
    def id(self) -> str:
        """12 hex digits that name this key, whatever the order of its entries."""
        canonical = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Cell:
    """A key and what came out."""

    key: Key
    outcomes: str
    """One character a text, in sample order."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    row: str = ""
    """What a table calls it."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Of a measure: its value for every text, in sample order; NaN where a text has none."""

    def __post_init__(self) -> None:
        for name, each in self.values.items():
            if len(each) != self.key.n:
                raise DataError(f"a cell of {self.key.n} texts needs as many values of {name}, not {len(each)}")
        if len(self.outcomes) != self.key.n:
            raise DataError(f"a cell of {self.key.n} texts needs as many outcomes, not {len(self.outcomes)}")
        allowed = "".join([*OUTCOMES.values(), DECLINED])
        if unknown := sorted(set(self.outcomes) - set(allowed)):
            raise DataError(f"unknown outcomes {''.join(unknown)!r}: an outcome is one of {allowed}")
        if errors := self.outcomes.count(OUTCOMES["error"]):
            raise DataError(f"{errors} of {self.key.n} texts ended in an error: a cell with errors is not finished")
        if attacked := not self.key.attack and set(self.outcomes) - {RIGHT, WRONG, DECLINED}:
            raise DataError(f"a cell without attack cannot hold {''.join(sorted(attacked))!r}")

    @classmethod
    def of_answers(
        cls,
        key: Key,
        right: Iterable[bool] | NDArray[np.bool_],
        *,
        row: str = "",
        provenance: Mapping[str, Any] | None = None,
        **figures: Any,
    ) -> Self:
        """A cell of clean accuracy: whether each text was right; more figures stand in the summary."""
        marks = "".join(RIGHT if each else WRONG for each in right)
        summary = {"accuracy": marks.count(RIGHT) / len(marks) if marks else None, **figures}
        return cls(key, marks, summary, row, provenance or {})

    @classmethod
    def of_attack(
        cls,
        key: Key,
        results: Sequence[AttackResult],
        *,
        row: str = "",
        provenance: Mapping[str, Any] | None = None,
        **figures: float,
    ) -> Self:
        """A cell of an attack, from its results in sample order."""
        from isthmus.summaries.attack import summarise

        found = summarise(results).to_json()
        names = ("sacc", "racc", "asr", "avg_queries", "words_changed", "no_candidates")
        summary = {name: _short(found[name]) for name in names if found.get(name) is not None}
        if fresh := found.get("fresh"):
            summary["expected_racc"] = _short(fresh["expected_racc"])
        marks = "".join(_mark(each) for each in results)
        return cls(key, marks, {**summary, **figures}, row, provenance or {})

    @classmethod
    def of_pairs(
        cls,
        key: Key,
        ids: Sequence[str],
        texts: Mapping[str, Sequence[Any]],
        *,
        row: str = "",
        provenance: Mapping[str, Any] | None = None,
        **figures: Any,
    ) -> Self:
        """A cell of a measure of texts before and after an attack.

        `ids` are those of the sample; `texts` has the columns ids, outcomes and one or more of values, None where a
        text has no value. A text that is not among them has no pair, and is marked like one that was not attacked.
        """
        place = {name: number for number, name in enumerate(ids)}
        where = [place[name] for name in texts["ids"]]
        marks = [WRONG] * len(place)
        for at, outcome in zip(where, texts["outcomes"], strict=True):
            marks[at] = OUTCOMES[outcome]
        values = {}
        for name in texts.keys() - {"ids", "outcomes"}:
            values[name] = np.full(len(place), np.nan)
            values[name][where] = [np.nan if value is None else value for value in texts[name]]
        return cls(key, "".join(marks), figures, row, provenance or {}, dict(sorted(values.items())))

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each text is right at the end."""
        return self._is(RIGHT)

    @property
    def clean(self) -> NDArray[np.bool_]:
        """Whether each text is right before anything is changed; of a single draw where the model draws."""
        return ~(self._is(WRONG) | self._is(DECLINED))

    def _is(self, mark: str) -> NDArray[np.bool_]:
        return np.array([each == mark for each in self.outcomes], dtype=np.bool_)

    def to_json(self) -> dict[str, Any]:
        """The line."""
        return {
            "id": self.key.id,
            "row": self.row,
            "key": self.key.to_json(),
            "summary": to_plain(self.summary),
            "outcomes": pack(self.outcomes),
            **({"values": {name: pack_values(each) for name, each in self.values.items()}} if self.values else {}),
            "provenance": to_plain(self.provenance),
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """Read a line back; one whose key does not have its id was changed by hand."""
        try:
            key = Key(**line["key"])
            values = {name: unpack_values(text) for name, text in line.get("values", {}).items()}
            cell = cls(key, unpack(line["outcomes"]), line["summary"], line["row"], line["provenance"], values)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"not a line of a ledger: {error}") from error
        if key.id != line.get("id"):
            raise DataError(f"cell {line.get('id')} has a key that was changed: its id would be {key.id}")
        return cell

    def differs_from(self, other: Cell) -> str:
        """How another cell with the same key contradicts this one; empty where it does not."""
        if self.outcomes != other.outcomes:
            places = [i for i, (a, b) in enumerate(zip(self.outcomes, other.outcomes, strict=True)) if a != b]
            return f"{len(places)} of {self.key.n} outcomes differ, the first at text {places[0]}"
        kept, others = ({name: pack_values(value) for name, value in each.values.items()} for each in (self, other))
        if kept != others:
            names = sorted(name for name in {*kept, *others} if kept.get(name) != others.get(name))
            return f"values of {', '.join(names)} differ"
        ours, theirs = to_plain(self.summary), to_plain(other.summary)
        changed = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        return f"{', '.join(changed)} of the summary differ" if changed else ""


def pack(outcomes: str) -> str:
    """Outcomes as they stand in a line: plain where they are few, compressed where they are a whole test split."""
    if len(outcomes) <= _PLAIN:
        return outcomes
    return _PACKED + base64.b85encode(zlib.compress(outcomes.encode(), 9)).decode()


def unpack(text: str) -> str:
    """One character a text."""
    if not text.startswith(_PACKED):
        return text
    try:
        return zlib.decompress(base64.b85decode(text.removeprefix(_PACKED))).decode()
    except (ValueError, zlib.error) as error:
        raise DataError(f"packed outcomes cannot be read: {error}") from error


def pack_values(values: NDArray[np.float64]) -> str:
    """One number a text, to a thousandth."""
    steps = np.where(np.isnan(values), _NONE, np.round(np.nan_to_num(values) * _STEPS))
    if (np.abs(steps) > 2**15).any():
        raise DataError(f"values of single texts must lie within {2**15 // _STEPS} of 0 to be kept")
    return _PACKED + base64.b85encode(zlib.compress(steps.astype("<i2").tobytes(), 9)).decode()


def unpack_values(text: str) -> NDArray[np.float64]:
    """One number a text, NaN where it has none."""
    try:
        steps = np.frombuffer(zlib.decompress(base64.b85decode(text.removeprefix(_PACKED))), "<i2")
    except (ValueError, zlib.error) as error:
        raise DataError(f"packed values cannot be read: {error}") from error
    return np.where(steps == _NONE, np.nan, steps / _STEPS)


def _mark(result: AttackResult) -> str:
    from isthmus.summaries.attack import is_correct

    if result.outcome == "abstained" and not is_correct(result):
        return DECLINED
    return OUTCOMES[result.outcome]


def _short(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value
