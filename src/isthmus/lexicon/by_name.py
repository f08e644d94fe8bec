"""Loads synonym tables and neighbours by a name, a file, or the folder of a run."""

from __future__ import annotations

import functools
from pathlib import Path

from isthmus.core.errors import DataError
from isthmus.lexicon.neighbours import Neighbours, TableNeighbours, load_vector_neighbours
from isthmus.lexicon.synonym_graph import table_of_vectors
from isthmus.lexicon.synonyms import FILE, SynonymTable


def load_neighbours(source: str = "counterfitted") -> Neighbours:
    """Load neighbours from counter-fitted vectors, ``glove``, a file or folder of vectors, or a synonym table.

    A table (``safer``, a ``.json`` file of synonyms, a run trained with `safer`) gives its synonyms and no others.

    ``counterfitted`` is the published file where it lies in ``ISTHMUS_ASSETS`` or the cache folder, under its own name,
    and otherwise the stand-in of `isthmus.lexicon.counterfit`; the result's `name` says which. Each is loaded
    once for the whole process.
    """
    return _table_neighbours(source) if is_table(source) else load_vector_neighbours(source)


@functools.cache
def _table_neighbours(source: str) -> TableNeighbours:
    return TableNeighbours(load_table(source))


def is_table(source: str) -> bool:
    """Whether `source` names synonyms, not vectors: SAFER's own table, or a file of links."""
    return source == "safer" or table_file(source) is not None


def table_file(source: str) -> Path | None:
    """The table's file: the path itself, or the file in a model's or run's folder."""
    path = Path(source).expanduser()
    for file in (path / FILE, path / "model" / FILE):
        if file.is_file():
            return file
    return path if path.suffix == ".json" and path.is_file() else None


@functools.cache
def load_table(source: str = "safer") -> SynonymTable:
    """Load ``safer`` (from counter-fitted vectors), ``glove``, a ``.json`` file, or the table in a run's folder."""
    file = table_file(source)
    if file is not None:
        return SynonymTable.read(file)
    if source == "safer":
        return table_of_vectors()
    if source.endswith(".json") or (Path(source).is_dir() and not (Path(source) / "words.txt").is_file()):
        raise DataError(f"no synonym table at {source}: give a .json file, or a run trained with the defence safer")
    return table_of_vectors(source)
