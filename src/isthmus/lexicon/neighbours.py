"""Nearest words by word vectors.

    cosine(a, b) = u_a · u_b,  u = v / |v|        distance(a, b) = |v_a − v_b|²

Cosines decide the order, the distance is the one Genetic and IGA bound (0.5). Vectors whose lengths are all within 2 %
of one are unit vectors that were rounded (the int8 files are), and are made unit vectors again; others keep their
lengths for the distance.

A product in float32 finds who may be among the nearest, a second one in float64 orders those. So the answer is the
full sort of all cosines and does not depend on how many words were asked for at once, as it would in float32, where a
product's last bits change with its shape. Equal cosines stand in the order of the rows.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isthmus import assets
from isthmus.core.errors import DataError, UsageError
from isthmus.core.types import Floats
from isthmus.lexicon.vectors import WordVectors

if TYPE_CHECKING:
    from isthmus.lexicon.synonyms import SynonymTable

PUBLISHED = "counter-fitted-vectors.txt"
"""The file of Mrkšić et al. as its authors name it."""

_BLOCK = 1 << 25
"""Bytes of one product of cosines."""
_DOUBT = 2e-5
"""More than a float32 cosine of unit vectors can be wrong."""
_ROUNDED = 0.02


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest words of one word, the nearest first."""

    words: tuple[str, ...]
    cosines: Floats
    distances: Floats

    def first(self, k: int) -> Nearest:
        """The `k` nearest of them."""
        return Nearest(self.words[:k], self.cosines[:k], self.distances[:k])


_NOTHING = Nearest((), np.empty(0, np.float32), np.empty(0, np.float32))


