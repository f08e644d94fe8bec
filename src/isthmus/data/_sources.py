"""Finds the tables of a data set: a file, a folder of splits, or the hub. They are read on demand."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isthmus.core.errors import DataError, RunError
from isthmus.core.files import read_json
from isthmus.data._tables import SUFFIXES, Table, is_readable, read_table, stem_of
from isthmus.data.dataset import SPLIT_ALIASES, Splits

_META = "meta.json"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_SPLITS = ("train", "dev", "test")
_VERSIONED = re.compile(r"(?:snli|multinli)_\d+\.\d+_(.+)|(train|dev|test)-v\d+(?:\.\d+)?")
"""``dev`` of ``dev-v1.1`` and ``snli_1.0_dev``, as SQuAD, SNLI and MNLI name their files."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """The splits of a source, and the label names of each (None if it has none)."""

    name: str
    splits: Mapping[str, Callable[[], Table]]
    labels: Callable[[str, str], tuple[str, ...] | None]
    """Of a split and the label column in it."""
    images: Callable[[str, tuple[str, ...] | None, str | None], Splits] | None = None
    """Of a source with a column of images: the splits, from title, label names and the column of labels."""


def from_path(path: Path) -> DataSource:
    """Open a file or a folder of splits."""
    if path.is_dir():
        return _find_in_folder(path)
    if not path.exists():
        raise DataError(f"no file or folder {path}.{_nearest_file(path)}")
    stem = canonical(stem_of(path))
    split = stem if stem in _SPLITS else "all"
    name = path.parent.name if split != "all" and path.parent.name else stem_of(path)
    reader = functools.cache(lambda: read_table(path))
    return DataSource(name, {split: reader}, lambda _, __: label_names_in(path.parent, stem_of(path)))


def canonical(split: str) -> str:
    """The usual name of a split: ``dev`` for ``validation``, ``snli_1.0_dev`` and the like."""
    versioned = _VERSIONED.fullmatch(split)
    bare = split if versioned is None else versioned[1] or versioned[2]
    return SPLIT_ALIASES.get(bare.lower(), bare)


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" The folder {path.parent} does not exist either."
    near = difflib.get_close_matches(path.name, [other.name for other in path.parent.iterdir()], n=1)
    return f" Did you mean {path.parent / near[0]}?" if near else ""


def _find_in_folder(folder: Path) -> DataSource:
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and is_readable(path) and path.name != _META and not path.name.startswith("."):
            files.setdefault(canonical(_SHARD.sub("", stem_of(path))), []).append(path)
    if not files:
        present = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise DataError(
            f"no data files in {folder}: expected train, dev, test as {', '.join(SUFFIXES)}; found {present}"
        )
    for split, paths in files.items():
        if len(paths) > 1 and not all(_SHARD.search(stem_of(path)) for path in paths):
            raise DataError(
                f"{folder}: {' and '.join(path.name for path in paths)} are both the {split} split: keep one"
            )
    order = sorted(files, key=lambda split: (_SPLITS.index(split) if split in _SPLITS else len(_SPLITS), split))
    readers = {split: functools.cache(functools.partial(_read_all, tuple(files[split]))) for split in order}
    return DataSource(folder.resolve().name, readers, lambda split, _: label_names_in(folder, split))


def _read_all(paths: tuple[Path, ...]) -> Table:
    tables = [read_table(path) for path in paths]
    if len(tables) == 1:
        return tables[0]
    columns = dict.fromkeys(column for table in tables for column in table.columns)
    origins = [(table, row) for table in tables for row in range(len(table.rows))]
    rows = tuple(table.rows[row] for table, row in origins)
    return Table(tables[0].source, tuple(columns), rows, lambda row: origins[row][0].place(origins[row][1]))


def label_names_in(folder: Path, split: str) -> tuple[str, ...] | None:
    """Label names of a folder's ``meta.json``, if it has one."""
    path = folder / _META
    if not path.is_file():
        return None
    try:
        meta = read_json(path)
    except RunError as error:
        raise DataError(str(error)) from error
    stated = meta.get("labels") if isinstance(meta, dict) else None
    return None if stated is None else _read_stated_labels(path, stated, split)


def _read_stated_labels(path: Path, stated: Any, split: str) -> tuple[str, ...] | None:
    if isinstance(stated, dict) and stated and all(str(key).isdigit() for key in stated):
        stated = [stated.get(str(index)) for index in range(len(stated))]
    if isinstance(stated, dict):
        # One list a task: ``dev_mnli_mm`` belongs to ``mnli_mm``, not to ``mm``.
        fitting = [key for key in stated if split == key or split.endswith(f"_{key}")]
        return _read_stated_labels(path, stated[max(fitting, key=len)], split) if fitting else None
    if not isinstance(stated, list) or not all(isinstance(name, str | int) for name in stated) or not stated:
        raise DataError(f'{path}: "labels" should be a list of names, not {stated!r:.80}')
    return tuple(map(str, stated))
