"""`evaluate`: accuracy and calibration of a model on sets, or its answers to questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from isthmus.api.arguments import check_arguments, check_count, check_seed, require_count
from isthmus.api.given import (
    Data,
    as_names,
    as_path,
    data_request,
    find_victim,
    is_named,
    open_data,
    refuse_out,
    warn_of_errors,
    warn_of_rejected,
)
from isthmus.api.rows import make_evaluation_results
from isthmus.core.errors import UnknownName, UsageError
from isthmus.results import EvaluationResults, QuestionResults

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.data import Dataset, Splits
    from isthmus.data.load import TaskName
    from isthmus.runs.evaluated import Evaluated
    from isthmus.verbs.evaluate import EvaluateRequest, SetRequest
    from isthmus.verbs.evaluate.sets import EvaluationSet
    from isthmus.verbs.observer import Observer
    from isthmus.verbs.request import RowsWanted

_COLUMNS = ("text", "label", "pair")


def evaluate(
    model: Any,
    data: Data | Sequence[Data] = None,
    *,
    n: int | None = None,
    split: str | Sequence[str] | None = None,
    rows: RowsWanted = "successes",
    task: TaskName | None = None,
    seed: int = 0,
    draws: int = 12,
    latency: int | None = 0,
    price_per_hour: float | None = None,
    labels: Sequence[str] | None = None,
    victim: Mapping[str, Any] | None = None,
    precision: str = "fp32",
    label_check: bool = True,
    retry_errors: bool = False,
    out: str | Path | None = None,
    device: str | None = None,
    progress: Observer | None = None,
) -> EvaluationResults | QuestionResults:
    """Accuracy and calibration of a model on a set, example by example; of a model that answers questions, its answers.

    Several sets (a list of data, several splits, ``"all"`` splits) give their results one after the other; `sets` of
    the results are those of each. Arguments that are not named here are as of `attack`.

    Args:
        model: as of `attack`; one that answers questions is a run, its model folder, or a classifier.
        data: as of `attack`, also rows of an attack (``runs/demo/attacks/pwws.jsonl``), whose texts are then asked.
        n: examples of each set; None takes all.
        split: a split, several, or ``"all"``; by default test, else dev.
        rows: of an attack its ``successes``, or ``all`` attempted examples with their last texts.
        task: ``qa`` for questions of data given by name, where the model is no run.
        draws: random draws to average, for a stochastic model.
        latency: texts to time one by one; 0 times none, None as many as the command line.
        price_per_hour: of the machine, for the cost of 1,000 texts.

    >>> from isthmus import evaluate
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good"), ("a dull joke", "good")]
    >>> found = evaluate(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], rows,
    ...                  labels=("bad", "good"))
    >>> [result.outcome for result in found]
    ['right', 'right', 'wrong']
    """
    from isthmus.data.load import TaskName
    from isthmus.verbs.evaluate import EvaluateRequest, SetRequest
    from isthmus.verbs.request import RowsWanted

    check_arguments(
        splits=split, rows=rows, task=task, price_per_hour=price_per_hour, labels=labels, victim=victim,
        label_check=label_check, retry_errors=retry_errors, out=out, device=device, progress=progress,
        precision=precision,
    )  # fmt: skip
    n, seed, latency = check_count("n", n), check_seed(seed), check_count("latency", latency, least=0)
    draws = require_count("draws", draws)
    if rows not in get_args(RowsWanted):
        raise UnknownName("kind of rows", rows, get_args(RowsWanted))
    if task is not None and task not in get_args(TaskName):
        raise UnknownName("task", task, get_args(TaskName))
    given = list(data) if _are_several(data) else [data]
    splits = _read_splits(split)
    requests = [data_request(each) for each in given]
    named = [each for each in requests if each]
    columns: dict[str, Any] = {name: getattr(named[0], name) for name in _COLUMNS} if named else {}
    own_task = next((each.task for each in named if each.task != "classification"), task)
    is_alike = all(each.options == named[0].options and each.labels is None for each in named)
    sets = SetRequest(on=tuple(each.source for each in named), split=splits, rows=rows, **columns)
    request = EvaluateRequest(
        str(model) if is_named(model) else "", sets, n=n, seed=seed, out=as_path(out), labels=as_names(labels),
        device=device, victim=victim or {}, precision=precision, label_check=label_check, retry_errors=retry_errors,
        draws=draws, latency=latency, price_per_hour=price_per_hour, task=own_task,
    )  # fmt: skip
    is_whole = len(named) == len(given) or given == [None]
    if is_named(model) and is_whole and is_alike:
        parts = _evaluate_run(request, progress)
    else:
        why = "the data name their columns or classes in several ways" if not is_alike else ""
        refuse_out(out, why)
        parts = _evaluate_at_hand(model, given, request, progress)
    return parts[0] if len(parts) == 1 and len(given) == 1 else _pool(parts)


def _are_several(data: Any) -> bool:
    """Whether these are several sets and not the rows of one."""
    from isthmus.data import Dataset, Splits

    kinds = (str, Path, Splits, Dataset)
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(each, kinds) for each in data)


def _read_splits(given: Any) -> tuple[str, ...]:
    """The names of splits, each once: one that is named twice must not count twice among the pooled results."""
    found = (given,) if isinstance(given, str) else tuple(given or ())
    return tuple(dict.fromkeys(part.strip() for name in found for part in str(name).split(",") if part.strip()))


def _pool(parts: Sequence[EvaluationResults | QuestionResults]) -> EvaluationResults | QuestionResults:
    """Several sets, one after the other."""
    names = ", ".join(part.name for part in parts)
    questions = [part for part in parts if isinstance(part, QuestionResults)]
    if questions:
        answers = tuple(each for part in questions for each in part)
        return QuestionResults(names, answers, folder=parts[0].folder, parts={part.name: part for part in questions})
    texts = [part for part in parts if isinstance(part, EvaluationResults)]
    every = tuple(each for part in texts for each in part)
    first = texts[0]
    own = {part.name: part for part in texts}
    return EvaluationResults(names, every, first.labels, first.folder, first.headline, parts=own)


# ------------------------------------------------------------------ into a run


def _evaluate_run(request: EvaluateRequest, progress: Observer | None) -> list[EvaluationResults | QuestionResults]:
    """Evaluate by the command's own code; rows go into the run."""
    from isthmus.verbs.evaluate import evaluate as run

    report = run(request, progress)
    return [
        make_evaluation_results(done.file.key, done.header, done.results, report.folder) for done in report.outcomes
    ]


