"""English words that negate: to remove, add or exchange one reverses the meaning of a sentence."""

from __future__ import annotations

_NEGATIONS = frozenset({
    "no", "not", "n't", "nt", "non", "nope", "nay", "never", "nor", "none", "nobody", "nothing", "nowhere", "neither",
    "without", "cannot", "hardly", "barely", "scarcely", "rarely", "seldom",
})  # fmt: skip
# What is left of a contraction where the text writes its apostrophe with a sign that ends a word ("isn\u2019t"). "Won"
# and "can" are words of their own.
_CUT = frozenset({
    "ain", "aren", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn", "mightn", "mustn", "needn", "shan",
    "shouldn", "wasn", "weren", "wouldn",
})  # fmt: skip


def is_negation(word: str) -> bool:
    """Whether a word negates: it is on the list, or a contraction with n't."""
    word = word.lower().replace("\u2019", "'")
    return word in _NEGATIONS or word in _CUT or word.endswith("n't")
