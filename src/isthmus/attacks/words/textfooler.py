"""TextFooler: replace important words by neighbours in a word-vector space (Jin et al., 2020)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.rules import SentenceMeaning
from isthmus.attacks.parts.searches import DELETE, Search, by_importance, find_proposed, greedy, step
from isthmus.attacks.parts.speech import TaggerName, contextual_rules, tagger_used, word_tagger
from isthmus.attacks.parts.trial import Trial
from isthmus.engine.requests import Request, Score, at_each
from isthmus.lexicon.stopwords import stop_words


@dataclass(frozen=True, kw_only=True)
class TextFooler(WordAttack):
    """Replace words in the order of their importance, each by the neighbour that lowers the score most.

        importance(i)  textattack   1 - p(y | x without x_i)
                       paper        p(y | x) - p(y | x without x_i), and where that makes the prediction z instead
                                    of y also + p(z | x without x_i) - p(z | x)
        candidates(i) = { w of the 50 nearest words of x_i :  cos(w, x_i) >= 0.5 (paper: 0.7),
                          part of speech kept,  1 - angle(v(x'), v(x)) / pi >= 0.84 }

    where v is a sentence encoder and x, x' are the text before and after the replacement, 15 words around it. The best
    candidate is taken if it lowers p(y). Once some candidate flips the label, the most similar of those that do is the
    result: similar to the text before (textattack), or to the original text as a whole (paper).

    References:
        Jin, Jin, Zhou, Szolovits: Is BERT Really Robust? A Strong Baseline for Natural Language Attack on Text
        Classification and Entailment. AAAI 2020.

    Where we depart:
        `textattack` follows TextAttack 0.3.11. Its part of speech is that of NLTK in context (part_of_speech=nltk); the
        default asks WordNet which parts of speech the two words can have, which needs no tagger and is laxer.
        `paper` is the paper's Algorithm 1. The authors' program differs: it ranks by putting in an unknown word, asks
        the model before it filters, takes whatever lies below the *first* probability, and sets the word cosine to 0.5.
        The paper gives no number for the sentences: the program's 1 - angle >= 0.5 is our 0.840845.
        Both use the authors' stop words, leave texts shorter than the window to the other rules, and freeze the
        premise. The sentence encoder stands in for the Universal Sentence Encoder.

    Relations:
        BAE asks a masked language model for words instead; PWWS a thesaurus; Random draws from the same neighbours
        blindly, which tells how much the search is worth.

    Example:
        ``isthmus attack runs/demo --attack textfooler -P part_of_speech=nltk``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the paper's."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 50
    """Maximum number of neighbours per word."""
    min_cosine: float | None = None
    """Minimum cosine of two words' vectors; by default 0.5, in `paper` semantics 0.7."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may replace each other: wordnet, spacy, nltk, or none."""
    similarity: float = 0.840845057
    """Minimum similarity of the sentences, as 1 - angle / pi."""
    window: int | None = 15
    """Words around the edit that are compared; None: the whole text."""
    encoder: str = "minilm"
    """Sentence encoder."""

    def resources(self) -> Mapping[str, str]:
        """Vectors, tagger and encoder."""
        return {
            "word vectors": self.near.neighbours.name,
            **tagger_used(self.part_of_speech),
            "sentence encoder": f"{self.encoder} (in place of the Universal Sentence Encoder)",
        }

    def rules(self) -> tuple[Rule, ...]:
        """The part of speech where it takes context, and the meaning of the sentence."""
        meaning = SentenceMeaning(self.similarity, "angular", self.window, against="previous")
        return (*contextual_rules(self.part_of_speech), meaning)

    @cached_property
    def near(self) -> NearWords:
        """The neighbours that may be inserted."""
        usual = 0.7 if self.semantics == "paper" else 0.5
        least = usual if self.min_cosine is None else self.min_cosine
        return NearWords(self.neighbours, self.most, least, tagger=word_tagger(self.part_of_speech))

    def search(self, trial: Trial) -> Search:
        """Rank the words, then replace them in that order."""
        self.near.prefetch(trial.draft)
        if self.semantics == "textattack":
            order = yield from by_importance(trial, trial.positions(stop_words("textfooler")), DELETE)
            yield from greedy(trial, order, self.near.edits)
            return
        for position in (yield from _by_importance_with_flips(trial)):
            candidates = yield from find_proposed(trial, trial.draft, self.near.edits(trial, position))
            if (yield from step(trial, candidates)):
                return


def _by_importance_with_flips(trial: Trial) -> Generator[Request, Any, list[int]]:
    """Positions by the paper's importance; like the paper, it asks about stop words too and then drops them."""
    positions, chosen = trial.positions(), set(trial.positions(stop_words("textfooler")).tolist())
    if not chosen:
        return []
    scores = yield Score(trial.draft, at_each(positions, DELETE), len(positions))
    importance = trial.judge(scores) - trial.progress
    before, after = int(trial.scores.argmax()), scores.argmax(axis=1)
    rows = np.arange(len(scores))
    importance += np.where(after != before, scores[rows, after] - trial.scores[after], 0)
    return [at for at in positions[np.argsort(-importance, kind="stable")].tolist() if at in chosen]
