"""Data given as Python objects: pairs of text and label, two lists, a pandas frame, a `datasets.Dataset`.

[("a lovely film", 1), …]                     rows; ("premise", "hypothesis", label) for pairs of texts
(["a lovely film", …], [1, …])                two lists, texts and labels
[{"text": "a lovely film", "label": 1}, …]    records, a frame, a datasets.Dataset: columns by name
{"train": …, "test": …}                       splits, each of them one of the above
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.core.errors import DataError
from isthmus.data._reading import read_source
from isthmus.data._sources import DataSource, canonical
from isthmus.data._tables import Table
from isthmus.data.dataset import Dataset, Splits

_SHAPES = (
    "give pairs of text and label, two lists (texts, labels), records with columns, a pandas frame, a "
    "datasets.Dataset, or a mapping of splits to these"
)


def as_splits(
    data: Any,
    name: str = "data",
    *,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
    labels: Sequence[str] | None = None,
) -> Splits:
    """Make splits from Python objects; columns and label names as in `load_data`.

    >>> from isthmus.data.plain import as_splits
    >>> as_splits([("a lovely film", "good"), ("a dull plot", "bad")], "reviews")["all"].labels
    ('bad', 'good')
    """
    if isinstance(data, Splits):
        return data
    if isinstance(data, Dataset):
        return Splits(data.name, {data.split: data})
    parts = dict(data) if _is_splits(data) else {"all": data}
    tables = {canonical(str(split)): _make_plain_table(part, f"{name}, {split}") for split, part in parts.items()}
    stated = {canonical(str(split)): part for split, part in parts.items()}
    source = DataSource(
        name,
        {split: functools.partial(tables.__getitem__, split) for split in tables},
        lambda split, column: _names_of(stated[split], column),
    )
    given = None if labels is None else tuple(labels)
    return read_source(source, name, text, label, pair, given)


def _is_splits(data: Any) -> bool:
    return isinstance(data, Mapping) and bool(data) and not hasattr(data, "columns")


def _make_plain_table(part: Any, source: str) -> Table:
    columns, rows = _records(part, source)
    if not rows:
        raise DataError(f"{source} holds no rows: {_SHAPES}")
    return Table(source, columns, tuple(rows), lambda row: f"row {row + 1} of {source}")


def _records(part: Any, source: str) -> tuple[tuple[str, ...], list[Mapping[str, Any]]]:
    if hasattr(part, "to_dict") and hasattr(part, "columns"):  # pandas
        return tuple(map(str, part.columns)), part.to_dict("records")
    if hasattr(part, "column_names") and hasattr(part, "features"):  # datasets
        return tuple(part.column_names), [dict(row) for row in part]
    if isinstance(part, Dataset):
        raise DataError(f"{source}: put data sets together by isthmus.data.Splits")
    if not isinstance(part, Sequence) or isinstance(part, str | bytes):
        raise DataError(f"{source} is a {type(part).__name__}: {_SHAPES}")
    if _is_two_lists(part):
        texts, labels = (list(column) for column in part)
        if len(texts) != len(labels):
            raise DataError(f"{source}: {len(texts)} texts and {len(labels)} labels")
        return ("text", "label"), [
            {"text": one, "label": _value(other)} for one, other in zip(texts, labels, strict=True)
        ]
    rows = list(part)
    if rows and all(isinstance(row, Mapping) for row in rows):
        return tuple(dict.fromkeys(str(key) for row in rows for key in row)), rows
    widths = {len(row) if isinstance(row, tuple | list) else 0 for row in rows}
    if widths == {2}:
        return ("text", "label"), [{"text": row[0], "label": _value(row[1])} for row in rows]
    if widths == {3}:
        names = ("premise", "hypothesis", "label")
        return names, [dict(zip(names, (row[0], row[1], _value(row[2])), strict=True)) for row in rows]
    if not rows:
        return ("text", "label"), []
    if widths == {2, 3}:
        raise DataError(f"{source}: some rows have one text and others two: make two data sets of them")
    raise DataError(f"{source}: {rows[0]!r:.80} is not a row: {_SHAPES}")


def _is_two_lists(part: Sequence[Any]) -> bool:
    """Whether the data are two lists or arrays, the first of texts only; a row would be a tuple."""
    return (
        len(part) == 2
        and all(not isinstance(column, str | tuple | Mapping) and hasattr(column, "__len__") for column in part)
        and all(isinstance(text, str) for text in part[0])
    )


def _value(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label  # a number of numpy's


def _names_of(part: Any, column: str) -> tuple[str, ...] | None:
    names = getattr(getattr(part, "features", {}).get(column), "names", None) if hasattr(part, "features") else None
    return None if names is None else tuple(map(str, names))
