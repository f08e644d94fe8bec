"""SAFER's synonym table, from word vectors.

    v  <-  v - mean(v), less its part in the span of the top principal components      (Mu and Viswanath, 2018)
    w' in S(w)   where   cos(v_w, v_w') >= similarity

Pairs are found by products in float32 and decided in float64, each pair once, so that the table is symmetric by
construction and does not depend on how the products were cut. It is kept in the cache folder once it is built.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from isthmus.core.errors import UsageError
from isthmus.lexicon.synonyms import FORMAT, SynonymTable, check_most, is_usable


def table_of_vectors(
    source: str = "counterfitted",
    *,
    similarity: float = 0.8,
    most: int = 100,
    components: int = 8,
    vocabulary: int = 50_000,
) -> SynonymTable:
    """Build SAFER's table: synonyms are words whose vectors have a cosine of at least `similarity`.

    The mean and the top `components` principal components of the vectors are removed first: they say how frequent a
    word is rather than what it means. `source` names vectors, a file or a folder of them; the first `vocabulary`
    of its words that a table can hold are used (files are sorted by frequency).
    """
    if not 0 < similarity < 1:
        raise UsageError(f"similarity is a cosine between 0 and 1, not {similarity}")
    if components < 0 or vocabulary < 2:
        raise UsageError(f"components cannot be {components}, nor the vocabulary {vocabulary}")
    check_most(most)
    return _build_table(source, similarity, most, components, vocabulary)


@functools.lru_cache(maxsize=4)
def _build_table(source: str, similarity: float, most: int, components: int, vocabulary: int) -> SynonymTable:
    from isthmus import assets
    from isthmus.lexicon.neighbours import load_vector_neighbours

    neighbours = load_vector_neighbours(source)
    rows = [row for row, word in enumerate(neighbours.vectors.words) if is_usable(word)][:vocabulary]
    words = [neighbours.vectors.words[row] for row in rows]
    matrix = np.asarray(neighbours.vectors.matrix[rows], dtype=np.float64)
    name = f"{neighbours.name}, cosine at least {similarity:g}, {most} nearest, {components} components removed"
    digest = hashlib.sha256(f"{FORMAT}\n{name}\n".encode() + "\n".join(words).encode() + matrix.tobytes())
    stored = assets.cache_folder() / "synonyms" / f"{digest.hexdigest()[:16]}.json"
    if stored.is_file():
        return SynonymTable.read(stored)
    table = _from_matrix(name, words, matrix, similarity, most, components)
    table.write(stored)
    return table


def _from_matrix(
    name: str, words: Sequence[str], matrix: Any, similarity: float, most: int, components: int
) -> SynonymTable:
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    unit = without_common_directions(matrix, components)
    first, second = _find_pairs(unit, similarity)
    links = coo_matrix((np.ones(len(first)), (first, second)), shape=(len(words), len(words)))
    _, component = connected_components(links, directed=False)
    others: list[list[tuple[float, int]]] = [[] for _ in words]
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        cosine = -float(unit[a] @ unit[b])
        others[a].append((cosine, b))
        others[b].append((cosine, a))
    synonyms = {
        word: tuple(words[other] for _, other in sorted(found))
        for word, found in zip(words, others, strict=True)
        if found
    }
    perturbations: dict[str, tuple[str, ...]] = {}
    sizes = np.bincount(component)
    for large in np.flatnonzero(sizes > most).tolist():
        members = np.flatnonzero(component == large)
        cosines = unit[members] @ unit[members].T
        np.fill_diagonal(cosines, 2.0)  # rounding must not put a word behind its own double
        for row, word in enumerate(members.tolist()):
            near = np.argsort(-cosines[row], kind="stable")[:most]
            perturbations[words[word]] = tuple(words[index] for index in members[near].tolist())
    return SynonymTable(name, synonyms, perturbations)


def without_common_directions(matrix: Any, components: int) -> Any:
    """Unit vectors without the mean and the top principal components (Mu and Viswanath, 2018)."""
    if components >= matrix.shape[1]:
        raise UsageError(
            f"{components} of {matrix.shape[1]} principal components cannot be removed: nothing would be left"
        )
    centred = matrix - matrix.mean(axis=0)
    if components:
        _, vectors = np.linalg.eigh(centred.T @ centred)
        top = vectors[:, -components:]
        centred = centred - (centred @ top) @ top.T
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred / np.where(lengths > 0, lengths, 1)


def _find_pairs(unit: Any, similarity: float) -> tuple[Any, Any]:
    """Pairs a < b with a cosine of at least `similarity`: found in float32, decided in float64."""
    single = unit.astype(np.float32)
    firsts, seconds = [], []
    for start in range(0, len(single), 1024):
        cosines = single[start : start + 1024] @ single[start:].T
        a, b = np.nonzero(cosines >= similarity - 1e-5)
        a, b = a[a < b] + start, b[a < b] + start
        close = (unit[a] * unit[b]).sum(axis=1) >= similarity
        firsts.append(a[close])
        seconds.append(b[close])
    return np.concatenate(firsts), np.concatenate(seconds)
