"""The part of speech an attack keeps, chosen by the name of a tagger.

A tagger that looks at words alone is asked once per pair of words, where neighbours are looked up; one that reads the
text becomes a rule for every candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.rules import PartOfSpeech

if TYPE_CHECKING:
    from isthmus.lexicon.tags import WordTagger

TaggerName = Literal["wordnet", "spacy", "nltk", "none"]


def word_tagger(name: TaggerName) -> WordTagger | None:
    """The tagger if it looks at single words; else None."""
    from isthmus.lexicon.tags import WordTagger, load_tagger

    tagger = load_tagger(name) if name != "none" else None
    return tagger if isinstance(tagger, WordTagger) else None


def contextual_rules(name: TaggerName) -> tuple[Rule, ...]:
    """The tagger as a rule, where it reads the text."""
    return () if name == "none" or word_tagger(name) is not None else all_rules(name)


def all_rules(name: TaggerName) -> tuple[Rule, ...]:
    """The tagger as a rule, for candidates that were not looked up word by word."""
    from isthmus.lexicon.tags import load_tagger

    return (PartOfSpeech(load_tagger(name)),) if name != "none" else ()


def tagger_used(name: TaggerName) -> Mapping[str, str]:
    """The tagger, for a result's list of resources."""
    from isthmus.lexicon.tags import load_tagger

    return {"part of speech": load_tagger(name).name} if name != "none" else {}
