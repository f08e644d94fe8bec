"""Reads ``.csv .tsv .jsonl .json .parquet`` files (gzip-compressed or not) into rows, with the place of each row.

Nothing is interpreted here: a value is whatever the file holds. What cannot be read at all is a `DataError` that names
the file and, where there is one, the line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import DataError, MissingExtra

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
_CSV_LIMIT = threading.Lock()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a source."""

    source: str
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    place: Callable[[int], str]
    """Where a row is, for messages (said only when asked: a large file has millions)."""


def is_readable(path: Path) -> bool:
    """Whether the file's extension is one of the formats read here."""
    return suffix_of(path) in SUFFIXES


def suffix_of(path: Path) -> str:
    """The extension without ``.gz``: ``.jsonl`` of ``train.jsonl.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return name[name.rfind(".") :] if "." in name else ""


def stem_of(path: Path) -> str:
    """The name without extensions: ``train`` of ``train.jsonl.gz``."""
    return path.name[: len(path.name) - len(suffix_of(path)) - (3 if path.name.lower().endswith(".gz") else 0)]


def read_table(path: Path) -> Table:
    """Read one file into a table."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise DataError(f"cannot tell the format of {path}: name it {', '.join(SUFFIXES)} (or the same with .gz)")
    try:
        if suffix == ".parquet":
            table = _read_parquet(path)
        else:
            text = _read_text(path)
            reader = {".csv": _read_csv, ".tsv": _read_tsv, ".json": _read_json}.get(suffix, _read_jsonl)
            table = reader(path, text)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not table.rows:
        raise DataError(f"{path} is empty: it holds no rows")
    return table


def _read_text(path: Path) -> str:
    data = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} is not a whole gzip file: {error}") from error
    if not data.strip():
        raise DataError(f"{path} is empty")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8 ({error.reason}). Convert the file to UTF-8 first.") from error


def _read_jsonl(path: Path, text: str) -> Table:
    rows: list[Mapping[str, Any]] = []
    numbers: list[int] = []
    # Only \n ends a line: JSON strings may hold U+2028 and its like, at which splitlines would cut.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {number}: broken JSON: {error.msg} at column {error.colno}") from error
        except (ValueError, RecursionError) as error:  # Too many digits; too deep.
            raise DataError(f"{path}, line {number}: broken JSON: {_beyond(error)}") from error
        rows.append(row)
        numbers.append(number)
    return _make_table(path, rows, "line", numbers)


def _beyond(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _read_json(path: Path, text: str) -> Table:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return _read_jsonl(path, text)
        raise DataError(f"{path}, line {error.lineno}: broken JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: broken JSON: {_beyond(error)}") from error
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise DataError(f"{path} should hold a list of objects, not {type(content).__name__}")
    return _make_table(path, content, "record", range(1, len(content) + 1))


def _read_csv(path: Path, text: str) -> Table:
    return _read_delimited(path, text, csv.excel)


def _read_tsv(path: Path, text: str) -> Table:
    # Half of the world's .tsv files are quoted like .csv, the other half hold stray quotes that mean nothing.
    try:
        return _read_delimited(path, text, _QuotedTabs)
    except DataError:
        return _read_delimited(path, text, _PlainTabs)


class _QuotedTabs(csv.excel_tab):
    strict = True


class _PlainTabs(csv.excel_tab):
    quoting = csv.QUOTE_NONE


def _read_delimited(path: Path, text: str, dialect: type[csv.Dialect]) -> Table:
    rows: list[Mapping[str, Any]] = []
    numbers: list[int] = []
    with _any_length():
        reader = csv.reader(io.StringIO(text, newline=""), dialect)
        try:
            header = next(reader)
            _check_header(path, header)
            start = reader.line_num + 1
            for values in reader:
                number, start = start, reader.line_num + 1
                if not values:
                    continue
                if len(values) != len(header):
                    raise DataError(
                        f"{path}, line {number}: {len(values)} values, but the header has {len(header)} columns. "
                        "Quote values that hold the separator or a line break."
                    )
                rows.append(dict(zip(header, values, strict=True)))
                numbers.append(number)
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    return Table(str(path), tuple(header), tuple(rows), lambda row: f"{path}, line {numbers[row]}")


def _check_header(path: Path, header: list[str]) -> None:
    doubled = {name for name in header if header.count(name) > 1}
    if doubled:
        raise DataError(f"{path}: the header names {sorted(doubled)[0]!r} more than once")


@contextlib.contextmanager
def _any_length() -> Iterator[None]:
    """Inside, csv's limit of 131,072 characters per value is lifted: a long document has more."""
    with _CSV_LIMIT:
        before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "data", f"reading {path.name}") from error
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, ValueError) as error:
        raise DataError(f"{path} is not a readable parquet file: {error}") from error
    return _make_table(path, rows, "row", range(1, len(rows) + 1))


def _make_table(path: Path, rows: list[Any], unit: str, numbers: Sequence[int]) -> Table:
    columns: dict[str, None] = {}
    for row, number in zip(rows, numbers, strict=True):
        if not isinstance(row, dict):
            expected = 'expected an object such as {"text": …, "label": …}'
            raise DataError(f"{path}, {unit} {number}: {expected}, not {_shorten(row)}")
        columns.update(dict.fromkeys(row))
    return Table(str(path), tuple(columns), tuple(rows), lambda row: f"{path}, {unit} {numbers[row]}")


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
