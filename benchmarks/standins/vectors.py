"""Word vectors laid out as TextAttack's cache of counter-fitted vectors, so that it looks nowhere else.

    CACHE/word_embeddings/paragramcf/   paragram.npy    the vectors [words, width]
                                        nn.npy          rows of the nearest words by cosine, the word itself first
                                        wordlist.pickle word -> row
                                        cos_sim.p, mse_dist.p

The two dictionaries of known pairs are left empty: TextAttack computes a pair when it first meets it and keeps it (50
microseconds each, where one text costs it about 30 milliseconds of forward pass).
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 51
"""The word itself and the 50 nearest, as in the published nn.npy."""
ROUNDED = 0.02
"""Vectors whose lengths are all this close to one are unit vectors that were rounded, and are made so again."""
_ROWS_AT_ONCE = 500


def lay_out(vectors: Path, root: Path) -> Path:
    """The cache folder for these vectors, made where it is not there yet."""
    folder = root / f"vectors-{_digest(vectors)}"
    target = folder / "word_embeddings" / "paragramcf"
    if (target / "nn.npy").exists():
        return folder
    words, matrix = read(vectors)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as work:
        made = Path(work) / "paragramcf"
        made.mkdir()
        np.save(made / "paragram.npy", matrix)
        _pickle({word: row for row, word in enumerate(words)}, made / "wordlist.pickle")
        _pickle(defaultdict(dict), made / "cos_sim.p")
        _pickle(defaultdict(dict), made / "mse_dist.p")
        np.save(made / "nn.npy", nearest(matrix))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, target)
    return folder


def read(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """Words and vectors of an .npz (q, scale, words: int8 rows and their scales) or a text file `word v1 v2 ...`."""
    if path.suffix == ".npz":
        with np.load(path) as saved:
            words = saved["words"].tobytes().decode().split("\n")
            matrix = saved["q"].astype(np.float32) * saved["scale"].reshape(-1, 1).astype(np.float32)
    else:
        lines = path.read_text(encoding="utf-8").splitlines()
        parts = [line.rstrip().split(" ") for line in lines if line.count(" ") > 2]
        words = [part[0] for part in parts]
        matrix = np.array([part[1:] for part in parts], dtype=np.float32)
    if len(words) != len(matrix) or len(set(words)) != len(words):
        raise SystemExit(f"{path}: {len(words)} words, {len(set(words))} distinct, for {len(matrix)} vectors")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return words, matrix / lengths if (np.abs(lengths - 1) < ROUNDED).all() else matrix


def nearest(matrix: NDArray[np.float32], count: int = NEIGHBOURS) -> NDArray[np.int32]:
    """Rows of the nearest by cosine, equal ones in the order of the rows; the word itself first."""
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    found = np.empty((len(unit), count), dtype=np.int32)
    for start in range(0, len(unit), _ROWS_AT_ONCE):
        block = np.arange(start, min(start + _ROWS_AT_ONCE, len(unit)))
        cosines = unit[block] @ unit.T
        cosines[np.arange(len(block)), block] = 2
        near = np.sort(np.argpartition(-cosines, count + 5, axis=1)[:, : count + 5], axis=1)
        # Once more in float64: in float32 the last bits depend on the shape of the product, and decide the order.
        exact = np.einsum("bkw,bw->bk", unit[near].astype(np.float64), unit[block].astype(np.float64))
        exact[near == block[:, None]] = 2
        order = np.argsort(-exact, axis=1, kind="stable")[:, :count]
        found[block] = np.take_along_axis(near, order, axis=1)
    return found


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _pickle(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value))
