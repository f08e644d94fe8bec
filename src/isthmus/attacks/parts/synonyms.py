"""Synonyms of a word, as single words in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from isthmus.text.words import Words

Synonyms = Callable[[str], Sequence[str]]


@cache
def wordnet_synonyms(folder: str | None = None) -> Synonyms:
    """WordNet's single-word lemmas of all senses of a word; `folder` holds the dictionary, by default the asset."""
    from isthmus import assets
    from isthmus.lexicon.wordnet import WordNet

    wordnet = WordNet(Path(folder) if folder is not None else assets.path("wordnet"))

    @cache
    def synonyms(word: str) -> tuple[str, ...]:
        return tuple(lemma for lemma in wordnet.synonyms(word) if "_" not in lemma and len(Words.of(lemma)) == 1)

    return synonyms
