"""Characters that look like others or are invisible: a tokenizer sees the difference, a reader does not.

Four ways to write a text that looks the same (Boucher et al.): look-alike letters of other scripts, characters without
a shape, letters that a deletion character takes back, and pairs stored in swapped order between marks of writing
direction. `skeleton` undoes all four, so that skeleton(disturbed) = skeleton(original) says the two look alike. The
fifth table, digits and signs for letters ("fr33"), is seen by the reader and read all the same.

References:
    Boucher, Shumailov, Anderson, Papernot: Bad Characters: Imperceptible NLP Attacks. IEEE S&P 2022.
    Unicode Technical Standard 39, data file of intentionally similar characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

HOMOGLYPHS: Mapping[str, tuple[str, ...]] = {
    letter: tuple(looks)
    for letter, looks in {
        "a": "\u0430\u0251",
        "b": "\u042c",
        "c": "\u0441\u03f2\u217d",
        "d": "\u0501\u217e",
        "e": "\u0435",
        "f": "\u0192",
        "g": "\u0261",
        "h": "\u04bb\u0570",
        "i": "\u0456\u2170",
        "j": "\u0458\u03f3",
        "k": "\u043a",
        "l": "\u04cf\u217c",
        "m": "\u217f",
        "n": "\u0578",
        "o": "\u043e\u03bf\u0585",
        "p": "\u0440\u03c1",
        "q": "\u051b",
        "r": "\u0433\u2c85",
        "s": "\u0455",
        "t": "\u0442",
        "u": "\u057d",
        "v": "\u0475\u03bd\u2174",
        "w": "\u051d",
        "x": "\u0445\u2179",
        "y": "\u0443\u04af",
        "z": "\u1d22",
        "A": "\u0410\u0391",
        "B": "\u0412\u0392",
        "C": "\u0421\u03f9\u216d",
        "D": "\u216e",
        "E": "\u0415\u0395",
        "G": "\u050c",
        "H": "\u041d\u0397",
        "I": "\u0406\u0399\u2160",
        "J": "\u0408",
        "K": "\u041a\u039a",
        "L": "\u216c",
        "M": "\u041c\u039c\u216f",
        "N": "\u039d",
        "O": "\u041e\u039f",
        "P": "\u0420\u03a1",
        "Q": "\u051a",
        "R": "\u13a1",
        "S": "\u0405",
        "T": "\u0422\u03a4",
        "U": "\u054d",
        "V": "\u0474\u2164",
        "W": "\u051c",
        "X": "\u0425\u03a7\u2169",
        "Y": "\u04ae\u03a5",
        "Z": "\u0396",
        "3": "\u0417",
        "6": "\u0431",
        "-": "\u2010\u2212",
        "'": "\u02b9\u2019",
        ",": "\u201a",
        ".": "\u2024",
    }.items()
}
"""Character -> those that look like it, the most alike first; Roman numerals and the like, which compatibility
normalisation (NFKC) turns back into letters, come last."""

INVISIBLE = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad")
"""Zero-width space, non-joiner, joiner, word joiner, zero-width no-break space, soft hyphen."""

DELETION = "\u0008"
"""Backspace: where a program obeys it, the character before is not shown."""

_LRO, _RLO, _PDF, _LRI, _PDI = "\u202d", "\u202e", "\u202c", "\u2066", "\u2069"
DIRECTION_MARKS = ("\u202a", "\u202b", _PDF, _LRO, _RLO, _LRI, "\u2067", "\u2068", _PDI, "\u200e", "\u200f", "\u061c")
"""Embeddings, overrides and isolates of writing direction, and the implicit marks."""

LEET: Mapping[str, tuple[str, ...]] = {
    "a": ("4", "@"),
    "b": ("8",),
    "c": ("(",),
    "e": ("3",),
    "g": ("9", "6"),
    "h": ("#",),
    "i": ("1", "!"),
    "l": ("1", "|"),
    "o": ("0",),
    "q": ("9",),
    "s": ("5", "$"),
    "t": ("7", "+"),
    "x": ("%",),
    "z": ("2",),
}
"""Letter -> digits and signs people write and read for it."""

# Without another override inside: of nested swaps the innermost is undone first.
_SWAP = re.compile(f"{_LRO}{_LRI}{_RLO}{_LRI}([^{_LRO}]*?){_PDI}{_LRI}([^{_LRO}]*?){_PDI}{_PDF}{_PDI}{_PDF}")
_DELETED = re.compile(f"[^{DELETION}]{DELETION}")


def swap(first: str, second: str) -> str:
    """A string that shows `first` before `second` but stores them the other way round."""
    return f"{_LRO}{_LRI}{_RLO}{_LRI}{second}{_PDI}{_LRI}{first}{_PDI}{_PDF}{_PDI}{_PDF}"


def undo_swaps(text: str) -> str:
    """Undo every pair of `swap`, so that the string is stored in the order shown."""
    while (shown := _SWAP.sub(r"\2\1", text)) != text:
        text = shown
    return text


def undo_deletions(text: str) -> str:
    """Remove deletion characters and the characters that they delete."""
    while (shown := _DELETED.sub("", text)) != text:
        text = shown
    return text


def skeleton(text: str) -> str:
    """The string that a reader sees: swaps and deletions undone, invisible characters removed, plain letters."""
    return undo_deletions(undo_swaps(text)).translate(_make_plain_table())


@functools.cache
def _make_plain_table() -> dict[int, str | None]:
    table: dict[int, str | None] = dict.fromkeys(map(ord, (*INVISIBLE, *DIRECTION_MARKS, DELETION)))
    for letter, looks in HOMOGLYPHS.items():
        table |= dict.fromkeys(map(ord, looks), letter)
    return table
