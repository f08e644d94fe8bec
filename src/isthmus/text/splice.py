"""Sub-word ids of an edited text, spliced from cached pieces instead of tokenised again.

    ids(text) = ids(unit_1) ++ ids(unit_2) ++ … ++ ids(unit_n)

A *unit* is a stretch of text whose sub-words do not depend on its neighbours. Replacing a word changes one unit; its
ids are looked up, and nothing else of the text is looked at. Where a text may be cut depends on the tokenizer:

    bare     WordPiece after BERT's pre-tokenizer cuts around spaces and punctuation, and ignores the spaces:
             a word alone is a unit
    spaced   byte-level BPE and SentencePiece cut before spaces only: a unit is a space, what follows it, and the
             punctuation that clings to it
    whole    no cut is known to be safe: every edited text is tokenised again

`Splicer` takes the first of the three that reproduces the tokenizer on a set of probes. A text that is not plain
ASCII is compared with the tokenizer's own output before its cuts are trusted.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.core import compiled
from isthmus.core.types import Int32
from isthmus.text.subwords import SubWords, identity
from isthmus.text.vocabulary import DELETE, UNKNOWN, Vocabulary
from isthmus.text.words import SPACES, Words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SpliceMode = Literal["bare", "spaced", "whole"]

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_ASCII_SPACES = " \t\n\r"
_SPACES = re.compile(rf"[{SPACES}]+\Z")
_FIRST = "\x02"
"""Marks the first unit of a field."""

PROBES = (
    "the movie, which isn't well-known, was (almost) great!",
    'Oil prices rose 3.5% -- to $50; "sharply"... on Monday',
    "no  double   spaces ,  please . ",
    " e-mail me@example.com or call 555-0199 , ok ? it 's a director 's cut",
    "HELLO World\tTab\nnewline x",
    "unapologetically antidisestablishmentarian zzxqj qqq1zz",
)
"""Texts on which a way of cutting is tried before it is trusted."""

_PROBE_WORDS = ("a", "film", "zzq", "Don't", "re-do", "qx7", "unbelievable", "I", "s", "x y", "", "\u00e9t\u00e9")


@dataclass(frozen=True, slots=True)
class Layout:
    """The units of one field. The first unit is an empty sentinel, so that no layout is empty."""

    units: Int32  # [units] unit ids
    unit_of: Int32  # [words] the unit in which each word lies; -1: an edit of it needs the whole text tokenised
    frames: tuple[tuple[str, str] | None, ...] | None = None  # what stands before and after each word in its unit;
    # None: nothing does, for any word (the usual case, and the fast one)
    whole: bool = False  # nothing here can be spliced


class _Gaps(dict[str, int]):
    """The unit of a plain gap (DELETE for spaces only), or -1 for a gap that depends on its place."""

    def __init__(self, units: Vocabulary, separators: str) -> None:
        super().__init__({" ": DELETE, "": DELETE})
        self.units = units
        self.spaces = _ASCII_SPACES + "".join(mark for mark in separators if mark in SPACES)
        self.plain = re.compile(rf"[{_ASCII_SPACES}{_ASCII_PUNCTUATION}{separators}]*\Z")

    def __missing__(self, gap: str) -> int:
        unit = self.units.id(gap.strip(self.spaces)) if self.plain.match(gap) else -1
        self[gap] = unit
        return unit


class Splicer:
    """Cached sub-word ids of units, and the layout of texts into units, for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.identity = identity(tokenizer)
        self.subwords = SubWords(tokenizer)
        self.size = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values(), default=0))  # no id is larger
        self.separators = self.subwords.separators()
        self._bare_cut = re.compile(rf"[{SPACES}{_ASCII_PUNCTUATION}{self.separators}]")
        self.mode: SpliceMode = self._find_mode()
        self.clear(vocabulary)

    @classmethod
    def shared(cls, tokenizer: PreTrainedTokenizerBase, vocabulary: Vocabulary) -> Splicer:
        """The splicer of a vocabulary for this tokenizer, or for an equal one: words are tokenised once."""
        known: Splicer | None = vocabulary.memory.get(cls, {}).get(identity(tokenizer))
        return known or cls(tokenizer, vocabulary)

    def clear(self, vocabulary: Vocabulary) -> None:
        """Forget every unit; for a new vocabulary or mode."""
        vocabulary.memory.setdefault(Splicer, {})[self.identity] = self
        self.vocabulary = vocabulary
        # In bare mode a unit is a word: both share one numbering. Otherwise units are numbered on their own.
        self.units = vocabulary if self.mode == "bare" else Vocabulary(vocabulary.unknown)
        self._framed: dict[tuple[str, str], dict[int, int]] = {}
        self._gaps = _Gaps(self.units, self.separators)
        self.starts = np.zeros(4096, np.int64)
        self.lengths = np.zeros(4096, np.int64)
        self.tokens = np.zeros(16384, np.int32)
        self._used = 0
        self._known = 0

    # ------------------------------------------------------------------ where a text may be cut

    def layout(self, text: Words) -> Layout:
        """The units of a text."""
        if self.mode == "whole":
            return self._whole(text)
        layout = self._cut(text)
        string = str(text)
        if string.isascii() or self.ids_of(layout) == self.subwords.encode([string])[0]:
            return layout
        return self._whole(text)

    def _whole(self, text: Words) -> Layout:
        return Layout(np.zeros(1, np.int32), np.full(len(text), -1, np.int32), whole=True)

    def plain_layout(self, words: Int32, gaps: tuple[str, ...]) -> Layout | None:
        """The layout in bare mode with gaps of spaces and plain marks: every word and every gap is a unit.

        This is the usual case, and takes words that are interned already. None where a gap holds anything else.
        """
        units = self.plain_units(words, gaps)
        return None if units is None else Layout(units, every_other(len(words)))

    def plain_units(self, words: Int32, gaps: tuple[str, ...]) -> Int32 | None:
        """The units without the layout: an empty one, then gap, word, gap, …, gap."""
        if compiled.part is not None:
            found = compiled.part.units_of(words, gaps, self._gaps)
            return None if found is None else np.frombuffer(found, np.int32)
        between = list(map(self._gaps.__getitem__, gaps))
        if min(between) < 0:
            return None
        units = np.zeros(2 * len(words) + 2, np.int32)
        units[1::2], units[2::2] = between, words
        return units

    def _cut(self, text: Words) -> Layout:
        """Lay out any text: cut it wherever the mode allows, and note what surrounds each word in its unit."""
        string, spans = str(text), text.offsets()
        bounds = [0, *self._cuts(string, spans), len(string)]
        units, unit_of, frames = [DELETE], list[int](), list[tuple[str, str] | None]()
        word = 0
        for left, right in pairwise(bounds):
            first = word
            while word < len(spans) and spans[word][1] <= right:
                word += 1
            chunk = string[left:right]
            if word - first == 1:
                start, end = spans[first]
                unit_of.append(len(units))
                frames.append((self._mark(chunk[: start - left], left), chunk[end - left :]))
            else:
                unit_of += [-1] * (word - first)
                frames += [None] * (word - first)
            units.append(self.units.id(self._mark(chunk, left)))
        plain = all(frame == ("", "") for frame in frames)
        return Layout(np.array(units, np.int32), np.array(unit_of, np.int32), None if plain else tuple(frames))

    def _cuts(self, string: str, spans: Sequence[tuple[int, int]]) -> list[int]:
        # Never inside a word: an edit may have put anything there.
        outside = np.ones(len(string), bool)
        for start, end in spans:
            outside[start:end] = False
        if self.mode == "spaced":
            starts = [match.start() for match in self._spaced_cut.finditer(string)]
            return [at for at in starts if at and outside[at]]
        # Wherever a run of spaces and punctuation begins or ends.
        separates = np.zeros(len(string), bool)
        separates[[match.start() for match in self._bare_cut.finditer(string)]] = True
        separates &= outside
        return [int(at) + 1 for at in np.flatnonzero(separates[1:] != separates[:-1])]

    def _mark(self, chunk: str, left: int) -> str:
        # A field's first unit is tokenised without anything before it, which some tokenizers tell by its sub-words.
        return _FIRST + chunk if left == 0 and self.mode == "spaced" else chunk

    # ------------------------------------------------------------------ units and their ids

    def find_framed(self, frame: tuple[str, str], word: int) -> int:
        """The unit that holds `word` in `frame`, or -1 if the whole text must be tokenised."""
        table = self._framed.setdefault(frame, {})
        unit = table.get(word)
        if unit is None:
            unit = table[word] = self._make_framed(frame, word)
        return unit

    def _make_framed(self, frame: tuple[str, str], word: int) -> int:
        string = self.vocabulary.strings[word]
        before, after = frame
        if word == DELETE:
            # The space before the word goes with it; whatever else is in its unit would then touch the unit before.
            return DELETE if not after and before and _SPACES.fullmatch(before) else -1
        if self.mode == "spaced" and _SPACES.search(string):
            return -1
        if word == UNKNOWN:
            string = self.vocabulary.unknown
        return self.units.id(before + string + after)

    def flush(self) -> None:
        """Tokenise every unit without ids, all in one call."""
        known, total = self._known, len(self.units)
        if known == total:
            return
        counts, flat = self._tokenise(self.units.strings[known:total])
        if known == 0:
            # No word has no tokens; the unknown word is one, whatever the tokenizer makes of its spelling.
            first = counts[: UNKNOWN + 1].sum()
            unknown = flat[counts[DELETE] : first] if self.subwords.unknown is None else [self.subwords.unknown]
            counts[DELETE], counts[UNKNOWN] = 0, len(unknown)
            flat = np.concatenate([unknown, flat[first:]])
        self.starts = _grow(self.starts, total)
        self.lengths = _grow(self.lengths, total)
        self.tokens = _grow(self.tokens, self._used + len(flat))
        self.lengths[known:total] = counts
        self.starts[known:total] = self._used + np.cumsum(counts) - counts
        self.tokens[self._used : self._used + len(flat)] = flat
        self._used += len(flat)
        self._known = total

    def _tokenise(self, strings: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The number of tokens of each unit, and all tokens in a row."""
        if self.mode == "spaced":
            pieces = self._tokenise_spaced(strings)
            counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
            return counts, np.fromiter(chain.from_iterable(pieces), np.int64, int(counts.sum()))
        return self.subwords.count_words(strings)

    def _tokenise_spaced(self, strings: Sequence[str]) -> list[list[int]]:
        """Tokenise units that do not start a field after an anchor, whose own ids are then removed."""
        anchor = self.subwords.encode(["a"])[0]
        texts = [string[1:] if string.startswith(_FIRST) else "a" + string for string in strings]
        return [
            ids if string.startswith(_FIRST) else ids[len(anchor) :]
            for string, ids in zip(strings, self.subwords.encode(texts), strict=True)
        ]

    def ids_of(self, layout: Layout) -> list[int]:
        """The token ids of a laid-out text."""
        self.flush()
        return [
            int(token)
            for unit in layout.units
            for token in self.tokens[self.starts[unit] : self.starts[unit] + self.lengths[unit]]
        ]

    # ------------------------------------------------------------------ which mode holds

    def _find_mode(self) -> SpliceMode:
        modes: tuple[SpliceMode, ...] = ("bare", "spaced")
        for mode in modes:
            self.mode = mode
            if mode == "spaced" and not self._learn_spaces():
                continue
            self.clear(Vocabulary(self.vocabulary.unknown))
            if all(self._reproduces(probe) for probe in PROBES):
                return mode
        return "whole"

    def _learn_spaces(self) -> bool:
        spaces = self.subwords.separating_spaces()
        self._spaced_cut = re.compile(rf"(?<![{SPACES}])[{re.escape(spaces)}]" if spaces else r"(?!)")
        return " " in spaces

    def _reproduces(self, probe: str) -> bool:
        text = Words.of(probe)
        layout = self.layout(text)
        if self.ids_of(layout) != self.subwords.encode([probe])[0]:
            return False
        draw = random.Random(probe)
        for _ in range(12):
            position, word = draw.randrange(len(text)), draw.choice(_PROBE_WORDS)
            edited = text.replace({position: word}) if word else text.delete(position)
            spliced = self.splice(layout, position, word)
            if spliced is not None and spliced != self.subwords.encode([str(edited)])[0]:
                return False
        return True

    def splice(self, layout: Layout, position: int, word: str) -> list[int] | None:
        """Ids of the text with another word at one position ("" deletes it), or None where it can't be spliced."""
        unit = int(layout.unit_of[position])
        if unit < 0 or layout.whole:
            return None
        frame = layout.frames[position] if layout.frames is not None else None
        new = self.vocabulary.id(word)
        if frame is not None and (frame != ("", "") or self.mode != "bare"):
            new = self.find_framed(frame, new)
        if new < 0:
            return None
        units = layout.units.copy()
        units[unit] = new
        return self.ids_of(Layout(units, layout.unit_of))


def every_other(count: int) -> Int32:
    """2, 4, 6, …"""
    if count <= len(_EVERY_OTHER):
        return _EVERY_OTHER[:count]
    return np.arange(2, 2 * count + 2, 2, dtype=np.int32)


_EVERY_OTHER: Int32 = np.arange(2, 2050, 2, dtype=np.int32)
_EVERY_OTHER.setflags(write=False)


def _grow(array: NDArray[Any], size: int) -> NDArray[Any]:
    if size <= len(array):
        return array
    grown = np.zeros(max(size, 2 * len(array)), array.dtype)
    grown[: len(array)] = array
    return grown
