"""The result for one example of a set: the model's prediction in every way, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from isthmus.core.errors import RunError

ScoresByWay = Mapping[str, tuple[float, ...]]
"""Class probabilities by the way in which the model was seen."""


@dataclass(frozen=True, slots=True)
class OriginalText:
    """The original of an adversarial text, and the model's prediction for it."""

    texts: Mapping[str, str]
    scores: ScoresByWay | None = None
    reason: str | None = None

    def to_row(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"texts": dict(self.texts), **_scores_row(self.scores, self.reason)}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The result for one example of a set. `error`: the model has no prediction, or there is no example."""

    id: str
    outcome: str
    """``right``, ``wrong`` or ``error``."""
    label: int | None = None
    """None where the data hold no example."""
    texts: Mapping[str, str] = field(default_factory=dict)
    scores: ScoresByWay | None = None
    reason: str | None = None
    prediction: int | None = None
    original: OriginalText | None = None

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record; an example that was never scored has no scores."""
        row: dict[str, Any] = {"id": self.id, "outcome": self.outcome, "label": self.label, "texts": dict(self.texts)}
        if self.label is None:
            return {**row, "reason": self.reason}
        row |= _scores_row(self.scores, self.reason)
        if self.scores is not None:
            row["prediction"] = self.prediction
        if self.original is not None:
            row["original"] = self.original.to_row()
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Evaluated:
        """Read a record back."""
        try:
            known: dict[str, Any] = {name: row.get(name) for name in ("label", "reason", "prediction")}
            original = row.get("original")
            if original:
                known["original"] = OriginalText(
                    original.get("texts") or {}, _scores(original.get("scores")), original.get("reason")
                )
            return cls(
                str(row["id"]), str(row["outcome"]), texts=row.get("texts") or {}, scores=_scores(row.get("scores")),
                **known,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"this is not a record of an evaluation: {error}") from error


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question, with the model's answer and the true answers."""

    id: str
    outcome: str
    """``right`` or ``wrong``."""
    question: str
    prediction: str
    answers: list[str]
    exact_match: bool | float
    f1: float
    score: float | None = None
    probability: float | None = None

    def to_row(self) -> dict[str, Any]:
        """A JSON-ready record."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> AnsweredQuestion:
        """Read a record back."""
        try:
            return cls(**{each.name: row[each.name] for each in fields(cls)})
        except (KeyError, TypeError) as error:
            raise RunError(f"this is not a record of an answer: {error}") from error


def _scores_row(scores: ScoresByWay | None, reason: str | None) -> dict[str, Any]:
    shown = None if scores is None else {way: list(each) for way, each in scores.items()}
    return {"scores": shown} if reason is None else {"scores": shown, "reason": reason}


def _scores(value: Mapping[str, Any] | None) -> ScoresByWay | None:
    return {str(way): tuple(each) for way, each in value.items()} if value else None
