"""A dictionary with antonyms, similar adjectives and derived words, in the files of the real one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from isthmus.lexicon.wordnet import WordNet

LICENCE = "  1 This software and database: WordNet 3.0 Copyright by Princeton.  \n"
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


class Meaning(NamedTuple):
    pos: str
    words: str
    pointers: str = ""
    """Symbol, the other meaning, and which word of each: ``! bad 1 1``; several are parted by commas."""
    satellite: bool = False


MEANINGS: Mapping[str, Meaning] = {
    "good": Meaning("adj", "good", "! bad 1 1, & superb 0 0, + goodness 1 1"),
    "bad": Meaning("adj", "bad", "! good 1 1, & awful 0 0"),
    "superb": Meaning("adj", "superb brilliant great", "& good 0 0", satellite=True),
    "awful": Meaning("adj", "awful dire terrible", "& bad 0 0", satellite=True),
    "bright": Meaning("adj", "bright brilliant", "! dim 1 1"),
    "dim": Meaning("adj", "dim dull", "! bright 1 1"),
    "witty": Meaning("adj", "witty"),
    "goodness": Meaning("noun", "goodness virtue", "+ good 1 1"),
    "movie": Meaning("noun", "movie film picture"),
    "plot": Meaning("noun", "plot plan"),
    "music": Meaning("noun", "music"),
    "mess": Meaning("noun", "mess"),
    "success": Meaning("noun", "success triumph", "+ succeed 1 1"),
    "failure": Meaning("noun", "failure", "+ fail 1 1"),
    "succeed": Meaning("verb", "succeed win", "! fail 1 1, + success 1 1"),
    "fail": Meaning("verb", "fail flunk", "! succeed 1 1, + failure 1 1"),
    "acting": Meaning("noun", "acting playing"),
    "badly": Meaning("adv", "badly", "\\ bad 1 1"),
    "well": Meaning("adv", "well superbly", "\\ good 1 1"),
    "notable": Meaning("adj", "notable"),
    "able": Meaning("adj", "able"),
    "pest": Meaning("noun", "pest"),
}
IRREGULAR = {"adj": "best good\nworst bad\nbetter good\n", "adv": "best well\n"}


def write_related(root: Path) -> WordNet:
    """The dictionary of `MEANINGS`, in a folder that exists."""
    places: dict[str, int] = {}
    for pos in LETTERS:
        place = len(LICENCE)
        for name, line in _lines(pos, dict.fromkeys(MEANINGS, 0)).items():
            places[name] = place
            place += len(line)
    for pos, letter in LETTERS.items():
        lines = _lines(pos, places)
        (root / f"data.{pos}").write_text(LICENCE + "".join(lines.values()))
        senses: dict[str, list[int]] = {}
        for name in lines:
            for word in MEANINGS[name].words.split():
                senses.setdefault(word, []).append(places[name])
        index = (
            f"{lemma} {letter} {len(own)} 1 @ {len(own)} 0 {' '.join(f'{place:08d}' for place in own)}  \n"
            for lemma, own in sorted(senses.items())
        )
        (root / f"index.{pos}").write_text(LICENCE + "".join(index))
        (root / f"{pos}.exc").write_text(IRREGULAR.get(pos, ""))
    return WordNet(root)


def _lines(pos: str, places: Mapping[str, int]) -> dict[str, str]:
    lines = {}
    for name, meaning in MEANINGS.items():
        if meaning.pos != pos:
            continue
        kind = "s" if meaning.satellite else LETTERS[pos]
        words = meaning.words.split()
        pointers = [pointer.split() for pointer in meaning.pointers.split(",") if pointer]
        told = "".join(
            f"{symbol} {places[other]:08d} {LETTERS[MEANINGS[other].pos]} {int(source):02x}{int(target):02x} "
            for symbol, other, source, target in pointers
        )
        spelled = " ".join(f"{word} 0" for word in words)
        lines[name] = f"{places[name]:08d} 00 {kind} {len(words):02x} {spelled} {len(pointers):03d} {told}| gloss  \n"
    return lines