class Neighbours:
    """Finds neighbours by word vectors; answers are cached."""

    def __init__(self, vectors: WordVectors, name: str) -> None:
        matrix = np.asarray(vectors.matrix, dtype=np.float32)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise DataError(
                f"{name}: the vector of {vectors.words[int(np.argmax(~np.isfinite(lengths)))]!r} is not finite"
            )
        self.name = name
        """What the vectors really are, for results."""
        self.vectors = vectors
        self._unit = matrix / np.where(lengths > 0, lengths, 1)
        self._are_units = bool((np.abs(lengths - 1) < _ROUNDED).all())
        self._stored = self._unit if self._are_units else matrix
        self._rows = {word: row for row, word in reversed(list(enumerate(vectors.words)))}
        self._known: dict[int, Nearest] = {}
        self._cut: dict[tuple[int, int], Nearest] = {}

    def __len__(self) -> int:
        return len(self.vectors)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word.lower() in self._rows

    def __repr__(self) -> str:
        return f"<Neighbours: {self.name}, {len(self)} words>"

    def nearest(self, word: str, k: int) -> Nearest:
        """The `k` nearest words of a word in any case, without the word itself; none if it is unknown."""
        row = self._rows.get(word.lower())
        if row is None:
            return _NOTHING
        found = self._cut.get((row, k))
        if found is None:
            self.prefetch([word], k)
            found = self._cut[row, k] = self._known[row].first(k)
        return found

    def prefetch(self, words: Iterable[str], k: int) -> None:
        """Look up many words at once, which is several times cheaper than one by one."""
        if k < 1:
            raise UsageError(f"ask for one neighbour or more, not {k}")
        wanted = min(k, len(self) - 1)
        asked = dict.fromkeys(self._rows.get(word.lower(), -1) for word in words)
        rows = [row for row in asked if row >= 0 and len(self._known.get(row, _NOTHING).words) < wanted]
        step = max(_BLOCK // (4 * len(self)), 1)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            for row, cosines in zip(block, self._unit[block] @ self._unit.T, strict=True):
                self._known[row] = self._sort(row, cosines, wanted)

    def cosine(self, a: str, b: str) -> float | None:
        """Cosine of two words; None if one is unknown."""
        pair = self._pair(a, b)
        return None if pair is None else float(self._cosines(pair[0], np.array([pair[1]]))[0])

    def distance(self, a: str, b: str) -> float | None:
        """Squared Euclidean distance of two words; None if one is unknown."""
        pair = self._pair(a, b)
        return None if pair is None else float(self._distances(pair[0], np.array([pair[1]]))[0])

    def _pair(self, a: str, b: str) -> tuple[int, int] | None:
        rows = self._rows.get(a.lower()), self._rows.get(b.lower())
        return None if rows[0] is None or rows[1] is None else (rows[0], rows[1])

    def _sort(self, row: int, cosines: Floats, k: int) -> Nearest:
        cosines[row] = -np.inf
        least = np.partition(cosines, len(cosines) - k)[len(cosines) - k] - 2 * _DOUBT
        near = np.flatnonzero(cosines >= least)
        exact = self._cosines(row, near)
        order = np.lexsort((near, -exact))[:k]
        near, exact = near[order], exact[order]
        words = self.vectors.words
        return Nearest(tuple(words[index] for index in near), exact.astype(np.float32), self._distances(row, near))

    def _cosines(self, row: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        # Summed row by row, not as a matrix product: equal vectors get equal bits, and ties stay ties.
        product = self._unit[others].astype(np.float64) * self._unit[row].astype(np.float64)
        return np.asarray(product.sum(axis=1))

    def _distances(self, row: int, others: NDArray[np.int64]) -> Floats:
        difference = self._stored[others].astype(np.float64) - self._stored[row].astype(np.float64)
        return np.asarray((difference**2).sum(axis=1), dtype=np.float32)


class TableNeighbours(Neighbours):
    """The synonyms of a table as neighbours, in its order: an attack with them stays inside what the table allows.

    Every synonym has a cosine of 1 and a distance of 0, so that no bound on either leaves one out.
    """

    def __init__(self, table: SynonymTable) -> None:
        self.table, self.name = table, table.title

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, word: object) -> bool:
        return word in self.table

    def nearest(self, word: str, k: int) -> Nearest:
        """The first `k` synonyms of a word, in its own case."""
        words = self.table.replacements(word)[:k]
        return Nearest(words, np.ones(len(words), np.float32), np.zeros(len(words), np.float32))

    def prefetch(self, words: Iterable[str], k: int) -> None:
        """Do nothing: a table needs no search."""

    def cosine(self, a: str, b: str) -> float | None:
        """1 for a word and its synonym, else None."""
        return 1.0 if a == b or b in self.table.replacements(a) else None

    def distance(self, a: str, b: str) -> float | None:
        """0 for a word and its synonym, else None."""
        return None if self.cosine(a, b) is None else 0.0


def load_vector_neighbours(source: str) -> Neighbours:
    """Load neighbours by vectors: counter-fitted ones, ``glove``, a file or a folder."""
    return _load_neighbours(source)


@functools.cache
def _load_neighbours(source: str) -> Neighbours:
    if source != "counterfitted":
        name = "GloVe 6B 50d" if source == "glove" else str(Path(source).expanduser())
        return Neighbours(WordVectors.load(source), name)
    published = find_published_vectors()
    if published is not None:
        return Neighbours(WordVectors.load(published), f"counter-fitted vectors of Mrkšić et al. ({published})")
    from isthmus.lexicon.counterfit import STAND_IN, stand_in

    return Neighbours(stand_in(), STAND_IN)


def find_published_vectors() -> Path | None:
    """The path of the published counter-fitted vectors, if the user has them."""
    own = os.environ.get("ISTHMUS_ASSETS")
    places = [Path(own).expanduser()] if own else []
    for place in (*places, assets.cache_folder()):
        for file in (place / PUBLISHED, place / "counterfitted" / PUBLISHED, place / f"{PUBLISHED}.gz"):
            if file.is_file():
                return file
    return None
