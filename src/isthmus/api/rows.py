"""The results of a file of rows, by its header: as a call asked for them, or as a run holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from isthmus.results import AttackResults, CertificateResults, EvaluationResults, QuestionResults
from isthmus.runs.evaluated import AnsweredQuestion, Evaluated

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.certificates.base import Certified
    from isthmus.runs.folder import RunFolder

Header = Mapping[str, Any]


def make_attack_results(key: str, header: Header, results: Sequence[AttackResult], folder: RunFolder) -> AttackResults:
    """The results of an attack."""
    return AttackResults(key, tuple(results), _labels(header), folder, header.get("threshold"))


def make_certificate_results(
    key: str, header: Header, results: Sequence[Certified], folder: RunFolder
) -> CertificateResults:
    """The results of a certificate."""
    return CertificateResults(key, tuple(results), _labels(header), folder, str(header.get("unit") or "radius"))


def make_evaluation_results(
    key: str, header: Header, results: Sequence[Evaluated | AnsweredQuestion], folder: RunFolder
) -> EvaluationResults | QuestionResults:
    """The results on a set of texts, or of questions."""
    from isthmus.report.evaluation.view import EvaluationView
    from isthmus.summaries.questions import QuestionSummary

    view = EvaluationView(key, header)
    if header.get("task") == "qa":
        figures = header.get("summary")
        computed = QuestionSummary.from_json(figures) if figures else None
        return QuestionResults(key, tuple(results), (), folder, computed, view.speed, view.cost_per_1000)
    texts = tuple(each for each in results if isinstance(each, Evaluated))
    return EvaluationResults(
        key, texts, _labels(header), folder, header.get("headline"), view.speed, view.cost_per_1000
    )


def read_answer(row: Mapping[str, Any]) -> Evaluated | AnsweredQuestion:
    """A row of an evaluation, whatever the task."""
    return AnsweredQuestion.from_row(row) if "exact_match" in row else Evaluated.from_row(row)


def _labels(header: Header) -> tuple[str, ...]:
    return tuple(header.get("labels") or ())
