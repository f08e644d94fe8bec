"""`evaluate`: scores a model on fixed sets, one row per example, and continues interrupted work.

    sets                 what the model is evaluated on
    prepared_evaluation  the command made ready: checked at once, the model loaded when it is first needed
    one_set              one set, whatever the task: which examples have no row yet, and where the rows go
    texts                examples into results, for a classifier (seen in every one of its `ways`)
    questions            examples into results, for a model that answers questions
    speed                how fast the model answers

A row is read back as `isthmus.runs.evaluated` says; `isthmus.summaries` makes figures of results.

Everything that can be wrong with the command is found before the model is loaded. Where everything has a row, a model
that is known by its files is not even loaded.
"""

from __future__ import annotations

from isthmus.verbs.evaluate.one_set import Answered, Evaluation
from isthmus.verbs.evaluate.prepared_evaluation import PreparedEvaluation
from isthmus.verbs.evaluate.questions import QuestionEvaluation
from isthmus.verbs.evaluate.texts import TextEvaluation
from isthmus.verbs.observer import Observer
from isthmus.verbs.request import EvaluateRequest, SetRequest
from isthmus.verbs.rows_file import RowsReport

__all__ = ["EvaluateRequest", "SetRequest", "evaluate"]


def evaluate(request: EvaluateRequest, observer: Observer | None = None) -> RowsReport[Answered]:
    """Evaluate the model on every set of the request."""
    with PreparedEvaluation(request, observer or Observer()) as ready:
        ready.check()
        kind: type[Evaluation] = QuestionEvaluation if ready.task == "qa" else TextEvaluation
        evaluations = [kind(ready, part) for part in ready.sets]
        for each in evaluations:
            each.check()
        return RowsReport(ready.folder, tuple(each.evaluate() for each in evaluations), ready.probe_queries)
