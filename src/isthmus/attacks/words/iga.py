"""IGA: genetic search that may replace a word repeatedly, from the best swap of every word (Wang et al., 2019)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.members import Substitutes, best_swaps, most_per_word
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.population import Breeding, Evolution, Parents, Population
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Doubles, Int32
from isthmus.engine.requests import Request
from isthmus.lexicon.by_name import load_neighbours
from isthmus.lexicon.stopwords import stop_words


@dataclass(frozen=True, kw_only=True)
class IGA(WordAttack):
    """Evolve texts in which words are replaced by near ones, and those by words near them, up to five times.

        first     member i: the original with its i-th word replaced by the neighbour that helps most
        parents   drawn with p ∝ exp(-score / T)  (textattack),  exp(+score / T)  (paper)
        child     the words of one parent up to a random place, then those of the other; then mutated
        mutate    draw a word with p ∝ the replacements it has left; put in the neighbour that helps most, if one helps

    with score = 1 - p(y), T the temperature. Neighbours are those of the current word: the `most`
    nearest word vectors at a squared distance of at most `max_distance`. The best member lives on.

    `textattack` draws again, once for every word of the text, where nothing helped, and takes index 0 for none, so that
    its first member has a random word replaced instead of the first. `paper` draws once, among words that have
    neighbours.

    References:
        Wang, Jin, Yang, He: Natural Language Adversarial Defense through Synonym Encoding (first version: Natural
        Language Adversarial Attack and Defense in Word Level, 2019). UAI 2021.

    Where we depart:
        TextAttack asks for a first swap that does not help once per word of the text; here it is asked for once.
        TextAttack's population is no larger than the text has words, and begins with the first `population` of them. In
        `paper` it begins with the best swaps, over and over until there are enough members.
        TextAttack does not hold the children of a crossover to the share of words, so that its results may change more
        than a fifth; `textattack` follows it unless `check_children` is set, `paper` holds all.
        TextAttack never looks at the children of the last generation; they are not bred here.
        Queries are counted as TextAttack does, repeated texts included. Stop words are left alone in both.
        In `paper` any member that reaches the goal ends the search, in `textattack` only the one with the best score;
        with two classes that is the same.

    Relations:
        Genetic replaces a word once and tries fewer neighbours. PSO moves particles instead.

    Example:
        ``isthmus attack runs/demo --attack iga -P generations=10``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's, or the paper's."""
    population: int = 60
    """Members of a generation; in `textattack` no more than the text has words."""
    generations: int = 20
    """Maximum number of generations."""
    temperature: float = 0.3
    """Temperature of the draw of parents."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    most: int = 50
    """Maximum number of neighbours per word."""
    max_distance: float = 0.5
    """Maximum squared Euclidean distance of the word vectors."""
    max_share: float = 0.2
    """Maximum share of changed words, rounded up."""
    max_replacements: int = 5
    """Maximum number of replacements per word."""
    parents: Parents | None = None
    """Members preferred as parents: weaker or fitter; the default depends on the semantics."""
    check_children: bool | None = None
    """Whether the share also limits children of a crossover; the default depends on the semantics."""

    def __post_init__(self) -> None:
        self._breeding()
        for name in ("population", "most", "max_replacements"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    def resources(self) -> Mapping[str, str]:
        """The word vectors."""
        return {"word vectors": load_neighbours(self.neighbours).name}

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    def search(self, trial: Trial) -> Search:
        """Start from the best swap of every word."""
        source = _WhatIsNear(trial, NearWords(self.neighbours, self.most, max_distance=self.max_distance))
        if not source.available(trial.original.ids[None]).any():
            return
        evolution = Evolution(trial, self._breeding(), source)
        if self.semantics == "paper":
            population = yield from self._best_members(trial, source)
        else:
            population = yield from self._first_members(trial, evolution)
        if len(population):
            yield from evolution.search(population)

    def _breeding(self) -> Breeding:
        paper = self.semantics == "paper"
        return Breeding(
            generations=self.generations,
            temperature=self.temperature,
            parents=self.parents or ("fitter" if paper else "weaker"),
            crossover="cut",
            max_share=self.max_share,
            check_children=paper if self.check_children is None else self.check_children,
            wear=1,
            insists=not paper,
            anyone=paper,
        )

    def _first_members(self, trial: Trial, evolution: Evolution) -> Generator[Request, Any, Population]:
        """TextAttack's: one for every word, in which that word has been replaced; in the first a random one."""
        words = len(trial.original)
        members = Population.of_original(trial, min(words, self.population), self._weights(trial))
        only, tries = np.eye(len(members), words), np.ones(len(members), np.int64)
        only[0], tries[0] = members.weights[0], words
        yield from evolution.mutate(members, only, tries)
        return members

    def _best_members(self, trial: Trial, source: _WhatIsNear) -> Generator[Request, Any, Population]:
        """The paper's: the original with the best swap of a word; the words where that does most, over and over."""
        original = trial.original.ids
        free = source.available(original[None])[0]
        found = {at: source.of(at, int(original[at])) for at in np.flatnonzero(free).tolist()}
        best = yield from best_swaps(trial, original[None], Substitutes(original, found).swaps(original[None]))
        rows = np.resize(np.argsort(-best.progress, kind="stable"), self.population if len(best.swaps) else 0)
        members = Population.of_original(trial, len(rows), np.where(free, self._weights(trial), 0))
        at = best.swaps.at[rows]
        members.words[np.arange(len(rows)), at] = best.swaps.words[rows]
        members.weights[np.arange(len(rows)), at] -= 1
        members.scores, members.progress = best.scores[rows], best.progress[rows]
        return members

    def _weights(self, trial: Trial) -> Doubles:
        return np.full(len(trial.original), float(self.max_replacements))


class _WhatIsNear:
    """Near words of whatever stands at a position, unless that is a stop word or protected."""

    def __init__(self, trial: Trial, near: NearWords) -> None:
        self.trial, self.near = trial, near
        self.free, self.most = trial.original.editable, most_per_word(trial)
        self.found: dict[int, Int32] = {}

    def available(self, words: Int32) -> Bools:
        """For every word of every member whether it has near words."""
        distinct, inverse = np.unique(words, return_inverse=True)
        self._look_up([word for word in distinct.tolist() if word not in self.found])
        some = np.array([len(self.found[word]) > 0 for word in distinct.tolist()], bool)
        return np.asarray(some[inverse.reshape(words.shape)] & self.free)

    def of(self, position: int, word: int) -> Int32:
        """Near words of a word."""
        del position
        if word not in self.found:
            self._look_up([word])
        return self.found[word]

    def _look_up(self, words: list[int]) -> None:
        strings, stops = self.trial.vocabulary.strings, stop_words()
        chosen = [word for word in words if strings[word] not in stops]
        if chosen:
            self.near.neighbours.prefetch([strings[word] for word in chosen], self.near.most)
        self.found |= dict.fromkeys(words, _NONE)
        self.found |= {word: self.near.words(self.trial, word)[: self.most] for word in chosen}


_NONE = np.zeros(0, np.int32)
