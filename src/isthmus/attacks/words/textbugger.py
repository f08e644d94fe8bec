"""TextBugger: misspell important words, or replace them by close neighbours (Li et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.characters import bugs
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.rules import ALL_WORDS, SentenceMeaning
from isthmus.attacks.parts.searches import DELETE, Search, by_gradient, by_importance, greedy
from isthmus.attacks.parts.trial import Trial
from isthmus.engine.requests import Edits, replacing
from isthmus.lexicon.stopwords import stop_words

Importance = Literal["delete", "gradient"]


@dataclass(frozen=True, kw_only=True)
class TextBugger(WordAttack):
    """Write important words with a bug, or as one of their nearest neighbours, whichever lowers the score most.

        importance(i)   delete     1 - p(y | x without x_i)
                        gradient   | mean over the tokens of x_i of  d loss / d embedding |_1          (white box)
        bugs            a space inside the word, a character left out, two swapped (one random place each, never the
                        first or last character), every character that has a look-alike, the 5 nearest words
        kept            1 - angle(v(x'), v(x)) / pi >= 0.8 for the whole texts, v a sentence encoder

    Word by word the best candidate is taken if it lowers p(y); of those that flip the label the most similar one.

    References:
        Li, Ji, Du, Li, Wang: TextBugger: Generating Adversarial Text Against Real-world Applications. NDSS 2019.

    Where we depart:
        The algorithm is TextAttack's (0.3.11); the paper also substitutes neighbouring keys, and ranks whole sentences
        of long documents first. Its random numbers are not ours, so single results differ and rates agree. A word that
        was split by a space counts as one word, where TextAttack counts two and from then on edits the word *before*
        the one it ranked.
        The sentence encoder stands in for the Universal Sentence Encoder.

    Relations:
        DeepWordBug misspells only, within an edit distance; TextFooler replaces by neighbours only, more of them.

    Example:
        ``isthmus attack runs/demo --attack textbugger -P importance=gradient``
    """

    importance: Importance = "delete"
    """How words are ranked: by leaving them out, or by the victim's gradient (white box)."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 5
    """Maximum number of neighbours per word."""
    similarity: float = 0.8
    """Minimum similarity of the texts, as 1 - angle / pi."""
    encoder: str = "minilm"
    """Sentence encoder."""

    def resources(self) -> Mapping[str, str]:
        """Vectors and encoder."""
        return {
            "word vectors": self.near.neighbours.name,
            "sentence encoder": f"{self.encoder} (in place of the Universal Sentence Encoder)",
        }

    def rules(self) -> tuple[Rule, ...]:
        """The meaning of the text."""
        return (SentenceMeaning(self.similarity, "angular", ALL_WORDS, skip_short=False),)

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return ()

    @cached_property
    def near(self) -> NearWords:
        """The neighbours that may be inserted."""
        return NearWords(self.neighbours, self.most)

    def search(self, trial: Trial) -> Search:
        """Rank the words, then misspell them in that order."""
        self.near.prefetch(trial.draft)
        positions = trial.positions(stop_words())
        if self.importance == "gradient":
            order = yield from by_gradient(trial, positions)
        else:
            order = yield from by_importance(trial, positions, DELETE)
        yield from greedy(trial, order, self.write_bugs)

    def write_bugs(self, trial: Trial, position: int) -> Edits:
        """The word with each bug, and its neighbours."""
        word = trial.draft.word(position)
        words = dict.fromkeys((*bugs(word, trial.rng), *self.near.strings(word)))
        words.pop(word, None)
        return replacing(position, trial.vocabulary.ids(words))
