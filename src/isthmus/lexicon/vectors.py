"""Word vectors: the ``glove`` asset, ``.npz`` files, and text files of ``word v1 v2 …`` lines."""

from __future__ import annotations

import functools
import gzip
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from isthmus import assets
from isthmus.core.errors import DataError, UsageError
from isthmus.core.seeds import numpy_stream
from isthmus.core.types import Floats

_MATRIX_NAMES = ("vectors", "matrix", "embeddings")


class WordVectors:
    """A vector for each of some words."""

    def __init__(self, words: Sequence[str], matrix: Floats) -> None:
        if matrix.ndim != 2 or len(words) != len(matrix):
            raise DataError(f"{len(words)} words do not fit a matrix of shape {matrix.shape}")
        self.words = tuple(words)
        self.matrix = matrix  # [words, width]

    @classmethod
    def load(cls, source: str | Path = "glove") -> WordVectors:
        """Load an asset, a folder of ``words.txt`` and ``vectors.npy``, a ``.npz`` file, or a text file (or .gz)."""
        if str(source) in assets.names("lexicon"):
            return _read_folder(assets.path(str(source)))
        path = Path(source).expanduser()
        if not path.exists():
            raise DataError(f"no word vectors at {path}: give a file, a folder, or the name of an asset (glove)")
        if path.is_dir():
            return _read_folder(path)
        return _from_npz(path) if path.suffix == ".npz" else _from_text(path)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.index(word) is not None

    def __repr__(self) -> str:
        return f"<WordVectors: {len(self)} words, {self.width} wide>"

    @property
    def width(self) -> int:
        """Length of a vector."""
        return int(self.matrix.shape[1])

    @functools.cached_property
    def _index(self) -> Mapping[str, int]:
        # Backwards, so that the first of two equal words wins: files are sorted by frequency.
        return {word: row for row, word in reversed(list(enumerate(self.words)))}

    def index(self, word: str) -> int | None:
        """The row of a word, or of its lower-case form; None if both are unknown."""
        found = self._index.get(word)
        return found if found is not None else self._index.get(word.lower())

    def lookup(self, word: str) -> Floats | None:
        """The vector of a word, or of its lower-case form; None if both are unknown."""
        row = self.index(word)
        return None if row is None else np.asarray(self.matrix[row], dtype=np.float32)

    def coverage(self, vocabulary: Sequence[str]) -> float:
        """The share of a vocabulary that has vectors."""
        return sum(word in self for word in vocabulary) / len(vocabulary) if vocabulary else float("nan")

    def matrix_for(self, vocabulary: Sequence[str], dim: int | None = None, seed: int = 0) -> Floats:
        """Make an embedding table for a vocabulary: known words get their vectors, others normal noise of equal scale.

        A `dim` wider than the vectors is filled up with such noise. The noise of a word depends on the seed and the
        word alone, not on the rest of the vocabulary.
        """
        dim = self.width if dim is None else dim
        if dim < self.width:
            raise UsageError(
                f"the vectors are {self.width} wide and cannot be cut to {dim}: ask for {self.width} or more"
            )
        scale = float(np.asarray(self.matrix[:10_000], dtype=np.float32).std())
        table = np.empty((len(vocabulary), dim), dtype=np.float32)
        for row, word in enumerate(vocabulary):
            known = self.lookup(word)
            filled = 0 if known is None else self.width
            if known is not None:
                table[row, :filled] = known
            if filled < dim:
                table[row, filled:] = numpy_stream(seed, "vectors", word).normal(0.0, scale, dim - filled)
        return table


def _read_folder(folder: Path) -> WordVectors:
    try:
        # Mapped: an embedding table of 20,000 words touches a twentieth of the file.
        matrix = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        words = (folder / "words.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{folder} does not hold words.txt and vectors.npy: {error}") from error
    return _fitting(words, matrix, folder)


def _from_npz(path: Path) -> WordVectors:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable .npz file without pickles (cut off?): {error}") from error
    name = next((name for name in _MATRIX_NAMES if name in held), None)
    if "words" not in held or (name is None and not {"q", "scale"} <= held.keys()):
        raise DataError(f"{path} should hold 'words' and 'vectors' (or 'q' and 'scale'), not {', '.join(held)}")
    words = _read_words(held["words"])
    if name:
        return _fitting(words, held[name].astype(np.float32, copy=False), path)
    codes, scale = held["q"], held["scale"].reshape(-1, 1)
    if codes.ndim != 2 or len(scale) not in (1, len(codes)):
        raise DataError(f"{path}: {codes.shape} numbers in 'q' do not fit {held['scale'].shape} in 'scale'")
    return _fitting(words, codes.astype(np.float32) * scale, path)


def _fitting(words: Sequence[str], matrix: Floats, source: Path) -> WordVectors:
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise DataError(f"{source}: {len(words)} words do not fit a matrix of shape {matrix.shape}; is a file cut off?")
    return WordVectors(words, matrix)


def _read_words(array: np.ndarray[Any, Any]) -> list[str]:
    """Words as an array of texts, or as newline-joined UTF-8 bytes."""
    if array.dtype == np.uint8:
        return array.tobytes().decode().split("\n")
    return [str(word) for word in array]


def _from_text(path: Path) -> WordVectors:
    words: list[str] = []
    rows: list[Floats] = []
    number = width = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):
                fields = line.decode("utf-8", errors="replace").rstrip("\r\n ").split(" ")
                if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                    continue  # word2vec's header: how many, how wide
                width = width or len(fields) - 1
                # From the right, because a few words of the large GloVe files hold blanks.
                words.append(" ".join(fields[:-width]))
                rows.append(np.array([float(field) for field in fields[-width:]], dtype=np.float32))
                if len(fields) <= width or width == 0:
                    raise ValueError
    except ValueError as error:
        raise DataError(f"{path}, line {number}: expected a word and {width or 'some'} numbers") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}, after line {number}: the file is cut off or damaged ({error})") from error
    if not rows:
        raise DataError(f"{path} is empty: expected lines of a word and its numbers")
    return WordVectors(words, np.stack(rows))


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
