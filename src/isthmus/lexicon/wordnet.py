"""Reads WordNet 3.0 from its dictionary files.

A part of speech has an index file (a line a lemma, with the places of its senses in sense order), a data file (a line
a synset, at the place the index names) and a list of irregular forms. Nothing is read before it is asked for. The index
is then split into lines in a tenth of a second, which pays after a few hundred words: searching the mapped file
instead costs 0.2 ms a word. The data file is mapped, and only the lines asked for are parsed.

Inflected words are brought to their lemmas by WordNet's own rules (`morphy`): the word itself, then either the base
forms in the list of irregular ones, or the endings of its part of speech taken off once; whatever of these is a lemma.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isthmus import assets
from isthmus.core.errors import AssetError, DataError

_ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}
"""Ending -> what replaces it, by part of speech; the order is the order of lookup."""


_PARTS = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}


@dataclass(frozen=True, slots=True)
class Synset:
    """One meaning: its part of speech (``n v a s r``, s = satellite adjective), its place, and its words."""

    pos: str
    offset: int
    lemmas: tuple[str, ...]
    """As spelled in the dictionary: case kept, underscores for spaces."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A link from one synset to another, or from a word of one to a word of the other."""

    symbol: str
    """``!`` antonym, ``@`` hypernym, ``&`` similar, ``+`` derived form, ``\\`` pertains to, and so on."""
    offset: int
    pos: str
    """Of the other synset: noun, verb, adj or adv."""
    source: int
    """Which word of this synset, counted from 1; 0: all of it."""
    target: int
    """Which word of the other, likewise."""


@dataclass(frozen=True, slots=True)
class WordNetEntry:
    """One line of a data file."""

    pos: str
    """noun, verb, adj or adv."""
    synset: Synset
    file: int
    """Number of the lexicographer's file: one of 45 topics."""
    pointers: tuple[Pointer, ...]


class WordNet:
    """The dictionary in a folder of ``index.* data.* *.exc`` files."""

    def __init__(self, folder: Path | str, cache: int = 200_000) -> None:
        self.folder = Path(folder)
        self._cache = cache
        self._parts = {pos: _PartOfSpeech(self.folder, pos, endings) for pos, endings in _ENDINGS.items()}
        self._cached = functools.lru_cache(maxsize=cache)(self._find_synonyms)

    def __reduce__(self) -> tuple[type[WordNet], tuple[Path, int]]:
        # Mapped files do not travel between processes; the folder does.
        return type(self), (self.folder, self._cache)

    def __repr__(self) -> str:
        return f"WordNet({str(self.folder)!r})"

    def synsets(self, word: str) -> tuple[Synset, ...]:
        """The meanings of a word in any inflection: nouns, verbs, adjectives, adverbs, each in sense order."""
        lowered = word.lower()
        return tuple(synset for part in self._parts.values() for synset in part.synsets(lowered))

    def lemmas(self, word: str) -> Iterator[tuple[str, str]]:
        """The lemmas of a word in any inflection, each with its part of speech."""
        lowered = word.lower()
        for pos, part in self._parts.items():
            yield from ((pos, lemma) for lemma in part.lemmas(lowered) if part.offsets(lemma))

    def parts_of_speech(self, word: str) -> frozenset[str]:
        """The parts of speech (noun, verb, adj, adv) under which the word is listed, in any inflection."""
        lowered = word.lower()
        return frozenset(pos for pos, part in self._parts.items() if part.knows(lowered))

    def entries(self, symbols: str) -> Iterator[WordNetEntry]:
        """Every synset with its pointers of some kinds: nouns, verbs, adjectives, adverbs, in file order."""
        for part in self._parts.values():
            yield from part.entries(symbols)

    def entry(self, pos: str, offset: int, symbols: str) -> WordNetEntry:
        """One synset with its pointers of some kinds."""
        return self._parts[pos].entry(offset, symbols)

    def places(self, pos: str, lemma: str) -> list[int]:
        """Places of the synsets of a lemma (not of an inflected form), the most frequent sense first."""
        return self._parts[pos].offsets(lemma)

    def senses(self) -> Iterator[tuple[str, str, list[int]]]:
        """Every lemma of one word as (part of speech, lemma, places of its synsets, the most frequent sense first)."""
        for pos, part in self._parts.items():
            for lemma, offsets in part.senses():
                yield pos, lemma, offsets

    def inflections(self) -> Iterator[tuple[str, str, str, bool]]:
        """Possible inflections of the lemmas of one word, as (part of speech, lemma, form, is regular).

        Most regular forms are no words: the rules are made for taking endings off.
        """
        for pos, part in self._parts.items():
            for lemma, form, regular in part.inflections():
                yield pos, lemma, form, regular

    def synonyms(self, word: str) -> tuple[str, ...]:
        """The words of all meanings of a word, in that order, each once, without the word itself."""
        return self._cached(word)

    def _find_synonyms(self, word: str) -> tuple[str, ...]:
        found = dict.fromkeys(lemma for synset in self.synsets(word) for lemma in synset.lemmas)
        return tuple(lemma for lemma in found if lemma != word)


def load_wordnet() -> WordNet:
    """Load the WordNet among the assets, once for each folder; it is fetched if missing."""
    return _open(assets.path("wordnet"))


@functools.cache
def _open(folder: Path) -> WordNet:
    return WordNet(folder)