# ------------------------------------------------------------------ at hand


def _evaluate_at_hand(
    model: Any, given: Sequence[Data], request: EvaluateRequest, progress: Observer | None
) -> list[EvaluationResults | QuestionResults]:
    """Evaluate objects; nothing is written."""
    from isthmus.verbs.observer import Observer

    observer = progress or Observer()
    asks_questions = request.task == "qa" or getattr(getattr(model, "task", None), "name", None) == "qa"
    sets = list(_open_sets(model, given, request, "qa" if asks_questions else "classification"))
    found: list[EvaluationResults | QuestionResults] = []
    loaded: Any = None
    for part in sets:
        is_of_questions = part.data.task.name == "qa"
        if request.task is not None and is_of_questions != (request.task == "qa"):
            raise UsageError(
                f"task={request.task!r}, but the task of {part.source} is {part.data.task.name}: remove it"
            )
        if loaded is None:
            loaded = (
                _load_answerer(model, request)
                if is_of_questions
                else find_victim(model, request.labels, request.device, request.victim, request.precision)
            )
        number = 1
        while (name := part.name if number == 1 else f"{part.name}-{number}") in {each.name for each in found}:
            number += 1
        part = dataclasses.replace(part, name=name)
        if request.n is not None and request.n < len(part.data):
            part = dataclasses.replace(part, data=part.data.sample(request.n, request.seed))
        observer.begin(name, len(part.data), ())
        if is_of_questions:
            results: EvaluationResults | QuestionResults = _answer(loaded, part, request)
        else:
            results = _evaluate_texts(loaded, part, request)
        for each in results:
            observer.result(name, each)
        observer.end(name)
        found.append(results)
    return found


