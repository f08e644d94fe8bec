"""English stop words, shipped with the package: attacks do not change them.

english       the 179 of the NLTK stop-word corpus (Porter et al.)
textfooler    the 266 of TextFooler's authors: more adverbs and prepositions, but not "be", "do" and "have"
"""

from __future__ import annotations

import functools
from importlib import resources

from isthmus.core.errors import UnknownName

_LISTS = ("english", "textfooler")


@functools.cache
def stop_words(name: str = "english") -> frozenset[str]:
    """A list of stop words, lower-cased."""
    if name not in _LISTS:
        raise UnknownName("stop-word list", name, list(_LISTS))
    text = resources.files(__package__).joinpath(f"stopwords_{name}.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


def is_function_word(word: str) -> bool:
    """Whether a word is on one of the lists."""
    word = word.lower()
    return any(word in stop_words(name) for name in _LISTS)