class _PartOfSpeech:
    """The files of one part of speech."""

    def __init__(self, folder: Path, pos: str, endings: tuple[tuple[str, str], ...]) -> None:
        self._folder, self._pos, self._endings = folder, pos, endings
        for name in (f"index.{pos}", f"data.{pos}", f"{pos}.exc"):
            if not (folder / name).is_file():
                raise AssetError(f"{folder} is not a WordNet dictionary: {name} is missing")

    def synsets(self, word: str) -> Iterator[Synset]:
        for lemma in self.lemmas(word):
            for offset in self.offsets(lemma):
                yield self._synset(offset)

    def knows(self, word: str) -> bool:
        return any(lemma.encode(errors="surrogatepass") in self._index for lemma in self.lemmas(word))

    def entries(self, symbols: str) -> Iterator[WordNetEntry]:
        for line in self._data[:].decode().split("\n"):
            if line and line[0] != " ":  # the licence is indented
                yield _parse_entry(self._pos, line, symbols)

    def entry(self, offset: int, symbols: str) -> WordNetEntry:
        return _parse_entry(self._pos, self._line(offset).decode(), symbols)

    def senses(self) -> Iterator[tuple[str, list[int]]]:
        for lemma in self._index:
            if b"_" not in lemma:
                yield lemma.decode(), self.offsets(lemma.decode())

    def inflections(self) -> Iterator[tuple[str, str, bool]]:
        for form, lemmas in self._irregular.items():
            for lemma in lemmas:
                if lemma != form and lemma.encode() in self._index:
                    yield lemma, form, False
        lemmas = [lemma.decode() for lemma in self._index if b"_" not in lemma]
        for ending, base in self._endings:
            for lemma in lemmas:
                if lemma.endswith(base):
                    form = lemma[: len(lemma) - len(base)] + ending
                    if form not in self._irregular:
                        yield lemma, form, True

    def lemmas(self, word: str) -> dict[str, None]:
        if word in self._irregular:
            return dict.fromkeys((word, *self._irregular[word]))
        stems = (word[: -len(old)] + new for old, new in self._endings if word.endswith(old))
        return dict.fromkeys((word, *stems))

    def offsets(self, lemma: str) -> list[int]:
        line = self._index.get(lemma.encode(errors="surrogatepass"))
        if line is None:
            return []
        fields = line.split()
        senses, pointers = int(fields[2]), int(fields[3])
        # lemma, part, senses, pointers, one symbol a pointer, senses again, tagged senses, then the places.
        return [int(place) for place in fields[6 + pointers : 6 + pointers + senses]]

    def _synset(self, offset: int) -> Synset:
        # place (8 digits), file (2), type (1), words (2, hexadecimal), then each word with its number in hexadecimal.
        line = self._line(offset)
        count = int(line[14:16], 16)
        fields = line.split(b" ", 4 + 2 * count)
        # A word of an adjective may carry where it stands: ``galore(ip)``.
        lemmas = (name.split(b"(", 1)[0].decode() for name in fields[4 : 4 + 2 * count : 2])
        return Synset(fields[2].decode(), offset, tuple(lemmas))

    def _line(self, offset: int) -> bytes:
        line = self._data[offset : self._data.find(b"\n", offset)]
        if not line.startswith(b"%08d " % offset):
            raise DataError(f"{self._folder / f'data.{self._pos}'} has no synset at byte {offset}: is it cut off?")
        return line

    @functools.cached_property
    def _index(self) -> dict[bytes, bytes]:
        file = self._folder / f"index.{self._pos}"
        *lines, rest = file.read_bytes().split(b"\n")
        if rest:
            raise DataError(f"{file}, line {len(lines) + 1}: the file is cut off; fetch or copy the dictionary again")
        # The licence at the top is indented: its lines have no lemma before the first blank.
        return {line.partition(b" ")[0]: line for line in lines if line and not line.startswith(b" ")}

    @functools.cached_property
    def _data(self) -> mmap.mmap:
        file = self._folder / f"data.{self._pos}"
        with file.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        if content[-1:] != b"\n":
            line = content[:].count(b"\n") + 1
            raise DataError(f"{file}, line {line}: the file is cut off; fetch or copy the dictionary again")
        return content

    @functools.cached_property
    def _irregular(self) -> dict[str, list[str]]:
        lines = (self._folder / f"{self._pos}.exc").read_text(encoding="utf-8").splitlines()
        return {fields[0]: fields[1:] for fields in map(str.split, lines) if fields}


def _parse_entry(pos: str, line: str, symbols: str) -> WordNetEntry:
    # place, file, type, words (two digits, hexadecimal), the words, pointers (three digits), the pointers, the gloss.
    fields = line.split(" ")
    after = 4 + 2 * int(fields[3], 16)
    lemmas = tuple(name.split("(", 1)[0] for name in fields[4:after:2])
    last = after + 1 + 4 * int(fields[after])
    pointers = zip(*(fields[after + part : last : 4] for part in range(1, 5)), strict=True)
    chosen = (
        Pointer(symbol, int(place), _PARTS[kind], int(ends[:2], 16), int(ends[2:], 16))
        for symbol, place, kind, ends in pointers
        if symbol in symbols
    )
    return WordNetEntry(pos, Synset(fields[2], int(fields[0]), lemmas), int(fields[1]), tuple(chosen))
