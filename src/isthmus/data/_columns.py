"""Turns a table into examples: finds the columns of texts and label, and the names of the labels."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import DataError, UnknownName, UsageError
from isthmus.core.types import Classification, Example
from isthmus.data._questions import holds_questions
from isthmus.data._tables import Table
from isthmus.data.dataset import Dataset, Rejected

_PAIRS = (
    ("premise", "hypothesis"),
    ("context", "hypothesis"),
    ("question1", "question2"),
    ("sentence1", "sentence2"),
    ("question", "sentence"),
    ("text1", "text2"),
)
_TEXTS = ("text", "sentence", "review", "content", "document", "comment", "message", "body", "tweet", "question")
_LABELS = ("label", "labels", "gold_label", "class", "target", "category", "sentiment", "coarse_label", "y")
_DISAGREED = "gold_label", "-"
"""SNLI and MNLI write so that the annotators found no majority."""
_INFERENCE = ("entailment", "neutral", "contradiction")
"""The labels of natural-language inference in the order in which SNLI, MNLI and ANLI number them."""
_MOST_NUMBERED = 1_000
"""More classes than this under plain numbers are not class numbers but something else (an id, a price)."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to read, in the order the model reads the texts."""

    texts: tuple[str, ...]
    label: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields; a single text is called ``text``, so that a model fits files of any origin."""
        return self.texts if len(self.texts) > 1 else ("text",)

    @property
    def is_inference(self) -> bool:
        """Whether the pair is one of natural-language inference."""
        return len(self.texts) > 1 and self.texts[1].lower() == "hypothesis"


def choose_columns(table: Table, text: str | None, label: str | None, pair: tuple[str, str] | None) -> Columns:
    """The requested columns, or those with the usual names."""
    if text is not None and pair is not None:
        raise UsageError("give either a text column or a pair of columns, not both")
    asked = (text,) if text is not None else pair or ()
    for column in (*asked, *(() if label is None else (label,))):
        if column not in table.columns:
            raise UnknownName(f"column in {table.source}", column, table.columns)
    if len({*asked, label}) != len(asked) + 1:
        raise UsageError(f"texts and label must be different columns, not {', '.join(map(repr, (*asked, label)))}")
    if label is None and holds_questions(table) and not has_label(table):
        found = ", ".join(table.columns)
        raise DataError(
            f"{table.source} does not fit the task: classification needs a text or a pair of texts and a label; it "
            f"holds questions with answers (columns {found}). To learn to answer them, choose the task qa (--task qa)."
        )
    label = label or _usual_label(table, asked)
    return Columns(tuple(asked) or _usual_texts(table, label), label)


def has_label(table: Table, label: str | None = None) -> bool:
    """Whether a table has the column `label`, or one of the usual names of labels."""
    if label is not None:
        return label in table.columns
    return any(column.lower() in _LABELS for column in table.columns)


def _usual_label(table: Table, taken: Sequence[str]) -> str:
    lowered = {column.lower(): column for column in table.columns if column not in taken}
    for column in _LABELS:
        if column in lowered:
            return lowered[column]
    if len(lowered) == 1:
        return next(iter(lowered.values()))
    raise UnknownName(f"column in {table.source}", "label", table.columns, "Say which column holds the label.")


def _usual_texts(table: Table, label: str) -> tuple[str, ...]:
    lowered = {column.lower(): column for column in table.columns if column != label}
    for first, second in _PAIRS:
        if first in lowered and second in lowered:
            return lowered[first], lowered[second]
    for column in _TEXTS:
        if column in lowered:
            return (lowered[column],)
    if len(lowered) == 1:
        return tuple(lowered.values())
    raise UnknownName(f"column in {table.source}", "text", table.columns, "Say which column holds the text.")


class LabelNames:
    """Maps the values of a label column to class indices.

    Names that are given (by the caller, a ``meta.json``, or the hub's features) fix the order, and whole numbers are
    positions in them. Otherwise texts are sorted by name; numbers that begin at 0 are class numbers, and other numbers
    (1 to 5 stars) are sorted. The three labels of natural-language inference are one set however they are written
    (names, ``e n c``, or 0 to 2 beside a hypothesis), so that a model of SNLI can be tried on ANLI.
    """

    def __init__(self, names: Sequence[str], short: Mapping[str, str] | None = None) -> None:
        """Names of the labels; `short` are other spellings of them."""
        if len(set(names)) != len(names):
            raise UsageError(f"label names must differ: {', '.join(names)}")
        self.names = tuple(names)
        self._known = {name: index for index, name in enumerate(self.names)}
        self._known |= {other: self._known[name] for other, name in (short or {}).items()}
        self._numbered = all(_whole(name) is not None for name in self.names)

    @classmethod
    def found_in(cls, values: Iterable[Any], source: str, *, inference: bool = False) -> LabelNames:
        """Find the label names of a column that came without; `inference`: the texts are premise and hypothesis."""
        distinct = {_label_text(value) for value in values if not is_missing(value)}
        numbers = [_whole(value) for value in distinct]
        whole = [number for number in numbers if number is not None]
        if not distinct:
            raise DataError(f"{source}: no row has a label")
        if inference and distinct <= set("enc"):
            return cls(_INFERENCE, {name[0]: name for name in _INFERENCE})
        if distinct == set(_INFERENCE) or (inference and set(whole) == {0, 1, 2} and len(whole) == len(numbers)):
            return cls(_INFERENCE)
        if len(whole) < len(numbers):
            return cls(sorted(map(str, distinct)))
        if min(whole) == 0 and max(whole) < _MOST_NUMBERED:
            return cls([str(number) for number in range(max(whole) + 1)])
        return cls([str(number) for number in sorted(set(whole))])

    def index(self, value: Any) -> int | None:
        """The index of a value; None if it is unknown."""
        plain = _label_text(value)
        if plain in self._known:
            return self._known[plain]
        number = _whole(plain)
        if number is None:
            return None
        if str(number) in self._known:
            return self._known[str(number)]
        return number if not self._numbered and 0 <= number < len(self.names) else None

    def unknown(self, value: Any) -> str:
        """The message about a value without an index."""
        near = difflib.get_close_matches(_label_text(value), self.names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(self.names[:20]) + (", …" if len(self.names) > 20 else "")
        return f"unknown label {_label_text(value)!r}.{hint} Known labels: {shown}."


def is_unlabelled(value: Any, column: str) -> bool:
    """Whether a row has no label, or one on which its annotators did not agree."""
    return is_missing(value) or (column.lower(), value) == _DISAGREED


def is_missing(value: Any) -> bool:
    """Whether a label is missing: null, an empty string, NaN, or the hub's -1."""
    if isinstance(value, str):
        return not value.strip()
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (not isinstance(value, bool) and value == -1)
    )


