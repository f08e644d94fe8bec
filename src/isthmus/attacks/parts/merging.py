"""Which neighbouring words may be merged into one, by their parts of speech.

noun + noun                     adverb + adjective, verb            determiner + noun, adjective
number + number, noun           adjective + noun, number,           pronoun + noun, adjective
                                            adjective, adverb       verb + adverb, verb, noun, adjective
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.parts.speech import TaggerName

PAIRS = {
    "noun": frozenset({"noun"}),
    "adj": frozenset({"noun", "num", "adj", "adv"}),
    "adv": frozenset({"adj", "verb"}),
    "verb": frozenset({"adv", "verb", "noun", "adj"}),
    "det": frozenset({"noun", "adj"}),
    "pron": frozenset({"noun", "adj"}),
    "num": frozenset({"num", "noun"}),
}
"""Part of speech of the first word -> those of the second with which it merges."""


def mergeable(words: Sequence[str], tagger: TaggerName) -> NDArray[np.bool_]:
    """For every word but the last whether it may be merged with the next: some of their parts of speech go together."""
    if tagger == "none":
        return np.ones(max(0, len(words) - 1), bool)
    pairs = pairwise(_tags(words, tagger))
    return np.array([any(not second.isdisjoint(PAIRS.get(one, ())) for one in first) for first, second in pairs], bool)


def _tags(words: Sequence[str], tagger: TaggerName) -> list[frozenset[str]]:
    """The parts of speech of each word: one in its context, or all that it can have."""
    from isthmus.lexicon.tags import PerceptronTagger, WordNetTagger, load_tagger

    found = load_tagger(tagger)
    if isinstance(found, PerceptronTagger):
        return [frozenset({tag.lower()}) for tag in found.of_text(words)]
    if isinstance(found, WordNetTagger):
        # WordNet has no function words, and takes those for something else ("a": vitamin A).
        return [_FUNCTION_WORDS.get(word.lower()) or _number(word) or found.tags(word) for word in words]
    return [found.tags(word) for word in words]


def _number(word: str) -> frozenset[str] | None:
    return frozenset({"num"}) if word[:1].isdigit() else None


_FUNCTION_WORDS = {
    word: frozenset({tag})
    for tag, words in {
        "det": "a an the this that these those each every either neither some any no all both half another such",
        "pron": "i me my you your he him his she her it its we us our they them their who whom whose what which",
        "verb": "am is are was were be been being have has had having do does did doing can could will would shall "
        "should may might must isn't aren't wasn't weren't don't doesn't didn't can't couldn't won't wouldn't",
        "adv": "not n't very too so just now then here there when where why how again once also only even still never",
        "num": "one two three four five six seven eight nine ten eleven twelve hundred thousand million billion",
        "other": "of in on at by for with about against between into through during before after above below to from "
        "up down out off over under as like than and or but nor if because while until although though unless since s",
    }.items()
    for word in words.split()
}
