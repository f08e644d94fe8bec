"""Constraints that a user adds to any attack; three presets.

`textdefender-2021` is the shared attack surface of Li et al. (2021): at most 30 % of the words, 50 candidates a word,
sentence similarity 0.84 (angular), 50 queries per word. `strict` holds to what Morris et al. (2020) found people to
accept: word vectors at a cosine of 0.9, sentences at 0.98, the part of speech kept. `meaning` lies between the two: no
opposites, negations as they were, the part of speech kept unless a word is only misspelt, and bounds chosen on
development data so that a reader still gives the text its label.

References:
    Li, Xu, Zeng, Li, Zheng, Zhang, Chang, Hsieh: Searching for an Effective Defender: Benchmarking Defense against
    Adversarial Word Substitution. EMNLP 2021.
    Morris, Lifland, Lanchantin, Ji, Qi: Reevaluating Adversarial Examples in Natural Language. Findings of EMNLP 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.meaning import KeepNegations, KindOfWord, NoAntonyms, SameContent
from isthmus.attacks.parts.rules import (
    Fluency,
    MaxEdits,
    MaxShare,
    Metric,
    MostPerWord,
    PartOfSpeech,
    SentenceMeaning,
    WordMeaning,
)
from isthmus.core.errors import UnknownName

if TYPE_CHECKING:
    from isthmus.lexicon.reading import DictionaryReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Constraints on candidates, for every attack; None sets no constraint."""

    max_share: float | None = None
    """Maximum share of changed words."""
    max_edits: int | None = None
    """Character edits between the texts."""
    most_per_word: int | None = None
    """Candidates tried for a word."""
    min_cosine: float | None = None
    """Cosine of the word vectors of old and new word."""
    same_content: bool = False
    """Whether that cosine is also asked of words that are put in, to some word of the text, or merged."""
    vectors: str = "counterfitted"
    """The word vectors."""
    part_of_speech: str | None = None
    """Tagger by which old and new word must agree: wordnet, spacy or nltk."""
    misspelling: bool = False
    """Whether a misspelling counts as the word it is read as, whatever tagger and vectors say; a word without a vector
    that is not a misspelling is then refused."""
    no_antonyms: bool = False
    """Whether words that mean the opposite are refused."""
    keep_negations: bool = False
    """Whether words that negate stay, and no others come in."""
    similarity: float | None = None
    """Sentence similarity to the original."""
    metric: Metric = "angular"
    window: int | None = None
    """Words around the edit that are compared; None: the whole text."""
    encoder: str = "minilm"
    """The sentence encoder."""
    max_drop: float | None = None
    """Loss of log-probability of a word in its place, by the masked language model."""
    masked_lm: str = "minilm"
    budget_per_word: int | None = None
    """Queries per word of the text."""

    def rules(self) -> tuple[Rule, ...]:
        """The constraints as rules."""
        rules: list[Rule] = []
        if self.most_per_word is not None:
            rules.append(MostPerWord(self.most_per_word))
        if self.max_share is not None:
            rules.append(MaxShare(self.max_share))
        if self.max_edits is not None:
            rules.append(MaxEdits(self.max_edits))
        if self.keep_negations:
            rules.append(KeepNegations(_reader()))
        if self.no_antonyms:
            from isthmus.lexicon.antonyms import load_antonyms

            rules.append(NoAntonyms(load_antonyms(), _reader()))
        if self.min_cosine is not None:
            from isthmus.lexicon.by_name import load_neighbours

            reader = _reader() if self.misspelling else None
            rules.append(WordMeaning(load_neighbours(self.vectors), self.min_cosine, reader=reader))
            if self.same_content:
                rules.append(SameContent(load_neighbours(self.vectors), self.min_cosine))
        if self.part_of_speech is not None:
            from isthmus.lexicon.tags import load_tagger

            tagger = load_tagger(self.part_of_speech)
            rules.append(KindOfWord(tagger, _reader()) if self.misspelling else PartOfSpeech(tagger))
        if self.similarity is not None:
            rules.append(SentenceMeaning(self.similarity, self.metric, self.window))
        if self.max_drop is not None:
            rules.append(Fluency(self.max_drop))
        return tuple(rules)

    def resources(self) -> Mapping[str, str]:
        """Resources that they use, by name."""
        used = {}
        if self.min_cosine is not None:
            from isthmus.lexicon.by_name import load_neighbours

            used["limits: word vectors"] = load_neighbours(self.vectors).name
        if self.part_of_speech is not None:
            used["limits: part of speech"] = self.part_of_speech
        if self.no_antonyms:
            used["limits: antonyms"] = "WordNet 3.0"
        if self.similarity is not None:
            used["limits: sentence encoder"] = self.encoder
        if self.max_drop is not None:
            used["limits: masked language model"] = self.masked_lm
        return used


def _reader() -> DictionaryReader:
    from isthmus.lexicon.reading import load_reader

    return load_reader()


PRESETS: Mapping[str, Limits] = {
    "textdefender-2021": Limits(most_per_word=50, max_share=0.3, similarity=0.84, budget_per_word=50),
    "meaning": Limits(
        max_share=0.2,
        no_antonyms=True,
        keep_negations=True,
        min_cosine=0.8,
        same_content=True,
        part_of_speech="wordnet",
        misspelling=True,
        similarity=0.88,
        metric="cosine",
    ),
    "strict": Limits(min_cosine=0.9, part_of_speech="wordnet", similarity=0.98, metric="cosine"),
}


def preset(name: str) -> Limits:
    """Constraints by name."""
    if name not in PRESETS:
        raise UnknownName("preset", name, list(PRESETS))
    return PRESETS[name]
