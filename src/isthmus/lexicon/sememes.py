"""Words of the same meaning by HowNet's sememes, the smallest units of meaning.

    w ~ w'  ⇔  some sense of w and some sense of w' have equal sets of sememes

HowNet itself is not free to ship, so a table is the user's own file (JSON, or JSON.gz), in one of three forms:

    {word: [[sememe, ...], ...]}        one set of sememes a sense; substitutes are worked out here
    {word: [word, ...]}                 substitutes, worked out already
    {word: {"noun": [word, ...], ...}}  the same by part of speech: the candidate bank TextAttack uses, as JSON

Without one, ``wordnet`` is a substitute, and is named so: of a word's first three senses in each part of speech it
takes the words of the same synset and those of its sisters (synsets under the same direct hypernym, or similar to the
same adjective, in the same lexicographer's file), as far as the sense is among the first three of the sister's word as
well; of sisters that are more than sixty, none.
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from isthmus.core.errors import DataError
from isthmus.lexicon.wordnet import WordNet, WordNetEntry, load_wordnet

_SENSES = 3
_BROAD = 60


class Sememes(Protocol):
    """Finds substitutes of a word."""

    name: str
    """What the words come from, for results."""

    def substitutes(self, word: str, pos: str | None = None) -> tuple[str, ...]:
        """Words with the same sememes as a word in any case, without itself; of one part of speech if given."""


class SememeTable:
    """Finds substitutes in a table of sememes."""

    def __init__(self, senses: Mapping[str, list[list[str]]], name: str) -> None:
        self.name = name
        self._senses: dict[str, list[frozenset[str]]] = {}
        self._words: dict[frozenset[str], dict[str, None]] = defaultdict(dict)
        for word, sets in senses.items():
            for sememes in sets:
                self._senses.setdefault(word.lower(), []).append(frozenset(sememes))
                self._words[frozenset(sememes)][word] = None

    def substitutes(self, word: str, pos: str | None = None) -> tuple[str, ...]:
        """Words with a sense of equal sememes, in the order of senses and table; parts of speech are unknown."""
        own = self._senses.get(word.lower(), ())
        found = dict.fromkeys(other for sememes in own if sememes for other in self._words[sememes])
        return tuple(other for other in found if other.lower() != word.lower())


class CandidateTable:
    """Finds substitutes in a table of substitutes."""

    def __init__(self, candidates: Mapping[str, Mapping[str, list[str]]], name: str) -> None:
        self.name = name
        self._candidates = {word.lower(): by_pos for word, by_pos in candidates.items()}

    def substitutes(self, word: str, pos: str | None = None) -> tuple[str, ...]:
        """The table's row, only of the requested part of speech if the table has parts of speech."""
        by_pos = self._candidates.get(word.lower(), {})
        chosen = by_pos if pos is None or "" in by_pos else {pos: by_pos.get(pos, [])}
        found = dict.fromkeys(other for others in chosen.values() for other in others)
        return tuple(other for other in found if other.lower() != word.lower())


class WordNetSememes:
    """Finds synonyms and sister terms in WordNet, in place of sememes."""

    name = "WordNet 3.0 synonyms and sister terms (substitute for HowNet's sememes)"

    def __init__(self, wordnet: WordNet) -> None:
        self._wordnet = wordnet
        self._cached = functools.lru_cache(1 << 16)(self._find)

    def substitutes(self, word: str, pos: str | None = None) -> tuple[str, ...]:
        """Single words, sense after sense, the word's own synset before its sisters."""
        return self._cached(word.lower(), pos)

    def _find(self, word: str, pos: str | None) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for each in ("noun", "verb", "adj", "adv"):
            if pos in (None, each):
                for place in self._wordnet.places(each, word)[:_SENSES]:
                    found |= dict.fromkeys(self._alike(self._wordnet.entry(each, place, "@&")))
        return tuple(other for other in found if other.lower() != word)

    def _alike(self, entry: WordNetEntry) -> Iterator[str]:
        yield from self._common(entry)
        for pointer in entry.pointers:
            above = self._wordnet.entry(pointer.pos, pointer.offset, "~&")
            # An adjective's head is itself one of the similar ones; a hypernym means something wider.
            if pointer.symbol == "&":
                yield from self._common(above)
            sisters = [each for each in above.pointers if each.pos == entry.pos]
            if len(sisters) <= _BROAD:
                for sister in sisters:
                    other = self._wordnet.entry(sister.pos, sister.offset, "")
                    if other.file == entry.file:
                        yield from self._common(other)

    def _common(self, entry: WordNetEntry) -> Iterator[str]:
        for lemma in entry.synset.lemmas:
            if "_" not in lemma:
                places = self._wordnet.places(entry.pos, lemma.lower())
                if entry.synset.offset in places[:_SENSES]:
                    yield lemma


def load_sememes(source: str = "wordnet") -> Sememes:
    """Load ``wordnet`` or the user's table, once per process."""
    return _load_sememes(source)


@functools.cache
def _load_sememes(source: str) -> Sememes:
    if source == "wordnet":
        return WordNetSememes(load_wordnet())
    path = Path(source).expanduser()
    table = _read_table(path)
    rows = [row for row in table.values() if row]
    if all(_is_list_of(row, list) and all(_is_list_of(sense, str) for sense in row) for row in rows):
        return SememeTable(table, f"sememes of {path}")
    if all(_is_list_of(row, str) for row in rows):
        return CandidateTable({word: {"": row} for word, row in table.items()}, f"candidates of {path}")
    if all(isinstance(row, dict) and all(_is_list_of(words, str) for words in row.values()) for row in rows):
        return CandidateTable(table, f"candidates of {path}")
    raise DataError(
        f"{path} is not a table of sememes: expected {{word: [[sememe, ...], ...]}}, {{word: [word, ...]}} or "
        '{word: {"noun": [word, ...], ...}}'
    )


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _read_table(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        table = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not valid JSON ({error.msg})") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as a table of sememes: {error}") from error
    if not isinstance(table, dict) or not table:
        raise DataError(f"{path} holds no table of words: expected a JSON object")
    return table
