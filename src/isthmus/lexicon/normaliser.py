"""Normalises texts to what a reader sees: Unicode disguises are undone, and known words are read through leet.

    form         Unicode normal form: NFKC writes ligatures, full-width and mathematical letters as plain ones
    deletion     a backspace takes back what stands before it, or is only taken out
    invisible    characters without a shape and marks of writing direction go; swapped pairs stand as they are shown
    confusables  letters of other scripts that look Latin become Latin, in words that are otherwise Latin
    leet         digits and signs become letters where that gives a known word
    spelling     an unknown word becomes a known one that is one edit away (`isthmus.lexicon.spelling`)

The steps are repeated until nothing changes: normalised(normalised(x)) = normalised(x). Printable ASCII is touched by
leet and spelling alone, and these leave known words, numbers, addresses, hashtags, handles (unless their sign is a
letter: #uman) and, spelling, words in capitals as they are. Joiners that Indic scripts, Persian and emoji need stay
between such characters.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from isthmus.core.errors import UnknownName
from isthmus.lexicon.confusables import DELETION, HOMOGLYPHS, LEET, undo_deletions, undo_swaps
from isthmus.lexicon.spelling import Speller

Form = Literal["NFKC", "NFC", "none"]
Deletion = Literal["obey", "strip", "keep"]

_CACHED = 1 << 16
"""Chunks whose reading is remembered; an attack asks for the same ones again and again."""
_MOST_READINGS = 256
_PASSES = 16

# Format characters, control characters that are no space, fillers, variation selectors and tags.
_INVISIBLE = re.compile(
    "[\x00-\x07\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]+"
)
_JOINERS = "\u200b\u200c\u200d"
_OVERLAID = re.compile("(?<=[A-Za-z])(?:[\u0334-\u0338\u0488\u0489\u20d0-\u20f0]+|[\u0300-\u036f]{2,})")
_LETTERS = re.compile(r"[^\W_]+")
_WORD = re.compile(r"(?<![\w@$#&*+|(%])[^\W\d_]+(?:['’][^\W\d_]+)?(?![\w@$#&*+|])")
_ADDRESS = re.compile(r"(?i)\W*(?:\w+://|www\.)|\S+@\S+\.\w|\w[\w-]*(?:\.[\w-]+)*\.[a-z]{2,}/|.*\.(?:com|org|net)\b")
_NUMBER = re.compile(r"(?i)\d[\d.,:/%+-]*(?:st|nd|rd|th|s|k|m|b|bn|am|pm|x|d|g|kg|km|cm|mm|ml|mb|gb|h|hz|p)?")
_APART = re.compile(r"[^\W_]([.\-*·~_])[^\W_](?:\1[^\W_])+")

_FOLD: Mapping[str, str] = {look: letter for letter, looks in HOMOGLYPHS.items() for look in looks}
_SIGNS: Mapping[str, str] = {
    sign: "".join(letter for letter, signs in LEET.items() if sign in signs)
    for sign in dict.fromkeys(itertools.chain.from_iterable(LEET.values()))
}
_LETTERS_AT_EDGES = "$|"
"""Signs that are seldom punctuation, and so count as letters at the ends of a word too."""
_BETWEEN = re.compile(r"([-/,;]+)")


@dataclass(frozen=True)
class NormaliserSteps:
    """The steps to take."""

    form: Form = "NFKC"
    deletion: Deletion = "obey"
    invisible: bool = True
    confusables: bool = True
    leet: bool = True
    spelling: bool = False

    def __post_init__(self) -> None:
        if self.form not in get_args(Form):
            raise UnknownName("normal form", str(self.form), get_args(Form))
        if self.deletion not in get_args(Deletion):
            raise UnknownName("treatment of deletions", str(self.deletion), get_args(Deletion))


class Normaliser:
    """Normalises texts by some steps; `words` are the known words, the most frequent first."""

    def __init__(self, steps: NormaliserSteps | None = None, words: Sequence[str] = ()) -> None:
        self.steps = NormaliserSteps() if steps is None else steps
        self._rank = {word: rank for rank, word in enumerate(words)}
        self._speller = Speller(words)
        # Bound to the instance: a cache on the function would keep every normaliser alive.
        self._read_chunk = functools.lru_cache(_CACHED)(self._chunk)

    def __call__(self, text: str) -> str:
        """Normalise a text; one of invisible characters alone becomes the empty text."""
        for _ in range(_PASSES):
            before = text
            text = self.show(text)
            if self._rank and (self.steps.leet or self.steps.spelling):
                text = re.sub(r"\S+", lambda found: self._read_chunk(found[0]), text)
            if text == before:
                break
        return text

    def show(self, text: str) -> str:
        """Undo what Unicode hides; printable ASCII stays as it is."""
        if text.isascii() and text.isprintable():
            return text
        steps = self.steps
        if steps.form != "none":
            text = unicodedata.normalize(steps.form, text)
        if steps.invisible:
            text = undo_swaps(text)
        if steps.deletion == "obey":
            text = undo_deletions(text)
        if steps.deletion != "keep":
            text = text.replace(DELETION, "")
        if steps.invisible:
            text = _INVISIBLE.sub(_keep_joiners, text)
        if steps.confusables:
            text = _fold_lookalikes(text if steps.form == "none" else _OVERLAID.sub("", text))
        return text

    def _chunk(self, chunk: str) -> str:
        """Normalise a stretch without spaces; words without a known reading stay as they are."""
        if _ADDRESS.match(chunk):
            return chunk
        if self.steps.leet:
            read = self._unleet(chunk)
            if read != chunk:
                return read
        if self.steps.spelling:
            return _WORD.sub(lambda found: self._correct_spelling(found[0]), chunk)
        return chunk

    def _unleet(self, chunk: str) -> str:
        """Read the words of a chunk through leet."""
        if _APART.fullmatch(_bare(chunk)):
            first, last = _word_bounds(chunk, "")
            found = None if chunk.isupper() else self._find_known(chunk[first:last:2])
            return chunk[:first] + found + chunk[last:] if found else chunk
        return "".join(part if number % 2 else self._word(part) for number, part in enumerate(_BETWEEN.split(chunk)))

    def _word(self, part: str) -> str:
        """The known word that a word in leet stands for; signs around it may be letters of it, or punctuation.

        Digits, $ and | are letters wherever a known word comes out; the other signs only where the word is none without
        them. What begins like a handle or a hashtag is one unless the sign itself is a letter.
        """
        bare, near, wide = (_word_bounds(part, signs) for signs in ("", _LETTERS_AT_EDGES, "".join(_SIGNS)))
        if not any(letter.isalpha() for letter in part) or _NUMBER.fullmatch(part[bare[0] : bare[1]]):
            return part
        known, is_name = part[bare[0] : bare[1]].lower() in self._rank, part[0] in "@#"
        spans = [] if is_name else list(itertools.product((near[0], bare[0]), (near[1], bare[1])))
        if not known:
            starts = (wide[0],) if is_name else (wide[0], bare[0])
            spans += itertools.product(starts, (wide[1], bare[1]))
        for first, last in dict.fromkeys(spans):
            core = part[first:last]
            if core.lower() in self._rank:
                return part
            if len(core) >= 3 and any(letter in _SIGNS for letter in core) and (found := self._find_known(core)):
                return part[:first] + found + part[last:]
        return part

    def _find_known(self, core: str) -> str | None:
        """The most frequent known word that a word in leet can stand for, in its case."""
        options = [
            _SIGNS.get(letter, "") + (letter if letter.isalpha() or letter == "'" else "") for letter in core.lower()
        ]
        count = 1
        for letters in options:
            count *= len(letters)
        if not 0 < count <= _MOST_READINGS:
            return None
        readings = map("".join, itertools.product(*options))
        best = min((word for word in readings if word in self._rank), key=self._rank.__getitem__, default=None)
        return None if best is None else _in_case(best, core)

    def _correct_spelling(self, word: str) -> str:
        if word.isupper():
            return word
        found = self._speller.nearest(word.lower())
        return word if found is None else _in_case(found, word)


def find_known_words(texts: Iterable[str], steps: NormaliserSteps, *, most: int, min_count: int) -> tuple[str, ...]:
    """The words that occur at least `min_count` times in the texts as they are shown, the most frequent first."""
    reader, counts = Normaliser(steps), Counter[str]()
    for text in texts:
        shown = reader.show(text).lower()
        counts.update(_WORD.findall(shown))
        if any(letter.isdigit() for letter in shown):
            cores = map(_bare, shown.split())
            counts.update(core for core in cores if any(c.isdigit() for c in core) and any(c.isalpha() for c in core))
    ranked = sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))
    return tuple(ranked[:most])


def _word_bounds(chunk: str, signs: str) -> tuple[int, int]:
    """Start and end of the word in a chunk, if these signs may belong to it besides letters and digits."""
    first, last = 0, len(chunk)
    while first < last and not (chunk[first].isalnum() or chunk[first] in signs):
        first += 1
    while last > first and not (chunk[last - 1].isalnum() or chunk[last - 1] in signs):
        last -= 1
    return first, last


def _bare(chunk: str) -> str:
    first, last = _word_bounds(chunk, "")
    return chunk[first:last]


def _in_case(word: str, like: str) -> str:
    letters = [letter for letter in like if letter.isalpha()]
    if len(letters) > 1 and all(letter.isupper() for letter in letters):
        return word.upper()
    return word[0].upper() + word[1:] if like[0].isupper() else word


def _keep_joiners(found: re.Match[str]) -> str:
    """The part of a run of invisible characters to keep: joiners between joining characters, emoji selectors."""
    text, (start, end) = found.string, found.span()
    before = start > 0 and _joins(text[start - 1])
    after = end < len(text) and _joins(text[end])
    kept = [c for c in found[0] if (c in _JOINERS and before and after) or ("\ufe00" <= c <= "\ufe0f" and before)]
    return "".join(dict.fromkeys(kept))


def _joins(character: str) -> bool:
    """Whether a character joins its neighbours: some scripts and emoji; not Latin, Greek, Cyrillic, punctuation."""
    code = ord(character)
    return code >= 0x0590 and not 0x1E00 <= code <= 0x206F


def _fold_lookalikes(text: str) -> str:
    """Replace look-alikes by the Latin letters they resemble, in Latin words and in words of look-alikes only."""
    if text.isascii():
        return text
    letters = [character for character in text if character.isalpha()]
    latin = 2 * sum(map(_is_latin, letters)) > len(letters)

    def fold(found: re.Match[str]) -> str:
        word = found[0]
        if word.isascii():
            return word
        mixed = any(letter.isascii() and letter.isalpha() for letter in word)
        if mixed or (latin and all(letter in _FOLD or letter.isdigit() for letter in word)):
            return "".join(_FOLD.get(letter, letter) for letter in word)
        return word

    text = _LETTERS.sub(fold, text)
    return "".join(_FOLD.get(c, c) if not c.isalnum() else c for c in text)


def _is_latin(character: str) -> bool:
    code = ord(character)
    return code < 0x0250 or 0x1E00 <= code < 0x1F00
