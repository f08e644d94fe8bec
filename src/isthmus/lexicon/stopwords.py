"""English stop words: the 179 of the NLTK stop-word corpus (Porter et al.), shipped with the package."""

from __future__ import annotations

import functools
from importlib import resources

from isthmus.core.errors import UnknownName


@functools.cache
def stop_words(language: str = "english") -> frozenset[str]:
    """The stop words of a language, lower-cased."""
    if language != "english":
        raise UnknownName("stop-word list", language, ["english"])
    text = resources.files(__package__).joinpath(f"stopwords_{language}.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
