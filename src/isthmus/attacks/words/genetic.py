"""Genetic: genetic search over near words (Alzantot et al., 2018)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.members import Substitutes, most_per_word
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.population import Breeding, Evolution, Parents, Population
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Doubles, Int32
from isthmus.engine.requests import Likelihood, Request
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.stopwords import stop_words

_WITHIN_REACH = 50
"""Neighbours that the authors' code looks at to count those within the distance."""


@dataclass(frozen=True, kw_only=True)
class Genetic(WordAttack):
    """Evolve texts in which words are replaced by near ones, each word once, until one of them fools the victim.

        first     each member: the original with one word mutated
        parents   drawn with p ∝ exp(-score / T)  (textattack),  exp(+score / T)  (paper)
        child     every word from one parent or the other, by a coin; then mutated
        mutate    draw a word with p ∝ number of its neighbours; put in the neighbour that helps most, if one helps

    with score = 1 - p(y), T the temperature. Neighbours are the `most` nearest word vectors at a squared distance
    of at most `max_distance`; of these a language model keeps the `most_likely`. The best member lives on.

    `textattack` gives words without neighbours a weight of one, and draws again, once for every word of the text, where
    nothing helped. `paper` draws once, and only among words that have neighbours and were not replaced yet.

    References:
        Alzantot, Sharma, Elgohary, Ho, Srivastava, Chang: Generating Natural Language Adversarial Examples. EMNLP 2018.

    Where we depart:
        The language model is a masked one, in the place of one that was trained on a billion words, and reads the
        original text, as Jia et al. (2019) have it: the replacements of a word then do not depend on what else was
        replaced. TextAttack's recipe without its language model is `masked_lm=None`.
        TextAttack does not hold the children of a crossover to the share of words, so that its results may change more
        than a fifth; `textattack` follows it unless `check_children` is set, `paper` holds all.
        TextAttack and the authors never look at the children of the last generation; they are not bred here.
        Queries are counted as TextAttack does, repeated texts included. Stop words are left alone in both.
        In `paper` any member that reaches the goal ends the search, in `textattack` only the one with the best score;
        with two classes that is the same.

    Relations:
        IGA may replace a word several times and starts from the best swap of every word. PSO moves particles instead.
        Greedy searches (TextFooler, PWWS) need far fewer queries.

    Example:
        ``isthmus attack runs/demo --attack genetic -P masked_lm=none -P population=30``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the paper's."""
    population: int = 60
    """Number of members of a generation."""
    generations: int = 20
    """Maximum number of generations."""
    temperature: float = 0.3
    """Temperature of the draw of parents."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 8
    """Maximum number of neighbours per word."""
    most_likely: int = 4
    """Number of neighbours that the language model keeps."""
    max_distance: float = 0.5
    """Maximum squared Euclidean distance of the word vectors."""
    max_share: float = 0.2
    """Maximum share of changed words, rounded up."""
    parents: Parents | None = None
    """Members preferred as parents: weaker or fitter; the default depends on the semantics."""
    check_children: bool | None = None
    """Whether the share also limits children of a crossover; the default depends on the semantics."""
    masked_lm: str | None = "minilm"
    """Language model that keeps the most likely neighbours; none: all neighbours are tried."""

    def __post_init__(self) -> None:
        self._breeding()
        for name in ("population", "most", "most_likely"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    def resources(self) -> Mapping[str, str]:
        """The word vectors and the language model."""
        return {
            "word vectors": load_neighbours(self.neighbours).name,
            "masked language model": self.masked_lm or "none",
        }

    def search(self, trial: Trial) -> Search:
        """Start from as many mutations of the original as the population has members."""
        substitutes = yield from self._substitutes(trial)
        if not len(substitutes):
            return
        evolution = Evolution(trial, self._breeding(), substitutes)
        population = Population.of_original(trial, self.population, self._weights(trial, substitutes))
        yield from evolution.mutate(population)
        yield from evolution.search(population)

    def _breeding(self) -> Breeding:
        paper = self.semantics == "paper"
        return Breeding(
            generations=self.generations,
            temperature=self.temperature,
            parents=self.parents or ("fitter" if paper else "weaker"),
            max_share=self.max_share,
            check_children=paper if self.check_children is None else self.check_children,
            insists=not paper,
            anyone=paper,
        )

    def _near(self, most: int) -> NearWords:
        return NearWords(self.neighbours, most, max_distance=self.max_distance)

    def _substitutes(self, trial: Trial) -> Generator[Request, Any, Substitutes]:
        """The possible substitutes of every word."""
        near, original = self._near(self.most), trial.original
        positions = trial.positions(stop_words()).tolist()
        near.neighbours.prefetch([original.word(at) for at in positions], self.most)
        limit = most_per_word(trial)
        found = {at: near.words(trial, int(original.ids[at]))[:limit] for at in positions}
        substitutes = Substitutes(original.ids, found)
        if self.masked_lm is None or not len(substitutes):
            return substitutes
        likely = yield Likelihood(original, substitutes.at.astype(np.int32), substitutes.words)
        order = np.lexsort((-likely, substitutes.at))
        rank = np.arange(len(order)) - substitutes.starts[substitutes.at[order]]
        kept = np.sort(order[rank < self.most_likely])
        left: dict[int, Int32] = {at: substitutes.words[kept[substitutes.at[kept] == at]] for at in found}
        return Substitutes(original.ids, left)

    def _weights(self, trial: Trial, substitutes: Substitutes) -> Doubles:
        """The weight of each word in the choice of words to mutate."""
        counts = substitutes.counts.astype(np.float64)
        if self.semantics == "textattack":
            return np.maximum(counts, max(1, int(0.1 * counts.min())))
        near = self._near(max(self.most, _WITHIN_REACH))
        for at in np.flatnonzero(counts).tolist():
            counts[at] = len(near.words(trial, int(trial.original.ids[at])))
        return counts
