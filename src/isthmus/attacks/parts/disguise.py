"""Words written with invisible characters.

A `Mark` is one such disturbance of a word. Marks of one word are put together by `disguise`, and whatever is put
together looks like the word: skeleton(disguised(word, marks)) == skeleton(word).

    invisible    a character without a shape before a letter
    homoglyph    a letter of another script that looks the same
    reorder      two letters stored the other way round, between marks of writing direction that show them in order
    delete       a letter and the backspace that takes it back

Only where a letter stands for itself: in scripts whose letters join (Arabic) or cluster (the Indic ones) a character
in between would be seen, and combining marks are never parted from their letter.
"""

from __future__ import annotations

import random
import string
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from isthmus.lexicon.confusables import DELETION, HOMOGLYPHS, INVISIBLE, swap

DisguiseKind = Literal["invisible", "homoglyph", "reorder", "delete"]


class Mark(NamedTuple):
    """One disturbance of a word: its position and its kind."""

    kind: DisguiseKind
    at: int
    text: str = ""


def disguise(word: str, marks: Sequence[Mark]) -> str:
    """Write the word with these marks; marks between two swapped letters, or that swap them again, are left out."""
    letters, before, pairs = list(word), [""] * len(word), set[int]()
    for mark in marks:
        if mark.kind == "homoglyph":
            letters[mark.at] = mark.text
        elif mark.kind == "reorder":
            if pairs.isdisjoint(range(mark.at - 1, mark.at + 2)) and not before[mark.at + 1]:
                pairs.add(mark.at)
        elif mark.at - 1 not in pairs:
            before[mark.at] += mark.text
    shown, at = list[str](), 0
    while at < len(word):
        pair = at in pairs
        shown += (before[at], swap(letters[at], letters[at + 1]) if pair else letters[at])
        at += 1 + pair
    return "".join(shown)


def marks_of(word: str, kinds: Sequence[DisguiseKind], rng: random.Random) -> Iterator[Mark]:
    """Every position of a word, disturbed in each of these ways.

    Which invisible character it is matters little to a tokenizer that keeps them, but some drop a few of them: the
    first stands everywhere, each of the others at one random place.
    """
    places = [at for at in range(len(word)) if _stands_alone(word, at)]
    if not places:
        return
    if "invisible" in kinds:
        yield from (Mark("invisible", at, INVISIBLE[0]) for at in places)
        yield from (Mark("invisible", places[int(rng.random() * len(places))], other) for other in INVISIBLE[1:])
    if "homoglyph" in kinds:
        yield from (Mark("homoglyph", at, HOMOGLYPHS[word[at]][0]) for at in places if word[at] in HOMOGLYPHS)
    if "reorder" in kinds:
        yield from (Mark("reorder", at) for at in places if at + 1 in places and _left_to_right(word[at : at + 2]))
    if "delete" in kinds:
        yield from (Mark("delete", at, string.ascii_lowercase[int(rng.random() * 26)] + DELETION) for at in places)


def _stands_alone(word: str, at: int) -> bool:
    """Whether a mark before this character, or in its place, is invisible."""
    around = (word[at - 1] if at else "", word[at], word[at + 1 : at + 2])
    return not _is_mark(around[1]) and not _is_mark(around[2]) and all(map(_is_simple, filter(None, around)))


def _is_mark(character: str) -> bool:
    return bool(character) and unicodedata.category(character).startswith("M")


def _is_simple(character: str) -> bool:
    """Whether a character is Latin, Greek, Cyrillic or Armenian, or a mark that these scripts use."""
    code = ord(character)
    return code < 0x0590 or 0x1E00 <= code < 0x2000


def _left_to_right(characters: str) -> bool:
    return all(unicodedata.bidirectional(character) == "L" for character in characters)
