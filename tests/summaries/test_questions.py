"""Exact match and F1 of a data set; figures are derived by hand."""

from __future__ import annotations

import json

import pytest

from isthmus.core.errors import DataError, RunError, UsageError
from isthmus.core.statistics import wilson
from isthmus.core.types import Answer, Classification, Example, QuestionAnswering
from isthmus.data import Dataset, Rejected
from isthmus.inference.question_answering import Candidate, Prediction
from isthmus.summaries.evaluation import Reason
from isthmus.summaries.questions import QuestionSummary, evaluate_answers, evaluation


def questions(answers: dict[str, list[str]], rejected: int = 0) -> Dataset:
    examples = tuple(
        Example(identity, {"question": "?", "context": f"context of {identity}"}, tuple(Answer(0, a) for a in found))
        for identity, found in answers.items()
    )
    put_aside = tuple(Rejected(f"r{n}", "no answer") for n in range(rejected))
    return Dataset("toy", "test", QuestionAnswering(), examples, put_aside)


def predicted(texts: dict[str, str]) -> list[Prediction]:
    return [
        Prediction(identity, text, (Candidate(text, 0, 1.5, 0.75),) if text else ()) for identity, text in texts.items()
    ]


def test_figures_are_means_over_the_questions() -> None:
    data = questions({"a": ["Paris", "Paris", "in Paris"], "b": ["1990"], "c": ["red fox"], "d": ["x"]}, rejected=2)
    found = evaluation(data, predicted({"a": "the Paris!", "b": "", "c": "fox", "d": "y"}))
    assert found.overall.n == 4
    assert found.overall.exact_match.estimate == 0.25
    assert found.overall.f1.estimate == pytest.approx((1 + 0 + 2 / 3 + 0) / 4)
    assert 0 <= found.overall.f1.low < found.overall.f1.estimate < found.overall.f1.high <= 1
    assert (found.original, found.worst, found.rejected) == (None, None, 2)
    assert found.predictions == {"a": "the Paris!", "b": "", "c": "fox", "d": "y"}
    assert found.rows[0].answers == ("Paris", "in Paris")
    assert (found.rows[0].score, found.rows[1].score) == (1.5, None)
    assert json.loads(json.dumps(found.to_dict()))["overall"]["exact_match"]["estimate"] == 0.25
    assert json.loads(json.dumps(found.rows[2].to_dict()))["f1"] == pytest.approx(2 / 3)


def test_none_right_and_all_right_have_intervals_too() -> None:
    data = questions({name: ["red"] for name in "abcd"})
    for answer, right in (("blue", 0), ("red", 4)):
        figures = evaluation(data, predicted(dict.fromkeys("abcd", answer))).overall
        assert figures.exact_match == figures.f1 == wilson(right, 4)


def test_adversarial_questions_are_scored_by_their_worst_variant() -> None:
    data = questions({"q": ["red fox"], "q-1": ["red fox"], "q-2": ["red fox"], "p": ["x"]})
    found = evaluation(data, predicted({"q": "red fox", "q-1": "fox", "q-2": "red fox", "p": "x"}))
    assert found.original is not None
    assert found.worst is not None
    assert (found.original.n, found.original.f1.estimate) == (2, 1.0)
    assert (found.worst.n, found.worst.exact_match.estimate) == (2, 0.5)
    assert found.worst.f1.estimate == pytest.approx((2 / 3 + 1) / 2)
    assert found.overall.f1.estimate == pytest.approx((3 + 2 / 3) / 4)
    assert set(found.to_dict()) == {"overall", "original", "worst", "rejected"}
    assert [row.base for row in found.rows] == ["q", "q", "q", "p"]


def test_questions_about_one_text_are_resampled_together() -> None:
    rows = [Example(f"q{n}", {"question": "?", "context": f"text {n // 10}"}, (Answer(0, "x"),)) for n in range(100)]
    together = Dataset("toy", "test", QuestionAnswering(), tuple(rows))
    apart = questions({f"q{n}": ["x"] for n in range(100)})
    texts = predicted({f"q{n}": "x" if n < 50 else "y" for n in range(100)})
    wide, narrow = evaluation(together, texts).overall.f1, evaluation(apart, texts).overall.f1
    assert wide.estimate == narrow.estimate == 0.5
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_what_cannot_be_scored() -> None:
    data = questions({"a": ["x"]})
    with pytest.raises(UsageError, match="cannot be scored as one to a"):
        evaluation(data, predicted({"b": "x"}))
    labelled = Dataset("l", "test", Classification(("n", "y")), (Example("a", {"text": "t"}, 1),))
    with pytest.raises(DataError, match="not a question"):
        evaluation(labelled, predicted({"a": "x"}))
    with pytest.raises(UsageError, match="no questions"):
        evaluate_answers(None, questions({}))  # type: ignore[arg-type]


STORED = """{"headline": "model", "n": 5, "answered": 4, "errors": 1, "reasons": [{"reason": "no answer", "count": 1}],
"questions": {"overall": {"n": 4, "exact_match": {"estimate": 0.5, "low": 0.0, "high": 0.666667}, "f1": {"estimate":
0.666667, "low": 0.0, "high": 0.888889}}, "original": {"n": 2, "exact_match": {"estimate": 0.5, "low": 0.0, "high":
1.0}, "f1": {"estimate": 0.5, "low": 0.0, "high": 1.0}}, "worst": {"n": 2, "exact_match": {"estimate": 0.0, "low": 0.0,
"high": 0.65762}, "f1": {"estimate": 0.333333, "low": 0.0, "high": 0.666667}}}}"""
"""A header's figures as they have been written since questions are evaluated."""


def test_the_figures_of_a_header_are_as_they_were() -> None:
    data = questions({"q": ["red fox"], "q-1": ["red fox"], "q-2": ["red fox"], "p": ["x"]})
    found = evaluation(data, predicted({"q": "red fox", "q-1": "fox", "q-2": "red fox", "p": "y"}))
    reasons = (Reason("no answer", 1),)
    made = QuestionSummary("model", 5, 4, found.overall, found.original, found.worst, reasons)
    stored = json.loads(STORED)
    assert json.dumps(made.to_json()) == json.dumps(stored)
    assert json.dumps(QuestionSummary.from_json(stored).to_json()) == json.dumps(stored)
    assert made.hardest == found.worst


def test_where_nothing_was_answered_there_are_no_figures() -> None:
    nothing = QuestionSummary("model", 2, 0)
    assert nothing.to_json() == {"headline": "model", "n": 2, "answered": 0, "errors": 2, "reasons": []}
    assert QuestionSummary.from_json(nothing.to_json()) == nothing
    assert nothing.hardest is None
    with pytest.raises(RunError, match="not the figures of a set of questions"):
        QuestionSummary.from_json({"headline": "model"})
