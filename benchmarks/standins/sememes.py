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
    """word -> its substitutes, in the order of the table, from JSON {word: [[sememe, ...], ...]} (or .gz)."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        senses = {word: [frozenset(sense) for sense in found] for word, found in json.load(file).items()}
    sharing: dict[frozenset[str], list[str]] = defaultdict(list)
    for word, found in senses.items():
        for sense in dict.fromkeys(found):
            sharing[sense].append(word)
    place = {word: index for index, word in enumerate(senses)}
    return {
        word: sorted({other for sense in found if sense for other in sharing[sense]} - {word}, key=place.__getitem__)
        for word, found in senses.items()
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
            return [other for other in found if utils.is_one_word(other)]

    return SememeSwap
