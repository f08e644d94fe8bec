"""A text as words and the exact gaps between them.

    str(Words.of(text)) == text            for every text, to the last byte

A word starts and ends with a letter or a digit and may contain apostrophes, hyphens, underscores, asterisks and at
signs (``don't``, ``well-known``); everything else (spaces, punctuation, emoji) lies in the gaps and is never changed by
an edit of a word. The rule is the one of the standard toolkit, so that word positions agree with its positions, widened
by combining marks, without which a word of Hindi or of vocalised Arabic would fall apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from isthmus.core.types import Example

# Combining marks and joiners that continue a word, which `\w` leaves out. The Indic blocks are taken whole, less the
# two dandas that end a sentence there.
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1-\u05c2\u05c4-\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e4\u06e7-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
)
SPACES = " \t\n\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""What every tokenizer family treats as a space; the control characters that `str.isspace` adds are not among them."""

_WORD = re.compile(rf"([^\W_](?:[\w'\-*@{_MARKS}]*(?:[^\W_]|[{_MARKS}]))?)")
# The same for plain ASCII, where a small character class is twice as fast.
_ASCII_WORD = re.compile(r"([A-Za-z0-9]+(?:[_'\-*@]+[A-Za-z0-9]+)*)")


def split(text: str) -> list[str]:
    """Split a text into gap, word, gap, …, word, gap."""
    return (_ASCII_WORD if text.isascii() else _WORD).split(text)


@dataclass(frozen=True, slots=True)
class Words:
    """An immutable text: ``gaps[0] words[0] gaps[1] … words[-1] gaps[-1]``."""

    words: tuple[str, ...]
    gaps: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """Split a text; nothing is lost."""
        pieces = split(text)
        return cls(tuple(pieces[1::2]), tuple(pieces[::2]))

    def __str__(self) -> str:
        return "".join(self.pieces())

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, position: int) -> str:
        return self.words[position]

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def offsets(self) -> tuple[tuple[int, int], ...]:
        """Start and end of every word in the text."""
        ends = list(accumulate(map(len, self.pieces())))
        return tuple(zip(ends[:-1:2], ends[1::2], strict=True))

    def pieces(self) -> list[str]:
        """Gap, word, gap, …, word, gap."""
        pieces = [""] * (len(self.words) + len(self.gaps))
        pieces[::2], pieces[1::2] = self.gaps, self.words
        return pieces

    def replace(self, replacements: Mapping[int, str]) -> Self:
        """The text with other words at the given positions."""
        words = list(self.words)
        for position, word in replacements.items():
            words[position] = word
        return type(self)(tuple(words), self.gaps)

    def insert(self, position: int, word: str) -> Self:
        """The text with a new word before the word at `position`, separated by a space."""
        words = (*self.words[:position], word, *self.words[position:])
        return type(self)(words, (*self.gaps[: position + 1], " ", *self.gaps[position + 1 :]))

    def append(self, word: str) -> Self:
        """The text with a new word at the end, separated by a space."""
        last = self.gaps[-1]
        between = last if last.endswith(tuple(SPACES)) or not str(self) else last + " "
        return type(self)((*self.words, word), (*self.gaps[:-1], between, ""))

    def prepend(self, word: str) -> Self:
        """The text with a new word at the beginning, separated by a space."""
        first = self.gaps[0]
        between = first if first.startswith(tuple(SPACES)) or not str(self) else " " + first
        return type(self)((word, *self.words), ("", between, *self.gaps[1:]))

    def merge(self, position: int, word: str) -> Self:
        """The text with one word in place of those at `position` and `position + 1`; punctuation between them stays."""
        return self.replace({position: word}).delete(position + 1)

    def delete(self, position: int) -> Self:
        """The text without a word and the space before it (after it, if it is the first)."""
        between = close_gap(self.gaps[position], self.gaps[position + 1], first=not position)
        words = self.words[:position] + self.words[position + 1 :]
        return type(self)(words, (*self.gaps[:position], between, *self.gaps[position + 2 :]))


def close_gap(before: str, after: str, *, first: bool) -> str:
    """The gap that replaces a deleted word and the gaps before and after it."""
    if before.endswith(tuple(SPACES)):
        return before.rstrip(SPACES) + after
    return before + (after.lstrip(SPACES) if first else after)


def has_words(example: Example) -> bool:
    """Whether any field of an example has a word."""
    return any(len(Words.of(text)) for text in example.texts.values())
