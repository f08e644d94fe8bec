"""Parts of speech: which words may replace each other.

Three taggers. ``wordnet`` knows the parts of speech a word *can* have, and needs nothing but the dictionary; ``spacy``
tags a word on its own; ``nltk`` tags it in its text, exactly as TextAttack does (`isthmus.lexicon.perceptron`). Words
fit when they share a part of speech, or when one can be a noun and the other a verb, which English exchanges freely
("a look", "to look") and which TextFooler and TextAttack allow.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from isthmus import assets
from isthmus.core.errors import AssetError, MissingExtra, UnknownName
from isthmus.lexicon.perceptron import PerceptronTagger, find_tagger_data
from isthmus.lexicon.wordnet import WordNet, load_wordnet

__all__ = ["PerceptronTagger", "SpacyTagger", "Tagger", "WordNetTagger", "WordTagger", "load_tagger"]

_EXCHANGED = frozenset({"noun", "verb"})
_UNIVERSAL = {"NOUN": "noun", "PROPN": "noun", "VERB": "verb", "AUX": "verb", "ADJ": "adj", "ADV": "adv"}
_SPACY_MODELS = ("en_core_web_md", "en_core_web_lg", "en_core_web_sm")


@runtime_checkable
class Tagger(Protocol):
    """Decides which words may replace each other."""

    name: str
    """Shown in results."""

    def fits(self, words: Sequence[str], index: int, new: str) -> bool:
        """Whether `new` may replace the word at `index` of a text."""

    def fitting(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each of many candidates may replace the word."""


class WordTagger(ABC):
    """A tagger that looks at single words, without context."""

    name: str

    @abstractmethod
    def tags(self, word: str) -> frozenset[str]:
        """The parts of speech a word can have: noun, verb, adj, adv, or others."""

    def prefetch(self, words: Iterable[str]) -> None:
        """Tag many words at once, where that is cheaper."""
        return

    def compatible(self, a: str, b: str) -> bool:
        """Whether two words share a part of speech, or one can be a noun and the other a verb."""
        left, right = self.tags(a), self.tags(b)
        return not left.isdisjoint(right) or not (_EXCHANGED.isdisjoint(left) or _EXCHANGED.isdisjoint(right))

    def fits(self, words: Sequence[str], index: int, new: str) -> bool:
        """Whether `new` may replace the word at `index` of a text."""
        return self.compatible(words[index], new)

    def fitting(self, words: Sequence[str], index: int, candidates: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each of many candidates may replace the word."""
        self.prefetch(candidates)
        return np.array([self.compatible(words[index], new) for new in candidates], dtype=bool)


class WordNetTagger(WordTagger):
    """The parts of speech under which WordNet lists a word or a base form of it.

    A word unknown to WordNet (pronouns, names, misspellings) is ``other`` and fits only its kind. Being about what a
    word can be, this is laxer than a tagger that reads the text: "well" may replace nouns, verbs and adjectives too.
    """

    name = "WordNet 3.0, possible parts of speech"

    def __init__(self, wordnet: WordNet) -> None:
        self._wordnet = wordnet
        self._cached = functools.lru_cache(1 << 18)(self._find)

    def tags(self, word: str) -> frozenset[str]:
        """The tags of a word: any of noun, verb, adj and adv, or else other."""
        return self._cached(word.lower())

    def _find(self, word: str) -> frozenset[str]:
        return self._wordnet.parts_of_speech(word) or frozenset({"other"})


class SpacyTagger(WordTagger):
    """The tag that a spaCy pipeline gives a single word; cached per word."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._known: dict[str, frozenset[str]] = {}
        meta = pipeline.meta
        self.name = f"spaCy {meta.get('lang', '')}_{meta.get('name', '')} {meta.get('version', '')}, words alone"

    def tags(self, word: str) -> frozenset[str]:
        """The tag of a word; names are nouns, auxiliaries are verbs."""
        if word not in self._known:
            self.prefetch([word])
        return self._known[word]

    def prefetch(self, words: Iterable[str]) -> None:
        """Tag many words at once."""
        from spacy.tokens import Doc

        new = [word for word in dict.fromkeys(words) if word not in self._known]
        # As documents of one token: the tokenizer would take "don't" apart.
        documents = (Doc(self._pipeline.vocab, words=[word]) for word in new)
        for word, tagged in zip(new, self._pipeline.pipe(documents, batch_size=512), strict=True):
            found = tagged[0].pos_
            self._known[word] = frozenset({_UNIVERSAL.get(found, found.lower() or "other")})


def load_tagger(name: str = "wordnet") -> WordTagger | PerceptronTagger:
    """Load ``wordnet``, ``spacy`` or ``nltk``, once per process."""
    return _load_tagger(name)


@functools.cache
def _load_tagger(name: str) -> WordTagger | PerceptronTagger:
    if name == "wordnet":
        return WordNetTagger(load_wordnet())
    if name == "spacy":
        return SpacyTagger(_spacy_pipeline())
    if name == "nltk":
        return PerceptronTagger(find_tagger_data())
    raise UnknownName("tagger", name, ["wordnet", "spacy", "nltk"])


def _spacy_pipeline() -> Any:
    try:
        import spacy
    except ImportError as error:
        raise MissingExtra("spacy", "spacy", "the tagger 'spacy'") from error
    model = find_spacy_model()
    if model is None:
        raise AssetError(
            f"no English spaCy pipeline here: install one (`python -m spacy download {_SPACY_MODELS[0]}`), or put its "
            "folder (the one with config.cfg) at $ISTHMUS_ASSETS/spacy_en, or use the tagger 'wordnet'"
        )
    try:
        pipeline = spacy.load(model, exclude=["ner", "parser", "senter", "lemmatizer"])
    except (OSError, ValueError, KeyError) as error:
        raise AssetError(f"spaCy cannot load {model}: {str(error).splitlines()[0]}") from error
    return pipeline


def find_spacy_model() -> str | None:
    """The folder or package of an English pipeline: the user's ``spacy_en``, or an installed one."""
    own = os.environ.get("ISTHMUS_ASSETS")
    folders = [Path(place).expanduser() / "spacy_en" for place in (own, assets.cache_folder()) if place]
    found = next((str(folder) for folder in folders if (folder / "config.cfg").is_file()), None)
    return found or next((name for name in _SPACY_MODELS if importlib.util.find_spec(name) is not None), None)
