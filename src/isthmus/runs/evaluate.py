"""`evaluate`: a model on static sets, one row per example, and continue what was interrupted.

Everything that can be wrong with the command is found before the model is loaded. Where everything has a row the model
is not even loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.runs.evaluate_questions import QuestionEvaluation
from isthmus.runs.evaluate_texts import TextEvaluation
from isthmus.runs.evaluating import EvaluateRequest, Ready
from isthmus.runs.evaluation import Evaluation, EvaluationOutcome
from isthmus.runs.folder import RunFolder
from isthmus.runs.observer import Observer, Silent

__all__ = ["EvaluateReport", "EvaluateRequest", "EvaluationOutcome", "evaluate"]


@dataclass(frozen=True)
class EvaluateReport:
    """What the command did."""

    folder: RunFolder
    outcomes: tuple[EvaluationOutcome, ...]


def evaluate(request: EvaluateRequest, observer: Observer | None = None) -> EvaluateReport:
    """Evaluate the model on every set of the request."""
    ready = Ready(request, observer or Silent())
    ready.check()
    kind: type[Evaluation] = QuestionEvaluation if ready.task == "qa" else TextEvaluation
    evaluations = [kind(ready, part) for part in ready.sets]
    for each in evaluations:
        each.check()
    return EvaluateReport(ready.folder, tuple(each.run() for each in evaluations))
