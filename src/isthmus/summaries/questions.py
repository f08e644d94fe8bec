"""Question answering on a data set: exact match and F1, with intervals, question by question.

    mean over the questions           of the figures of `core.answer_scores`, 0 to 1, with a bootstrap interval
    worst variant (Adversarial SQuAD) mean over the original questions of the variant with the least F1

What is resampled is a group of questions that belong together (variants of one question, questions about one text):
their figures are not independent, and resampling them one by one would give intervals that are too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from isthmus.core.answer_scores import AnswerScore, base_ids, score, worst_variants
from isthmus.core.errors import DataError, RunError, UsageError
from isthmus.core.records import part_of
from isthmus.core.statistics import Interval, bootstrap_ratio, wilson
from isthmus.core.strata import link_rows
from isthmus.core.types import Answer, Doubles, Example
from isthmus.summaries.evaluation import Reason

if TYPE_CHECKING:
    from isthmus.data import Dataset
    from isthmus.inference.question_answering import Prediction
    from isthmus.models import Classifier


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    """Exact match and F1 over `n` questions."""

    n: int
    exact_match: Interval
    f1: Interval

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"n": self.n, "exact_match": self.exact_match.to_dict(), "f1": self.f1.to_dict()}

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for a record: to six decimals."""
        return {"n": self.n, "exact_match": self.exact_match.to_json(), "f1": self.f1.to_json()}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> AnswerFigures:
        """Read them back from a record."""
        rates = (Interval.from_json(record.get(name)) for name in ("exact_match", "f1"))
        return cls(int(record.get("n") or 0), *rates)


@dataclass(frozen=True)
class QuestionSummary:
    """The figures of a set of questions, as the header of the results holds them."""

    headline: str
    n: int
    answered: int
    overall: AnswerFigures | None = None
    """None where nothing was answered."""
    original: AnswerFigures | None = None
    """Over the questions as they were asked originally; None where the data have no variants."""
    worst: AnswerFigures | None = None
    """Over the worst variant of every question."""
    reasons: tuple[Reason, ...] = ()
    """Why questions have no answer, the most frequent first."""

    @property
    def errors(self) -> int:
        """Questions that could not be used."""
        return self.n - self.answered

    @property
    def parts(self) -> dict[str, AnswerFigures]:
        """The figures there are, by name."""
        found = {"overall": self.overall, "original": self.original, "worst": self.worst}
        return {name: part for name, part in found.items() if part is not None}

    @property
    def hardest(self) -> AnswerFigures | None:
        """The figures that limits are compared with: of the worst variants, else of all questions."""
        return self.worst or self.overall

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, for the header of the results."""
        found: dict[str, Any] = {
            "headline": self.headline,
            "n": self.n,
            "answered": self.answered,
            "errors": self.errors,
            "reasons": [each.to_json() for each in self.reasons],
        }
        if self.parts:
            found["questions"] = {name: part.to_json() for name, part in self.parts.items()}
        return found

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> QuestionSummary:
        """Read it back from a header."""
        try:
            parts = {name: AnswerFigures.from_json(part) for name, part in part_of(record, "questions").items()}
            return cls(
                headline=str(record["headline"]),
                n=int(record["n"]),
                answered=int(record["answered"]),
                overall=parts.get("overall"),
                original=parts.get("original"),
                worst=parts.get("worst"),
                reasons=tuple(map(Reason.from_json, record.get("reasons") or ())),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"these are not the figures of a set of questions: {error!r}") from error


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One question: the predicted answer and its scores."""

    id: str
    base: str
    """The question it is a variant of; its own id where it is none."""
    prediction: str
    answers: tuple[str, ...]
    """The true ones, each once."""
    exact_match: float
    f1: float
    score: float | None
    """Sum of the answer's two logits; None where there was nothing to choose from."""
    probability: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name) for name in self.__slots__} | {"answers": list(self.answers)}


