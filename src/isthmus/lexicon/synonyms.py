"""A synonym table: which words may take whose place, shared by training, attack and certificate.

    S(w)    synonyms: what an attacker may put in the place of w; w' in S(w) whenever w in S(w')
    P(w)    perturbation set: what a smoothed classifier draws in the place of w, w itself among it; the `most` words
            nearest to w in its connected component of the graph of synonyms
    q(w)  = min over w' in S(w) of |P(w) ∩ P(w')| / max(|P(w)|, |P(w')|)

1 - q(w) is the largest total-variation distance between a draw from P(w) and one from P(w') (both uniform): within a
component that is not larger than `most` all words have the same set, and q = 1. Words of one component have sets of one
size, so that SAFER's |P(w) ∩ P(w')| / |P(w)| is the same number.

A word is looked up in small letters and answered in its own case: small, Capitalised or CAPITALS. Only words of two
letters or more are in a table, because for those the three cases differ, so that replacing never leads out of a case;
words of MiXed case have no synonyms. Nothing with apostrophes, hyphens or digits is in a table either, so that one word
always stands for one word.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isthmus.core.errors import DataError, UsageError
from isthmus.core.files import read_json, write_atomic

FORMAT = 1
FILE = "synonyms.json"
"""Under this name a table lies beside the model that was trained with it."""

Sets = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class SynonymTable:
    """Synonyms and perturbation sets of words in small letters; words without synonyms are not in it."""

    name: str
    """What it was made from, for results."""
    synonyms: Sets
    """S(w), the nearest first."""
    perturbations: Sets
    """P(w), where it is not the whole connected component."""
    _components: Sets = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        odd = [word for word in self.synonyms if not is_usable(word)]
        if odd:
            raise DataError(f"{self.name}: {odd[0]!r} cannot be in a synonym table, which holds words of small letters")
        one_way = _one_way(self.synonyms)
        if one_way:
            raise DataError(
                f"{self.name}: {one_way[0][1]!r} may take the place of {one_way[0][0]!r} but not the other way round "
                f"({len(one_way)} such links), and a certificate needs both ways: make the table symmetric"
            )
        object.__setattr__(self, "_components", _components(self.synonyms))

    def __len__(self) -> int:
        return len(self.synonyms)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and len(self.replacements(word)) > 0

    def __repr__(self) -> str:
        return f"<SynonymTable: {self.title}>"

    @property
    def title(self) -> str:
        """Name, size and fingerprint, for results."""
        return f"{self.name}, {len(self):,} words, table {self.fingerprint}"

    @functools.cached_property
    def fingerprint(self) -> str:
        """Eight hex digits over everything that a draw or an attack can see of it."""
        content = json.dumps([_plain(self.synonyms), _plain(self.perturbations)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def replacements(self, word: str) -> tuple[str, ...]:
        """S(w): what may take the place of a word, in the word's case; the nearest first."""
        small = word.lower()
        if small not in self.synonyms:
            return ()
        case = case_of(word)
        return () if case is None else tuple(case(other) for other in self.synonyms[small])

    def draws(self, word: str) -> tuple[str, ...]:
        """P(w): what a smoothed classifier reads in the place of a word, itself among it, in the word's case."""
        small = word.lower()
        if small not in self.synonyms:
            return (word,)
        case = case_of(word)
        return (word,) if case is None else tuple(case(other) for other in self._set(small))

    def overlap(self, word: str) -> float:
        """q(w); 1 where nothing can take its place."""
        small = word.lower()
        if small not in self.synonyms or case_of(word) is None:
            return 1.0
        return self._overlaps(small)

    @functools.cached_property
    def _overlaps(self) -> Callable[[str], float]:
        @functools.cache
        def overlap(word: str) -> float:
            own = set(self._set(word))
            others = (set(self._set(other)) for other in self.synonyms[word])
            return min(len(own & other) / max(len(own), len(other)) for other in others)

        return overlap

    def _set(self, small: str) -> tuple[str, ...]:
        return self.perturbations.get(small) or self._components[small]

    # ------------------------------------------------------------------ making one

    @classmethod
    def of_links(
        cls, links: Mapping[str, Sequence[str]], name: str = "given", *, most: int = 100, one_way: str = "symmetric"
    ) -> SynonymTable:
        """A table of given synonyms; links that go one way only are made to go both ways, or refused.

        Words that a table cannot hold are left out. In a component larger than `most` the words fewest links away are
        the nearest, in alphabetical order where they are equally far.
        """
        _check_most(most)
        found = {
            word: [other for other in dict.fromkeys(others) if other != word and is_usable(other)]
            for word, others in links.items()
            if is_usable(word)
        }
        lacking = _one_way(found)
        if lacking and one_way == "refuse":
            raise DataError(
                f"{name}: {len(lacking)} links go one way only, such as from {lacking[0][0]!r} to {lacking[0][1]!r}; "
                "add the way back, or let them be made symmetric with one_way=symmetric"
            )
        if one_way not in ("symmetric", "refuse"):
            raise UsageError(f"one_way is symmetric or refuse, not {one_way!r}")
        for word, other in lacking:
            found.setdefault(other, []).append(word)
        synonyms = {word: tuple(others) for word, others in sorted(found.items()) if others}
        large = {word for members in set(_components(synonyms).values()) if len(members) > most for word in members}
        return cls(name, synonyms, {word: _fewest_links(word, synonyms, most) for word in sorted(large)})

    @classmethod
    def read(cls, path: Path, *, most: int = 100, one_way: str = "symmetric") -> SynonymTable:
        """A table that `write` wrote, or a user's ``{"word": ["synonym", …], …}``."""
        value = read_json(path)
        if not isinstance(value, dict):
            raise DataError(f"{path} should map words to lists of synonyms, not hold a {type(value).__name__}")
        if value.get("format") == FORMAT:
            return _decoded(value, path)
        for word, others in value.items():
            if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
                raise DataError(f"{path}: the synonyms of {word!r} should be a list of words, not {others!r}")
        return cls.of_links(value, path.name, most=most, one_way=one_way)

    def write(self, path: Path) -> None:
        """Write it where `read` finds it again."""
        words = sorted({*self.synonyms, *(word for members in self.perturbations.values() for word in members)})
        place = {word: number for number, word in enumerate(words)}
        value = {
            "format": FORMAT,
            "name": self.name,
            "words": words,
            "synonyms": {
                str(place[word]): [place[other] for other in others] for word, others in self.synonyms.items()
            },
            "perturbations": {
                str(place[word]): [place[other] for other in others] for word, others in self.perturbations.items()
            },
        }
        write_atomic(path, json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n")


def _plain(sets: Sets) -> dict[str, list[str]]:
    return {word: list(others) for word, others in sets.items()}


def _decoded(value: Mapping[str, Any], path: Path) -> SynonymTable:
    try:
        words = [str(word) for word in value["words"]]
        sets = [
            {words[int(number)]: tuple(words[other] for other in others) for number, others in value[key].items()}
            for key in ("synonyms", "perturbations")
        ]
        return SynonymTable(str(value["name"]), *sets)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {type(error).__name__} {error}") from error


# ---------------------------------------------------------------------- words and cases


def is_usable(word: str) -> bool:
    """Whether a table may hold a word: letters only, small, and different in each of the three cases."""
    return (
        word.isalpha()
        and word.islower()
        and len({word, word.capitalize(), word.upper()}) == 3
        and word.capitalize().lower() == word.upper().lower() == word
        and word.capitalize().isalpha()
        and word.upper().isalpha()
    )


def case_of(word: str) -> Callable[[str], str] | None:
    """What writes a small word in the case of `word`; None where that is none of the three."""
    if word.islower():
        return str
    if word == word.lower().capitalize():
        return str.capitalize
    return str.upper if word.isupper() else None


# ---------------------------------------------------------------------- links


def _one_way(synonyms: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    known = {word: set(others) for word, others in synonyms.items()}
    return [
        (word, other) for word, others in known.items() for other in sorted(others) if word not in known.get(other, ())
    ]


def _components(synonyms: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The connected component of every word, in alphabetical order; all its words share one tuple."""
    found: dict[str, tuple[str, ...]] = {}
    for start in synonyms:
        if start in found:
            continue
        reached, front = {start}, [start]
        while front:
            for other in synonyms[front.pop()]:
                if other not in reached:
                    reached.add(other)
                    front.append(other)
        members = tuple(sorted(reached))
        found |= dict.fromkeys(members, members)
    return found


def _fewest_links(word: str, synonyms: Sets, most: int) -> tuple[str, ...]:
    near, front = [word], [word]
    known = {word}
    while front and len(near) < most:
        front = sorted({other for reached in front for other in synonyms[reached]} - known)
        known.update(front)
        near += front
    return tuple(near[:most])


def _check_most(most: int) -> None:
    if most < 2:
        raise UsageError(
            f"a perturbation set holds the word and at least one other: most must be 2 or more, not {most}"
        )


# ---------------------------------------------------------------------- from word vectors


def table_of_vectors(
    source: str = "counterfitted",
    *,
    similarity: float = 0.8,
    most: int = 100,
    components: int = 8,
    vocabulary: int = 50_000,
) -> SynonymTable:
    """SAFER's table: synonyms are words whose vectors have a cosine of at least `similarity`.

    The mean and the top `components` principal components of the vectors are removed first: they say how frequent a
    word is rather than what it means. `source` is what `load_neighbours` takes; of its words the first `vocabulary`
    that a table can hold are used (files are sorted by frequency).
    """
    if not 0 < similarity < 1:
        raise UsageError(f"similarity is a cosine between 0 and 1, not {similarity}")
    if components < 0 or vocabulary < 2:
        raise UsageError(f"components cannot be {components}, nor the vocabulary {vocabulary}")
    _check_most(most)
    return _built(source, similarity, most, components, vocabulary)


@functools.lru_cache(maxsize=4)
def _built(source: str, similarity: float, most: int, components: int, vocabulary: int) -> SynonymTable:
    from isthmus.core import assets
    from isthmus.lexicon.neighbours import load_neighbours

    neighbours = load_neighbours(source)
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
    first, second = _pairs(unit, similarity)
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
    """Unit vectors after the mean and the top principal components were removed (Mu and Viswanath, 2018)."""
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


def _pairs(unit: Any, similarity: float) -> tuple[Any, Any]:
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


# ---------------------------------------------------------------------- by name


def is_table(source: str) -> bool:
    """Whether `load_table` would take `source` and `load_neighbours` would not: SAFER's own, or a file of links."""
    return source == "safer" or table_file(source) is not None


def table_file(source: str) -> Path | None:
    """The table's file: itself, or in a model's or run's folder."""
    path = Path(source).expanduser()
    for file in (path / FILE, path / "model" / FILE):
        if file.is_file():
            return file
    return path if path.suffix == ".json" and path.is_file() else None


@functools.cache
def load_table(source: str = "safer") -> SynonymTable:
    """``safer`` (from counter-fitted vectors), ``glove``, a ``.json`` file, or the folder of a run that has one."""
    file = table_file(source)
    if file is not None:
        return SynonymTable.read(file)
    if source == "safer":
        return table_of_vectors()
    if source.endswith(".json") or (Path(source).is_dir() and not (Path(source) / "words.txt").is_file()):
        raise DataError(f"no synonym table at {source}: give a .json file, or a run trained with the defence safer")
    return table_of_vectors(source)
