"""Files of adversarial texts with their originals.

    original_* columns   {"text": …, "label": …, "original_text": …}: AdvGLUE, adversarial texts as isthmus exports
                         them; a field without such a column, or with an empty one, was left as it is
    TextAttack's CSV     original_text, perturbed_text, ground_truth_output, result_type; changed words in [[brackets]],
                         the fields of a pair as ``[[[[Premise]]]]: …<SPLIT>[[[[Hypothesis]]]]: …``

In a TextAttack CSV labels are numbers of the model that was attacked, and <SPLIT> inside a text is a line break.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.core.errors import DataError
from isthmus.core.types import Classification, Example, Texts
from isthmus.data._columns import Columns, choose_columns
from isthmus.data._reading import LabelledReading
from isthmus.data._sources import DataSource, canonical
from isthmus.data._tables import Table, is_readable, read_table
from isthmus.data.dataset import Dataset, Rejected
from isthmus.data.load import _find_source

TEXTATTACK_COLUMNS = ("original_text", "perturbed_text", "ground_truth_output", "result_type")
_PREFIX = "original_"
_BREAK = "<SPLIT>"
_FIELD = re.compile(r"\[\[\[\[(.+?)\]\]\]\]: ")
_CHANGED = re.compile(r"\[\[(.+?)\]\](?!\])", re.DOTALL)


@dataclass(frozen=True)
class Paired:
    """A split, and the originals of its examples by id, if the file has them."""

    data: Dataset
    originals: Mapping[str, Texts] = field(default_factory=dict)


@dataclass(frozen=True)
class PairedSource:
    """A data set whose splits are read on demand."""

    source: DataSource
    reading: LabelledReading

    @property
    def name(self) -> str:
        """Its name in results."""
        return self.source.name

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self.source.splits)

    def canonical(self, split: str) -> str:
        """The name of a split in the source."""
        return split if split in self.source.splits else canonical(split)

    def is_labelled(self, split: str) -> bool:
        """Whether any row of the split has a label."""
        return self.reading.is_labelled(split)

    def read(self, split: str) -> Paired:
        """Read one split with its originals."""
        table, data = self.source.splits[split](), self.reading.dataset(split)
        columns = choose_columns(table, self.reading.text, self.reading.label, self.reading.pair)
        return Paired(data, _originals(table, columns, data))


def open_paired(
    source: str | Path,
    *,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
) -> PairedSource:
    """Open a data set as `load_data` would; only the first table is read."""
    found = _find_source(source)
    if text is None and pair is None:
        first = next(iter(found.splits.values()))()
        named = _find_exported_columns(first)
        text, pair = (named[0], None) if len(named) == 1 else (None, (named[0], named[1]) if named else None)
    return PairedSource(found, LabelledReading(found, found.name, text, label, pair, None))


def _find_exported_columns(table: Table) -> tuple[str, ...]:
    """The text columns of a file that isthmus exported, whatever their names; empty for other files."""
    if not {"id", "attack", "label"} <= set(table.columns):
        return ()
    named = tuple(column for column in table.columns if f"{_PREFIX}{column}" in table.columns)
    return named if len(named) in (1, 2) else ()


def holds_successes_only(path: str | Path) -> bool:
    """Whether isthmus exported the file with successful attacks only: failed ones are not in it."""
    return _is_file(path) and bool(_find_exported_columns(read_table(Path(path).expanduser())))


def _is_file(path: str | Path) -> bool:
    file = Path(path).expanduser()
    return file.is_file() and is_readable(file)


def _originals(table: Table, columns: Columns, data: Dataset) -> dict[str, Texts]:
    pairs = [(name, column, f"{_PREFIX}{column}") for name, column in zip(columns.fields, columns.texts, strict=True)]
    if not any(original in table.columns for _, _, original in pairs):
        return {}
    found: dict[str, Texts] = {}
    for example in data:
        row = table.rows[int(example.id.rpartition(":")[2])]
        given = {name: row.get(original) for name, _, original in pairs}
        if any(isinstance(value, str) and value for value in given.values()):
            found[example.id] = {
                name: value if isinstance(value := given[name], str) and value else str(row[column])
                for name, column, _ in pairs
            }
    return found


def is_textattack(path: str | Path) -> bool:
    """Whether a table has the columns of TextAttack's CSV logger."""
    if not _is_file(path) or not Path(path).name.lower().removesuffix(".gz").endswith(".csv"):
        return False
    return set(TEXTATTACK_COLUMNS) <= set(read_table(Path(path).expanduser()).columns)


def read_textattack(path: str | Path, result_types: Iterable[str]) -> Paired:
    """Read the perturbed texts of a TextAttack CSV whose result is one of `result_types`, with their true labels."""
    table = read_table(Path(path).expanduser())
    wanted = {kind.lower() for kind in result_types}
    examples: list[Example] = []
    rejected: list[Rejected] = []
    originals: dict[str, Texts] = {}
    for number, row in enumerate(table.rows):
        if str(row["result_type"]).lower() not in wanted:
            continue
        identity = f"all:{number}"
        label = _class_number(row["ground_truth_output"])
        if label is None:
            found = f"ground_truth_output is {row['ground_truth_output']!r}, not a class number"
            rejected.append(Rejected(identity, f"{table.place(number)}: {found}"))
            continue
        examples.append(Example(identity, parse_printed(str(row["perturbed_text"])), label))
        originals[identity] = parse_printed(str(row["original_text"]))
    fields = _common_fields(table, [example.texts for example in examples])
    classes = 1 + max((int(example.label) for example in examples), default=0)  # type: ignore[arg-type]
    task = Classification(tuple(str(index) for index in range(max(2, classes))), fields)
    return Paired(Dataset(Path(path).stem, "all", task, tuple(examples), tuple(rejected)), originals)


def _common_fields(table: Table, texts: Sequence[Texts]) -> tuple[str, ...]:
    kinds = {tuple(each) for each in texts}
    if len(kinds) > 1:
        shown = " and ".join(", ".join(kind) for kind in sorted(kinds)[:2])
        raise DataError(f"{table.source}: some rows have the fields {shown}: they cannot come from one attack")
    return kinds.pop() if kinds else ("text",)


def _class_number(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and number >= 0 else None


def parse_printed(printed: str) -> dict[str, str]:
    """Parse the fields of a text as TextAttack prints it, without its marks."""
    starts = list(_FIELD.finditer(printed))
    if not starts or starts[0].start() != 0:
        return {"text": _remove_marks(printed)}
    ends = [start.start() for start in starts[1:]] + [len(printed) + len(_BREAK)]
    return {
        start[1].lower(): _remove_marks(printed[start.end() : end - len(_BREAK)])
        for start, end in zip(starts, ends, strict=True)
    }


def _remove_marks(printed: str) -> str:
    return _CHANGED.sub(r"\1", printed).replace(_BREAK, "\n")