def _label_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def make_dataset(table: Table, columns: Columns, names: LabelNames, name: str, split: str) -> Dataset:
    """Make the examples of one split; a row without usable text or label is rejected with the reason, never dropped."""
    examples: list[Example] = []
    rejected: list[Rejected] = []
    for number, row in enumerate(table.rows):
        identity = f"{split}:{number}"
        reason = _describe_unusable(row, columns)
        if reason:
            rejected.append(Rejected(identity, f"{table.place(number)}: {reason}"))
            continue
        texts = dict(zip(columns.fields, (row[column] for column in columns.texts), strict=True))
        index = names.index(row[columns.label])
        if index is None:
            raise DataError(f"{table.place(number)}: {names.unknown(row[columns.label])}")
        examples.append(Example(identity, texts, index))
    task = Classification(names.names, columns.fields)
    return Dataset(name, split, task, tuple(examples), tuple(rejected))


def _describe_unusable(row: Mapping[str, Any], columns: Columns) -> str | None:
    for column in columns.texts:
        value = row.get(column)
        if value is None:
            return f"no value for {column!r}"
        if not isinstance(value, str):
            return f"{column!r} holds {_describe_kind(value)}, not a text"
        if not _is_encodable(value):
            return f"{column!r} holds half of a surrogate pair, which no tokenizer can read"
    if is_missing(row.get(columns.label)):
        return "no label"
    if is_unlabelled(row.get(columns.label), columns.label):
        return "no label: its annotators did not agree on one"
    if isinstance(row[columns.label], dict | list):
        return f"{columns.label!r} holds {_describe_kind(row[columns.label])}, not a label"
    return None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _describe_kind(value: Any) -> str:
    kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), f"a value of type {type(value).__name__}")
