"""Random: random substitution of words by their neighbours, the baseline that every search must beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.candidates import Candidates, Rule, find_allowed
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.rules import SentenceMeaning
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.speech import TaggerName, contextual_rules, tagger_used, word_tagger
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.engine.requests import REPLACE, Edits
from isthmus.lexicon.stopwords import stop_words


@dataclass(frozen=True, kw_only=True)
class Random(WordAttack):
    """Replace random words by random neighbours until the label changes.

        walk     x_0 = x;  x_{t+1} = x_t with a random word that is still the original's replaced by a random
                 neighbour that satisfies the rules;  when no word is left, a new walk starts from x
        tries    effort * sum over the words of (1 + neighbours of the word)

    At every step it draws and scores several such texts and moves to any one of them. It looks only at whether the goal
    is reached: what a greedy search gains over it is gained by looking at probabilities. It may draw as often as
    TextFooler would query if it went through the whole text in vain; a draw that the rules forbid costs a try but no
    query.

    References:
        None: a control. Substitution that comes near a greedy search is a sign of a broken search, or of scores that
        tell nothing, as in: Carlini et al.: On Evaluating Adversarial Robustness. 2019.

    Where we depart:
        Nothing is departed from. Neighbours, part of speech and the similarity of sentences are TextFooler's, of each
        step to the text before, and so are the stop words. Where it fails, the text that came furthest is shown.

    Relations:
        TextFooler searches the same space by importance and probability.

    Example:
        ``isthmus attack runs/demo --attack random --n 500``
    """

    effort: float = 1.0
    """Number of tries, as a multiple of the queries of a greedy search through the whole text."""
    draws: int = 8
    """Number of texts drawn at every step."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 50
    """Maximum number of neighbours per word."""
    min_cosine: float = 0.5
    """Minimum cosine of two words' vectors."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may replace each other: wordnet, spacy, nltk, or none."""
    similarity: float = 0.840845057
    """Minimum similarity of the sentences, as 1 - angle / pi."""
    window: int | None = 15
    """Words around the edit that are compared; None: the whole text."""
    encoder: str = "minilm"
    """Sentence encoder."""

    def __post_init__(self) -> None:
        if self.effort <= 0:
            raise UsageError(f"effort must be more than 0, not {self.effort}")
        if self.draws < 1:
            raise UsageError(f"draws must be at least 1, not {self.draws}")

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
        return NearWords(self.neighbours, self.most, self.min_cosine, tagger=word_tagger(self.part_of_speech))

    def search(self, trial: Trial) -> Search:
        """Continue until the goal is reached or the tries are used up."""
        self.near.prefetch(trial.original)
        positions = trial.positions(stop_words("textfooler"))
        choices = {at: self.near.words(trial, int(trial.original.ids[at])) for at in positions.tolist()}
        tries = max(1, round(self.effort * sum(1 + len(words) for words in choices.values())))
        order = [at for at, words in choices.items() if len(words)]
        draft, left = trial.original, order.copy()
        while tries > 0 and order:
            drawn = min(self.draws, tries)
            tries -= drawn
            candidates = yield from find_allowed(
                trial, Candidates(draft, _draw_replacements(trial, left, choices, drawn))
            )
            if not candidates.count:
                continue
            scores = yield candidates.score()
            progress = trial.judge(scores)
            reached = np.asarray(trial.goal.is_reached(scores, trial.label))
            best = int(reached.argmax()) if reached.any() else int(progress.argmax())
            if reached[best] or progress[best] > trial.progress:
                trial.accept(candidates.draft(best), scores[best], float(progress[best]))
            if reached[best]:
                return
            chosen = int(trial.rng.random() * candidates.count)
            draft = candidates.draft(chosen)
            left.remove(int(candidates.edits[chosen, 1]))
            if not left:
                draft, left = trial.original, order.copy()


def _draw_replacements(
    trial: Trial, left: Sequence[int], choices: Mapping[int, NDArray[np.int32]], count: int
) -> Edits:
    """Draw `count` random replacements of the remaining words; equal ones are kept once."""
    random, drawn = trial.rng.random, dict[tuple[int, int], None]()
    for _ in range(count):
        at = left[int(random() * len(left))]
        drawn[at, int(choices[at][int(random() * len(choices[at]))])] = None
    return np.array([(number, at, REPLACE, word) for number, (at, word) in enumerate(drawn)], np.int32)
