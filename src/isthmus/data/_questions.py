"""Turns a table into questions with contexts and answers: SQuAD's nested JSON, or one row per question.

    {"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": […]}]}]}]}
    {"id": …, "question": …, "context": …, "answers": [{"text": …, "answer_start": …}]}
    {"id": …, "question": …, "context": …, "answers": {"text": […], "answer_start": […]}}

In .csv and .tsv files the answers are JSON. An answer that does not stand where its offset says is moved to where it
occurs exactly once; otherwise the question is put aside with the reason: nobody knows which occurrence was meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.types import Answer, Example, QuestionAnswering
from isthmus.data._tables import Table
from isthmus.data.dataset import Dataset, Rejected

_EXPECTED = (
    "question answering needs the columns question, context and answers (and id), or SQuAD's JSON with "
    "data, paragraphs and qas"
)


@dataclass(frozen=True, slots=True)
class QuestionColumns:
    """The columns to read."""

    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    id: str = "id"


class _Unusable(Exception):
    """The reason why a row cannot be used."""


def choose_question_columns(text: str | None, label: str | None, pair: tuple[str, str] | None) -> QuestionColumns:
    """The requested columns, or those with the usual names."""
    if text is not None:
        raise UsageError("questions have two texts: name the columns of question and context as a pair")
    question, context = pair or ("question", "context")
    return QuestionColumns(question, context, label or "answers")


def holds_questions(table: Table) -> bool:
    """Whether a table seems to hold questions with answers, and not labelled texts."""
    return {"question", "context", "answers"} <= set(table.columns) or _is_nested(table)


def _is_nested(table: Table) -> bool:
    row: Mapping[str, Any] = table.rows[0] if table.rows else {}
    articles = row.get("data")
    if "paragraphs" in row:
        return True
    return isinstance(articles, list) and any(isinstance(one, dict) and "paragraphs" in one for one in articles)


def make_questions(table: Table, columns: QuestionColumns, name: str, split: str) -> Dataset:
    """Make the questions of one split; an unusable one is rejected with the reason, never dropped."""
    if _is_nested(table):
        table, columns = _flatten(table), QuestionColumns()
    _check_columns(table, columns)
    examples: list[Example] = []
    rejected: list[Rejected] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(table.rows):
        try:
            identity = _identity(row.get(columns.id), split, number)
            if identity in seen:
                raise _Unusable(f"its id {identity!r} was already used in {table.place(seen[identity])}")
            examples.append(_make_question(identity, row, columns))
            seen[identity] = number
        except _Unusable as reason:
            rejected.append(Rejected(f"{split}:{number}", f"{table.place(number)}: {reason}"))
    return Dataset(name, split, QuestionAnswering(), tuple(examples), tuple(rejected))


def _check_columns(table: Table, columns: QuestionColumns) -> None:
    usual = QuestionColumns()
    for asked, known in ((columns.question, usual.question), (columns.context, usual.context)):
        if asked != known and asked not in table.columns:
            raise UnknownName(f"column in {table.source}", asked, table.columns)
    if not {columns.question, columns.context, columns.answers} <= set(table.columns):
        found = ", ".join(table.columns) or "none"
        remedy = " To learn its labels, leave --task qa out." if "label" in table.columns else ""
        raise DataError(f"{table.source} does not fit the task: {_EXPECTED}; it has the columns {found}.{remedy}")


def _identity(value: Any, split: str, number: int) -> str:
    if value is None or value == "":
        return f"{split}:{number}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _Unusable(f"its id is {value!r:.60}, neither a text nor a number")
    return str(value)


def _make_question(identity: str, row: Mapping[str, Any], columns: QuestionColumns) -> Example:
    question, context = (_read_text(row, column) for column in (columns.question, columns.context))
    if row.get("is_impossible") in (True, "True", "true"):
        raise _Unusable("it is marked as impossible to answer from its context, and a span must be found")
    answers = tuple(_place_answer(answer, context) for answer in _read_answers(row.get(columns.answers)))
    if not answers:
        raise _Unusable("it has no answer")
    return Example(identity, {"question": question, "context": context}, answers)


def _read_text(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str):
        raise _Unusable(f"no value for {column!r}" if value is None else f"{column!r} does not hold a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _Unusable(f"{column!r} holds half of a surrogate pair, which no tokenizer can read") from None
    return value


def _read_answers(value: Any) -> list[tuple[Any, Any]]:
    """Read texts and offsets in either of the two layouts, as JSON or as objects."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (json.JSONDecodeError, RecursionError):
            raise _Unusable(f"its answers are not JSON: {value!r:.60}") from None
    if value is None:
        return []
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if not isinstance(texts, Sequence) or isinstance(texts, str):
            return [(texts, starts)]
        if not isinstance(starts, Sequence) or len(starts) != len(texts):
            raise _Unusable("its answers do not have one answer_start for each text")
        return list(zip(texts, starts, strict=True))
    if isinstance(value, list) and all(isinstance(answer, Mapping) for answer in value):
        return [(answer.get("text"), answer.get("answer_start")) for answer in value]
    raise _Unusable(f"its answers are no list of {{text, answer_start}}: {value!r:.60}")


def _place_answer(answer: tuple[Any, Any], context: str) -> Answer:
    text, start = answer
    if not isinstance(text, str) or not text.strip():
        raise _Unusable(f"an answer is {text!r:.60}, not a text")
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0 and context.startswith(text, start):
        return Answer(start, text)
    first = context.find(text)
    if first < 0:
        raise _Unusable(f"its answer {text!r:.60} does not occur in the context")
    if context.find(text, first + 1) >= 0:
        raise _Unusable(f"its answer {text!r:.60} is not at {start!r}, and occurs more than once elsewhere")
    return Answer(first, text)


def _flatten(table: Table) -> Table:
    found = list(_list_nested_rows(table))
    if not found:
        raise DataError(f"{table.source} holds no questions: {_EXPECTED}")
    rows, places = zip(*found, strict=True)
    return Table(table.source, ("id", "question", "context", "answers"), rows, lambda row: str(places[row]))


def _list_nested_rows(table: Table) -> Iterator[tuple[dict[str, Any], str]]:
    articles: list[Any] = []
    for number, row in enumerate(table.rows):
        articles += [row] if "paragraphs" in row else _list(row, "data", table.place(number))
    for a, article in enumerate(articles, start=1):
        for p, paragraph in enumerate(_list(article, "paragraphs", f"{table.source}, article {a}"), start=1):
            place = f"{table.source}, article {a}, paragraph {p}"
            for q, question in enumerate(_list(paragraph, "qas", place), start=1):
                if not isinstance(question, dict):
                    raise DataError(f"{place}, question {q}: expected an object, not {question!r:.60}")
                yield {**question, "context": paragraph.get("context")}, f"{place}, question {q}"


def _list(value: Any, key: str, place: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise DataError(f"{place}: no list {key!r} in it; {_EXPECTED}")
    return found
