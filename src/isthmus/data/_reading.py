"""Makes data sets from the tables of a source: labelled texts, or questions with contexts."""

from __future__ import annotations

import functools
from collections.abc import Callable

from isthmus.core.errors import DataError, UsageError
from isthmus.data._columns import Columns, LabelNames, choose_columns, has_label, is_unlabelled, make_dataset
from isthmus.data._questions import choose_question_columns, make_questions
from isthmus.data._sources import DataSource
from isthmus.data._tables import Table
from isthmus.data.dataset import Dataset, Splits


def read_all(reading: LabelledReading | QuestionReading, found: DataSource, title: str) -> Splits:
    usable = [part for part in found.splits if reading.is_labelled(part)]
    if not usable:
        raise DataError(f"no row of {title} has {reading.wanted}")
    return Splits(title, {part: reading.dataset(part) for part in usable})


class QuestionReading:
    """Reads the questions of one source."""

    wanted = "a question with an answer that can be found in its context"

    def __init__(
        self,
        source: DataSource,
        title: str,
        text: str | None,
        label: str | None,
        pair: tuple[str, str] | None,
        labels: tuple[str, ...] | None,
    ) -> None:
        if labels is not None:
            raise UsageError(f"questions have answers and no labels ({', '.join(labels)}): leave the labels out")
        self.columns = choose_question_columns(text, label, pair)
        self.dataset = functools.cache(lambda split: make_questions(source.splits[split](), self.columns, title, split))

    def is_labelled(self, split: str) -> bool:
        return len(self.dataset(split)) > 0


class LabelledReading:
    """Reads the labelled texts of one source; columns and label names are chosen once for all splits."""

    wanted = "a label"

    def __init__(
        self,
        source: DataSource,
        title: str,
        text: str | None,
        label: str | None,
        pair: tuple[str, str] | None,
        labels: tuple[str, ...] | None,
    ) -> None:
        self.source, self.title = source, title
        self.text, self.label, self.pair, self.labels = text, label, pair, labels

    def dataset(self, split: str) -> Dataset:
        table = self.source.splits[split]()
        columns = self._columns(table)
        if not self.is_labelled(split):
            raise DataError(f"no row of the {split} split of {self.title} has a label")
        return make_dataset(table, columns, self._names(split), self.title, split)

    def is_labelled(self, split: str) -> bool:
        table = self.source.splits[split]()
        if not has_label(table, self.label) and any(has_label(read(), self.label) for read in self._others(split)):
            return False  # A test split whose labels were never published, as in GLUE.
        label = self._columns(table).label
        return not all(is_unlabelled(row.get(label), label) for row in table.rows)

    def _others(self, split: str) -> list[Callable[[], Table]]:
        return [read for part, read in self.source.splits.items() if part != split]

    def _columns(self, table: Table) -> Columns:
        return choose_columns(table, self.text, self.label, self.pair)

    def _names(self, split: str) -> LabelNames:
        known = self.labels or self.source.labels(split, self._columns(self.source.splits[split]()).label)
        if known is not None:
            return LabelNames(known)
        columns = self._columns(self.source.splits[split]())
        deciding = ["train"] if "train" in self.source.splits else list(self.source.splits)
        tables = [self.source.splits[part]() for part in deciding]
        labels = [
            (row.get(column), column)
            for table in tables
            for column in [self._columns(table).label]
            for row in table.rows
        ]
        values = [value for value, column in labels if not is_unlabelled(value, column)]
        return LabelNames.found_in(values, self.title, inference=columns.is_inference)


def read_source(
    found: DataSource,
    title: str,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
    labels: tuple[str, ...] | None = None,
) -> Splits:
    """Read every split of a source that has labels."""
    return read_all(LabelledReading(found, title, text, label, pair, labels), found, title)
