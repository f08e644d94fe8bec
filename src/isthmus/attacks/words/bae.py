"""BAE: replace or insert words that a masked language model proposes (Garg and Ramakrishnan, 2020)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.blanks import join_edits, propose_fills
from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.rules import SentenceMeaning
from isthmus.attacks.parts.searches import DELETE, Search, by_importance, find_proposed, greedy, step
from isthmus.attacks.parts.speech import TaggerName, all_rules, tagger_used
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.engine.requests import INSERT, Edits, Request
from isthmus.lexicon.stopwords import stop_words

BAEMode = Literal["replace", "insert", "replace_or_insert", "replace_and_insert"]
Proposals = Generator[Request, Any, Edits]


@dataclass(frozen=True, kw_only=True)
class BAE(WordAttack):
    """Replace words, or insert words beside them, by what a masked language model finds likely there.

        importance(i) = 1 - p(y | x without x_i)
        replace       candidates(i) = top 50 of  p(w | x_1 … x_{i-1} [blank] x_{i+1} … x_n)
        insert        candidates(i) = top 50 of  p(w | … x_{i-1} [blank] x_i …)  and of  p(w | … x_i [blank] x_{i+1} …)

    that keep the part of speech (replacements only) and the meaning of the 15 words around them. Word by word the best
    candidate is taken if it lowers p(y); of those that flip the label the most similar one.

    References:
        Garg, Ramakrishnan: BAE: BERT-based Adversarial Examples for Text Classification. EMNLP 2020.

    Where we depart:
        `textattack` follows TextAttack 0.3.11, which knows only BAE-R: pieces of words are taken for words, and the
        cosine to the original must be 0.936338 (the paper's 0.8, turned into an angle and then not used as one).
        Special and unused tokens of the model are never put in. Its part of speech is part_of_speech=nltk. By rounding
        TextAttack takes a change of case now and then that an uncased victim cannot see; ours has equal scores there.
        `paper` has the four modes (R, I, R/I, R+I), whole words only, and a cosine of 0.8 to the text before. A text is
        kept only if it lowers p(y), where the paper's algorithm takes the best of the step in any case. To the right
        of a word means before the next one, so that nothing is appended to a text.
        The small model `minilm` stands in for bert-base-uncased.

    Relations:
        CLARE also merges words and looks at all places in every step; BERT-Attack proposes without a blank; TextFooler
        takes neighbours by word vectors.

    Example:
        ``isthmus attack runs/demo --attack bae -P semantics=paper -P mode=replace_or_insert``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the paper's."""
    mode: BAEMode = "replace"
    """The paper's R, I, R/I or R+I: replace, insert, or both; `textattack` semantics only replace."""
    most: int = 50
    """Maximum number of candidates for a blank."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may replace each other: wordnet, spacy, nltk, or none."""
    similarity: float | None = None
    """Minimum cosine of the sentences; by default 0.936338, in `paper` semantics 0.8."""
    window: int | None = 15
    """Words around the edit that are compared; None: the whole text."""
    encoder: str = "minilm"
    """Sentence encoder."""
    masked_lm: str = "minilm"
    """Masked language model."""

    def __post_init__(self) -> None:
        if self.semantics == "textattack" and self.mode != "replace":
            raise UsageError(f"TextAttack's BAE only replaces words: mode={self.mode} needs semantics=paper")

    def resources(self) -> Mapping[str, str]:
        """Language model, tagger and encoder."""
        return {
            "masked language model": f"{self.masked_lm} (in place of bert-base-uncased)",
            **tagger_used(self.part_of_speech),
            "sentence encoder": f"{self.encoder} (in place of the Universal Sentence Encoder)",
        }

    def rules(self) -> tuple[Rule, ...]:
        """The part of speech, and the meaning of the sentence."""
        paper = self.semantics == "paper"
        least = self.similarity if self.similarity is not None else 0.8 if paper else 0.936338023
        meaning = SentenceMeaning(least, "cosine", self.window, "previous" if paper else "original")
        return (*all_rules(self.part_of_speech), meaning)

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    def search(self, trial: Trial) -> Search:
        """Rank the words, then go through them in that order."""
        order = yield from by_importance(trial, trial.positions(stop_words()), DELETE)
        if self.semantics == "textattack":
            yield from greedy(trial, order, self.replacements)
            return
        for position in order:
            for propose in self._proposals():
                place = trial.place(position)
                assert place is not None  # Nothing is ever deleted here.
                candidates = yield from find_proposed(trial, trial.draft, propose(trial, place))
                if (yield from step(trial, candidates)):
                    return

    def replacements(self, trial: Trial, place: int) -> Proposals:
        """Words for the blank in place of a word."""
        strip = self.semantics == "textattack"
        return propose_fills(trial.draft, np.array([place], np.int32), most=self.most, strip=strip)

    def insertions(self, trial: Trial, place: int) -> Proposals:
        """Words for the blanks on either side of a word."""
        draft = trial.draft
        last = place + 1 in draft.structure.starts
        places = np.array([place] if last else [place, place + 1], np.int32)
        return propose_fills(draft, places, span=INSERT, most=self.most, strip=False)

    def either(self, trial: Trial, place: int) -> Proposals:
        """Replacements and insertions."""
        replacements = yield from self.replacements(trial, place)
        insertions = yield from self.insertions(trial, place)
        return join_edits(replacements, insertions)

    def _proposals(self) -> tuple[Any, ...]:
        """The kinds of edits that are proposed for a word, one step after the other."""
        return {
            "replace": (self.replacements,),
            "insert": (self.insertions,),
            "replace_or_insert": (self.either,),
            "replace_and_insert": (self.replacements, self.insertions),
        }[self.mode]