@dataclass(frozen=True, slots=True)
class AnswerEvaluation:
    """Result of `evaluate_answers`."""

    overall: AnswerFigures
    """Over all questions, variants included."""
    original: AnswerFigures | None
    """Over the questions as they were asked originally; None where the data have no variants."""
    worst: AnswerFigures | None
    """Over the worst variant of every question (AddSent's figure); None where the data have no variants."""
    rows: tuple[AnswerRow, ...]
    rejected: int
    """Rows of the data that could not be used, and are excluded from all figures."""

    @property
    def predictions(self) -> dict[str, str]:
        """The answers in the format of the official evaluation script: id -> text."""
        return {row.id: row.prediction for row in self.rows}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the rows."""
        figures = {"overall": self.overall, "original": self.original, "worst": self.worst}
        found = {name: part.to_dict() for name, part in figures.items() if part is not None}
        return {**found, "rejected": self.rejected}


def evaluate_answers(
    model: Classifier, data: Dataset, *, seed: int = 0, batch_size: int = 32, n_best: int = 20
) -> AnswerEvaluation:
    """Answer every question of `data` and score the answers."""
    from isthmus.inference.question_answering import answer

    if not len(data):
        raise UsageError(f"the {data.split} split of {data.name} has no questions to evaluate on")
    found = answer(model, data.examples, n_best=n_best, batch_size=batch_size, seed=seed)
    return evaluation(data, found, seed=seed)


def evaluation(data: Dataset, predictions: Sequence[Prediction], *, seed: int = 0) -> AnswerEvaluation:
    """Score given answers."""
    ids = [example.id for example in data]
    rows = tuple(
        _make_row(example, base, prediction)
        for example, base, prediction in zip(data, base_ids(ids), predictions, strict=True)
    )
    scores = [AnswerScore(row.exact_match, row.f1) for row in rows]
    groups = link_rows([example.texts.get(data.fields[-1]) for example in data], [row.base for row in rows])
    original = worst = None
    if any(row.base != row.id for row in rows):
        place = {identity: number for number, identity in enumerate(ids)}
        as_asked = [number for number, row in enumerate(rows) if row.base == row.id]
        chosen = [place[variant.id] for variant in worst_variants(ids, scores)]
        original = _make_figures([scores[n] for n in as_asked], [groups[n] for n in as_asked], seed)
        worst = _make_figures([scores[n] for n in chosen], [groups[n] for n in chosen], seed)
    return AnswerEvaluation(_make_figures(scores, groups, seed), original, worst, rows, len(data.rejected))


def _make_row(example: Example, base: str, prediction: Prediction) -> AnswerRow:
    if isinstance(example.label, int):
        raise DataError(f"example {example.id} has a class and no answers: it is not a question")
    if prediction.id != example.id:
        raise UsageError(f"the answer to {prediction.id} cannot be scored as one to {example.id}")
    answers = tuple(dict.fromkeys(_text_of(answer) for answer in example.label))
    found = score(prediction.text, answers)
    best = prediction.candidates[0] if prediction.candidates else None
    return AnswerRow(
        id=example.id,
        base=base,
        prediction=prediction.text,
        answers=answers,
        exact_match=found.exact_match,
        f1=found.f1,
        score=None if best is None else best.score,
        probability=None if best is None else best.probability,
    )


def _text_of(answer: Answer) -> str:
    return answer.text


def _make_figures(scores: Sequence[AnswerScore], groups: Sequence[int], seed: int) -> AnswerFigures:
    _, group = np.unique(np.array(groups), return_inverse=True)
    sizes = np.bincount(group).astype(float)
    exact = np.bincount(group, [one.exact_match for one in scores])
    f1 = np.bincount(group, [one.f1 for one in scores])
    return AnswerFigures(len(scores), _share(exact, sizes, seed), _share(f1, sizes, seed))


def _share(totals: ArrayLike, sizes: Doubles, seed: int) -> Interval:
    """A mean of figures from 0 to 1; a bootstrap has nothing to vary if all are 0, or all are 1."""
    found = bootstrap_ratio(totals, sizes, seed)
    if found.estimate not in (0.0, 1.0):
        return found
    groups = len(sizes)
    return wilson(groups if found.estimate else 0, groups)