def _open_sets(model: Any, given: Sequence[Data], request: EvaluateRequest, task: TaskName) -> Iterator[EvaluationSet]:
    """The sets, read; rows that cannot be used are left out."""
    from isthmus.verbs.evaluate.sets import EvaluationSet, find_sets

    for each in given:
        named = data_request(each)
        if isinstance(each, str | Path):
            own = dataclasses.replace(request.sets, on=(str(each),), text=None, label=None, pair=None)
            parts = find_sets(str(each), own, task)
        else:
            splits = open_data(model, each)
            name = named.source if named else splits.name
            parts = [EvaluationSet(data.name, "data", str(name), data) for data in _choose(splits, request.sets)]
        for part in parts:
            warn_of_rejected(part.data)
            if not len(part.data):
                raise UsageError(f"{part.source} has no examples to evaluate on")
            yield dataclasses.replace(part, data=part.data[:])


def _choose(splits: Splits, asked: SetRequest) -> list[Dataset]:
    if asked.split == ("all",):
        return list(splits.values())
    return [splits.find_split(split) for split in asked.split] or [splits.evaluation()]


def _evaluate_texts(victim: Victim, part: EvaluationSet, request: EvaluateRequest) -> EvaluationResults:
    from isthmus.verbs.evaluate.one_set import Asking
    from isthmus.verbs.evaluate.speed import TEXTS, measure
    from isthmus.verbs.evaluate.texts import choose_batch_size, make_asking, make_results
    from isthmus.verbs.evaluate.ways import Ways

    ways = Ways(victim, request.draws, request.seed)
    examples = part.data.align_labels(victim.labels).examples
    size = choose_batch_size(victim)
    results: list[Evaluated] = []
    for at in range(0, len(examples), size):
        results += make_results(ways, examples[at : at + size], part.originals, first=at == 0)
    warn_of_errors(part.name, results)
    answered = {each.id for each in results if each.outcome != "error"}
    speed = None
    if request.latency != 0 and answered:
        chosen = [each for each in part.data.sample(None, request.seed) if each.id in answered]
        how: Asking = make_asking(victim, chosen, request.seed)
        if request.latency is not None or how.is_here:
            speed = measure(how.ask, len(chosen), single=request.latency or TEXTS, device=how.device, model=how.model)
    cost = None if speed is None else speed.cost_of_thousand(request.price_per_hour)
    return EvaluationResults(part.name, tuple(results), tuple(victim.labels), None, ways.headline, speed, cost)


def _load_answerer(model: Any, request: EvaluateRequest) -> Any:
    from isthmus.models import Classifier, load_model
    from isthmus.verbs.sources import ModelSource

    found = load_model(ModelSource.of(str(model)).spec, device=request.device) if is_named(model) else model
    if not isinstance(found, Classifier) or found.task.name != "qa":
        raise UsageError(f"{model!r:.80} does not answer questions: pass a run or a classifier trained with task qa")
    return found.eval()


def _answer(model: Any, part: EvaluationSet, request: EvaluateRequest) -> QuestionResults:
    from isthmus.inference.question_answering import answer
    from isthmus.verbs.evaluate.questions import make_answered, summarise_answers

    predictions = answer(model, part.data.examples, seed=request.seed)
    pairs = zip(part.data, predictions, strict=True)
    results = tuple(make_answered(example, prediction) for example, prediction in pairs)
    return QuestionResults(part.name, results, computed=summarise_answers(part.data, results, "model"))
