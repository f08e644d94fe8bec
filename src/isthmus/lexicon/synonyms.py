"""A synonym table: which words may replace each other, shared by training, attack and certificate.

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

from isthmus.core.errors import DataError, UsageError
from isthmus.core.files import read_json, write_atomic

FORMAT = 1
FILE = "synonyms.json"
"""Under this name a table lies beside the model that was trained with it."""

Sets = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class SynonymTable:
    """Synonyms and perturbation sets of lower-case words; words without synonyms are not in it."""

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
        """Eight hex digits over all content of the table that a draw or an attack can see."""
        content = json.dumps([_sets_to_json(self.synonyms), _sets_to_json(self.perturbations)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    def replacements(self, word: str) -> tuple[str, ...]:
        """S(w): the possible replacements of a word, in the word's case; the nearest first."""
        small = word.lower()
        if small not in self.synonyms:
            return ()
        case = case_of(word)
        return () if case is None else tuple(case(other) for other in self.synonyms[small])

    def draws(self, word: str) -> tuple[str, ...]:
        """P(w): the words that a smoothed classifier draws for a word, itself included, in the word's case."""
        small = word.lower()
        if small not in self.synonyms:
            return (word,)
        case = case_of(word)
        return (word,) if case is None else tuple(case(other) for other in self._set(small))

    def overlap(self, word: str) -> float:
        """q(w); 1 if the word has no replacement."""
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
        """Make a table of given synonyms; one-way links are made two-way, or refused.

        Words are taken in small letters; those that a table cannot hold are left out, and its name says how many. In a
        component larger than `most` the words fewest links away are the nearest, in alphabetical order where they are
        equally far.
        """
        check_most(most)
        small: dict[str, list[str]] = {}
        for word, others in links.items():
            small.setdefault(word.lower(), []).extend(other.lower() for other in others)
        found = {
            word: [other for other in dict.fromkeys(others) if other != word and is_usable(other)]
            for word, others in small.items()
            if is_usable(word)
        }
        every = {*small, *(other for others in small.values() for other in others)}
        unusable = sum(not is_usable(word) for word in every)
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
        if unusable:
            name = f"{name}, {unusable} word{'s' * (unusable > 1)} left out"
        large = {word for members in set(_components(synonyms).values()) if len(members) > most for word in members}
        return cls(name, synonyms, {word: _fewest_links(word, synonyms, most) for word in sorted(large)})

    @classmethod
    def read(cls, path: Path, *, most: int = 100, one_way: str = "symmetric") -> SynonymTable:
        """Read a table that `write` wrote, or a user's ``{"word": ["synonym", …], …}``."""
        value = read_json(path)
        if not isinstance(value, dict):
            raise DataError(f"{path} should map words to lists of synonyms, not hold a {type(value).__name__}")
        if value.get("format") == FORMAT:
            return _decode_table(value, path)
        for word, others in value.items():
            if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
                raise DataError(f"{path}: the synonyms of {word!r} should be a list of words, not {others!r}")
        table = cls.of_links(value, path.name, most=most, one_way=one_way)
        if value and not len(table):
            raise DataError(
                f"{path}: nothing of it can be used; it should map single words, without spaces or marks, to lists of "
                "other single words"
            )
        return table

    def write(self, path: Path) -> None:
        """Write the table to a file that `read` reads."""
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


def _sets_to_json(sets: Sets) -> dict[str, list[str]]:
    return {word: list(others) for word, others in sets.items()}


def _decode_table(value: Mapping[str, Any], path: Path) -> SynonymTable:
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
    """Whether a table may hold a word: letters only, lower case, and different in each of the three cases."""
    return (
        word.isalpha()
        and word.islower()
        and len({word, word.capitalize(), word.upper()}) == 3
        and word.capitalize().lower() == word.upper().lower() == word
        and word.capitalize().isalpha()
        and word.upper().isalpha()
    )


def case_of(word: str) -> Callable[[str], str] | None:
    """A function that writes a lower-case word in the case of `word`; None if that is none of the three cases."""
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
    """The connected component of every word, in alphabetical order; its words share one tuple."""
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


def check_most(most: int) -> None:
    """Refuse sets that cannot hold a second word."""
    if most < 2:
        raise UsageError(
            f"a perturbation set holds the word and at least one other: most must be 2 or more, not {most}"
        )
