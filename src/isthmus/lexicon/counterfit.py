"""Counter-fitting: moves word vectors until synonyms are close and antonyms far apart.

    AR = Σ_antonyms max(0, δ − d(u, w)),  SA = Σ_synonyms max(0, d(u, w) − γ),
    VSP = Σ_neighbours max(0, d(u, w) − d⁰(u, w)),        d(u, w) = 1 − cos(u, w)

A step adds to every vector the mean of its terms' downhill directions of d, each times its strength (0.1), and brings
vectors back to length one; 20 steps, δ = 1, γ = 0, as the authors' program does it.

References:
    Mrkšić, Ó Séaghdha, Thomson, Gašić, Rojas-Barahona, Su, Vandyke, Wen, Young: Counter-fitting Word Vectors to
    Linguistic Constraints. NAACL 2016.

The published vectors (Paragram 300 wide, counter-fitted with PPDB and WordNet) are on no package index. `stand_in`
makes vectors for the same use from what is: GloVe 6B 50 wide, whitened, and the pairs of `isthmus.lexicon.constraints`.
It is built once (7 s of one core) and kept in the cache folder. VSP is left out: over the 40,000 most frequent words it
cost as much again, and before whitening it moved the overlap below by less than a point and lowered SimLex by five.

Measured on 4,000 words of the published vocabulary that have neighbours there (distance at most 0.7), on SimLex-999,
and on 3,000 words of the authors' antonym pairs:

                                                   GloVe   stand-in   published
    published neighbours among the first 8           20 %       29 %
    published neighbours among the first 50          34 %       46 %
    SimLex-999, Spearman                             0.26       0.53   0.74 by its authors
    words with an antonym among the first 8          13 %      0.6 %

So it is no replacement where figures are to be compared with published ones. Cosines run high in 50 dimensions: nearly
all of the first 50 neighbours reach 0.5, where TextFooler and others draw their line.
"""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isthmus import assets
from isthmus.core.errors import DataError, RunError
from isthmus.core.files import write_atomic
from isthmus.core.types import Floats
from isthmus.lexicon.constraints import PairKeys, WordNetPairs
from isthmus.lexicon.vectors import WordVectors
from isthmus.lexicon.wordnet import load_wordnet

STAND_IN = "GloVe 6B 50d counter-fitted with WordNet (stand-in: not the published counter-fitted vectors)"

_VERSION = 1
"""Part of the stored file's name: to be raised whenever the stand-in comes out differently."""
_FREQUENT = 60_000
_log = logging.getLogger("isthmus")
_NO_PAIRS: PairKeys = np.empty((0, 2), np.int64)


def counterfit(
    matrix: Floats,
    close: PairKeys,
    apart: PairKeys,
    kept: PairKeys = _NO_PAIRS,
    *,
    steps: int = 20,
    strength: float = 0.1,
    delta: float = 1.0,
    gamma: float = 0.0,
) -> Floats:
    """Unit vectors after counter-fitting; `kept` are the pairs whose distance may shrink but not grow (VSP)."""
    unit = _normalise(np.asarray(matrix, dtype=np.float32))
    kinds = ((apart, -strength, delta), (close, strength, gamma), (kept, strength, _distances(unit, kept)))
    # Both directions of every pair, by row, so that the sum over a row's pairs is one product with a sparse matrix.
    pairs = np.concatenate([pairs for pairs, _, _ in kinds])
    pull = np.concatenate([np.full(len(pairs), pull, np.float32) for pairs, pull, _ in kinds])
    bound = np.concatenate([np.broadcast_to(np.float32(bound), len(pairs)) for pairs, _, bound in kinds])
    return _descend(unit, np.concatenate([pairs, pairs[:, ::-1]]), np.tile(pull, 2), np.tile(bound, 2), steps)


def _descend(unit: Floats, edges: PairKeys, pull: Floats, bound: Floats, steps: int) -> Floats:
    from scipy.sparse import csr_array

    order = np.argsort(edges[:, 0], kind="stable")
    (rows, others), pull, bound = edges[order].T, pull[order], bound[order]
    touched, rows = np.unique(rows, return_inverse=True)  # vectors without a pair stay where they are
    others = np.searchsorted(touched, others)
    moving, size = unit[touched], len(touched)
    starts = np.searchsorted(rows, np.arange(size + 1))
    for _ in range(steps):
        cosine = (moving[rows] * moving[others]).sum(axis=1)
        violated = np.where(pull > 0, 1 - cosine > bound, 1 - cosine < bound)
        weight = np.where(violated, pull, 0).astype(np.float32)
        # The derivative of cos(u, w) by a unit vector u is w − cos(u, w) u.
        toward = csr_array((weight, others, starts), shape=(size, size)) @ moving
        back = np.bincount(rows, weights=weight * cosine, minlength=size).astype(np.float32)
        count = np.maximum(np.bincount(rows, weights=violated, minlength=size), 1).astype(np.float32)
        moving = _normalise(moving + (toward - back[:, None] * moving) / count[:, None])
    result = unit.copy()
    result[touched] = moving
    return result


def _normalise(matrix: Floats) -> Floats:
    lengths: NDArray[np.float32] = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _distances(unit: Floats, pairs: PairKeys) -> Floats:
    return np.asarray(1 - (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(axis=1), dtype=np.float32)


def stand_in() -> WordVectors:
    """GloVe counter-fitted with WordNet, read from the cache folder or built now."""
    stored = stand_in_path()
    if stored.is_file():
        try:
            return WordVectors.load(stored)
        except DataError as error:
            _log.warning("%s is damaged and will be built again: %s", stored, error)
    vectors = build_stand_in(WordVectors.load("glove"))
    with contextlib.suppress(RunError):  # a cache that cannot be written costs time, not the attack
        content = io.BytesIO()
        words = np.frombuffer("\n".join(vectors.words).encode(), dtype=np.uint8)
        np.savez(content, words=words, vectors=vectors.matrix)
        write_atomic(stored, content.getvalue())
    return vectors


def stand_in_path() -> Path:
    """The path of the stand-in once it is built."""
    return assets.cache_folder() / f"counterfitted-standin-{_VERSION}.npz"


def build_stand_in(glove: WordVectors) -> WordVectors:
    """Counter-fit the frequent words of `glove`, which is sorted by frequency, and all that WordNet lists."""
    dictionary = WordNetPairs(load_wordnet())
    known = dictionary.lemmas()
    kept = [row for row, word in enumerate(glove.words) if word in known or (row < _FREQUENT and _is_word(word))]
    words = [glove.words[row] for row in kept]
    pairs = dictionary.among(words)
    return WordVectors(words, counterfit(_whiten(np.asarray(glove.matrix[kept])), pairs.close, pairs.apart))


def _whiten(matrix: Floats) -> Floats:
    """Unit vectors, centred and whitened: a few directions hold most of GloVe's cosines."""
    centred = _normalise(matrix.astype(np.float32))
    centred = centred - centred.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(centred.T))
    return np.asarray(centred @ ((vectors / np.sqrt(values)) @ vectors.T), dtype=np.float32)


def _is_word(text: str) -> bool:
    return any(character.isalpha() for character in text)
