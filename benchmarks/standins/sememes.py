"""Sememe-based substitutes from a table, in the place of TextAttack's file of HowNet candidates.

Two words are substitutes of each other when they share a sense, that is, a set of sememes. The table has no parts of
speech, so none is asked for.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any


def substitutes(path: Path) -> dict[str, list[str]]:
    """word -> its substitutes, in the order of the table, from JSON {word: [[sememe, ...], ...]} (or .gz).

    Words that differ only in their case are one word, as isthmus takes them.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        table = {word: [frozenset(sense) for sense in found if sense] for word, found in json.load(file).items()}
    senses: dict[str, list[frozenset[str]]] = defaultdict(list)
    sharing: dict[frozenset[str], list[str]] = defaultdict(list)
    for word, own in table.items():
        for sense in dict.fromkeys(own):
            senses[word.lower()].append(sense)
            sharing[sense].append(word)
    place = {word: index for index, word in enumerate(table)}
    found = {word: {each for sense in own for each in sharing[sense]} for word, own in senses.items()}
    return {
        word: sorted((each for each in words if each.lower() != word), key=place.__getitem__)
        for word, words in found.items()
    }


def instead_of_hownet(path: Path) -> Any:
    """A transformation with the table's substitutes where the recipe asks for `WordSwapHowNet`."""
    from textattack.shared import utils
    from textattack.transformations import WordSwap
    from textattack.transformations.word_swaps.word_swap_hownet import recover_word_case

    table = substitutes(path)

    class SememeSwap(WordSwap):  # type: ignore[misc]
        def _get_replacement_words(self, word: str) -> list[str]:
            found = (recover_word_case(other, word) for other in table.get(word.lower(), ()))
            # What TextAttack reads back as another word ("meso-" as "meso") it cannot follow from text to text.
            return [other for other in dict.fromkeys(found) if utils.words_from_text(other) == [other]]

    return SememeSwap
