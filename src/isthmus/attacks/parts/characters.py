"""Character edits of a word: the four of DeepWordBug, and the bugs of TextBugger."""

from __future__ import annotations

import random
import string

import numpy as np

from isthmus.core import compiled
from isthmus.engine.requests import NO_EDITS, Edits, replacing_by
from isthmus.text.draft import Draft

LETTERS = string.ascii_letters


def swap(word: str, rng: random.Random) -> str:
    """Swap two neighbouring characters."""
    at = int(rng.random() * (len(word) - 1))
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def substitute(word: str, rng: random.Random) -> str:
    """Replace one character by a random letter."""
    at = int(rng.random() * len(word))
    return word[:at] + LETTERS[int(rng.random() * 52)] + word[at + 1 :]


def delete(word: str, rng: random.Random) -> str:
    """Delete one character."""
    at = int(rng.random() * len(word))
    return word[:at] + word[at + 1 :]


def insert(word: str, rng: random.Random) -> str:
    """Insert a random letter before some character."""
    at = int(rng.random() * len(word))
    return word[:at] + LETTERS[int(rng.random() * 52)] + word[at:]


EDITS = {"swap": swap, "substitute": substitute, "delete": delete, "insert": insert}


def one_of_each(word: str, rng: random.Random) -> list[str]:
    """A word of two characters or more after each of the four edits, drawn one after the other."""
    if compiled.part is not None and (found := compiled.part.misspelt(word, rng.random)) is not None:
        made: list[str] = found
        return made
    return [edit(word, rng) for edit in _EDITS]


_EDITS = tuple(EDITS.values())


def misspelling(draft: Draft, position: int, rng: random.Random) -> Edits:
    """Edits: candidate i has the i-th of the four misspellings that differ from the word and from each other."""
    vocabulary = draft.structure.vocabulary
    if compiled.part is not None:
        made = compiled.part.misspellings(draft.ids, position, vocabulary.table, vocabulary.strings, rng.random)
        if made is not None:
            return np.ndarray((len(made) // 16, 4), np.int32, made)
    word = draft.word(position)
    if len(word) < 2:
        return NO_EDITS
    words = dict.fromkeys(one_of_each(word, rng))
    words.pop(word, None)
    return replacing_by(position, list(words), vocabulary)


# ---------------------------------------------------------------------- TextBugger: first and last character stay

LOOK_ALIKES = dict(
    zip(
        "-9876543210'" + string.ascii_lowercase,
        "˗৭Ȣ𝟕бƼᏎƷᒿlO`" + "ɑЬϲԁе𝚏ɡհіϳ𝒌ⅼｍոорԛⲅѕ𝚝սѵԝ×уᴢ",
        strict=True,
    )
)
"""One look-alike for each small letter, digit, hyphen and apostrophe, as in DeepWordBug's program and TextAttack."""


def bugs(word: str, rng: random.Random) -> list[str]:
    """A space inside the word, a character left out, two swapped, each at a random place; every look-alike."""
    found = []
    if len(word) > 2:
        at = _inside(word, 1, rng)
        found.append(f"{word[:at]} {word[at:]}")
        at = _inside(word, 1, rng)
        found.append(word[:at] + word[at + 1 :])
    if len(word) > 3:
        at = _inside(word, 2, rng)
        found.append(word[:at] + word[at + 1] + word[at] + word[at + 2 :])
    for at, character in enumerate(word):
        if character in LOOK_ALIKES:
            found.append(word[:at] + LOOK_ALIKES[character] + word[at + 1 :])
    return found


def _inside(word: str, width: int, rng: random.Random) -> int:
    """Draw the start of a span of `width` characters that leaves out the first and the last character."""
    return 1 + int(rng.random() * (len(word) - 1 - width))
