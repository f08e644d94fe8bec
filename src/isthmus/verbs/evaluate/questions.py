"""Evaluates question answering on SQuAD-like sets: exact match and F1 (`isthmus.summaries.questions`).

Questions are answered in groups of the set's own order. A group that was interrupted is answered again as a whole, so
that what shares a batch, and with it the last bit of a score, does not depend on where the process was killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isthmus.core.answer_scores import score
from isthmus.core.errors import UsageError
from isthmus.runs.evaluated import AnsweredQuestion, Evaluated
from isthmus.runs.journal import Journal
from isthmus.summaries.evaluation import count_reasons
from isthmus.verbs.evaluate.one_set import Answered, Asking, Evaluation, restrict_data

if TYPE_CHECKING:
    from isthmus.core.types import Example
    from isthmus.data import Dataset
    from isthmus.inference.question_answering import Prediction
    from isthmus.summaries.questions import QuestionSummary

_GROUP = 128


@dataclass(eq=False)
class QuestionEvaluation(Evaluation):
    """The rows of one set of questions."""

    def check_fit(self) -> None:
        """Refuse a model that does not answer questions."""
        task = self.ready.answerer.task
        if task.name != "qa":
            raise UsageError(
                f"{self.ready.source.shown} chooses one of {', '.join(task.labels)} and does not answer questions: "
                "remove --task qa, or name a model trained with it"
            )

    def of_model(self) -> dict[str, Any]:
        """One way, and no classes."""
        return {"labels": [], "ways": ["model"], "headline": "model"}

    def batches(self, missing: set[str], journal: Journal) -> Iterator[Sequence[Answered]]:
        """Answer the questions of the groups that are incomplete."""
        from isthmus.inference.question_answering import answer

        del journal
        asked = set(self.asked)
        examples = [example for example in self.part.data if example.id in asked]
        for at in range(0, len(examples), _GROUP):
            group = examples[at : at + _GROUP]
            if not missing.isdisjoint(example.id for example in group):
                found = answer(self.ready.answerer, group, seed=self.ready.request.seed)
                pairs = zip(group, found, strict=True)
                yield [make_answered(example, prediction) for example, prediction in pairs if example.id in missing]

    def asking(self, answered: Sequence[str]) -> Asking:
        """Query the model window by window."""
        from isthmus.inference.question_answering import answer

        model, seed = self.ready.answerer, self.ready.request.seed
        by_id = {example.id: example for example in self.part.data}
        examples = [by_id[key] for key in answered]
        return Asking(
            lambda places: answer(model, [examples[place] for place in places], seed=seed), True, model.device.type
        )

    def read(self, row: Mapping[str, Any]) -> Answered:
        """Read the result of a row."""
        return Evaluated.from_row(row) if row.get("outcome") == "error" else AnsweredQuestion.from_row(row)

    def figures(self, header: Mapping[str, Any], results: Sequence[Answered]) -> QuestionSummary:
        """Exact match and F1 over all questions; for adversarial ones also over originals and worst variants."""
        return summarise_answers(self.part.data, results, header["headline"])


def summarise_answers(data: Dataset, results: Sequence[Answered], headline: str) -> QuestionSummary:
    """The figures of answers to the questions of `data`; a question without an answer is an error and in no rate."""
    from isthmus.summaries.questions import QuestionSummary, evaluation

    answered = [result for result in results if isinstance(result, AnsweredQuestion)]
    found = QuestionSummary(
        headline=headline,
        n=len(results),
        answered=len(answered),
        reasons=count_reasons([result for result in results if isinstance(result, Evaluated)]),
    )
    if not answered:
        return found
    by_id = {result.id: result for result in answered}
    kept = restrict_data(data, answered)
    made = evaluation(kept, [_make_prediction(by_id[example.id]) for example in kept])
    return replace(found, overall=made.overall, original=made.original, worst=made.worst)


def make_answered(example: Example, prediction: Prediction) -> AnsweredQuestion:
    """A question with the model's answer and its scores."""
    answers = [] if isinstance(example.label, int) else list(dict.fromkeys(each.text for each in example.label))
    found = score(prediction.text, answers)
    best = prediction.candidates[0] if prediction.candidates else None
    return AnsweredQuestion(
        example.id,
        "right" if found.exact_match else "wrong",
        next(iter(example.texts.values())),
        prediction.text,
        answers,
        found.exact_match,
        round(found.f1, 6),
        None if best is None else float(f"{best.score:.6g}"),
        None if best is None else float(f"{best.probability:.6g}"),
    )


def _make_prediction(result: AnsweredQuestion) -> Prediction:
    from isthmus.inference.question_answering import Prediction

    return Prediction(result.id, result.prediction, ())


def predictions(results: Sequence[Answered]) -> dict[str, str]:
    """Answers in the format of SQuAD's official evaluation script: id -> text."""
    return {result.id: result.prediction for result in results if isinstance(result, AnsweredQuestion)}
