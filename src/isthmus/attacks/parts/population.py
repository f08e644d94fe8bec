"""The genetic search: a population of texts evolves towards the goal.

    parent  ~ exp(±progress / temperature)           + : the fitter, - : the weaker (as TextAttack has it)
    child   = crossover(parent, parent)              word by word, or cut at one place
    mutate  : a word drawn by its weight is replaced by the substitute that helps most, if one helps;
              if none does, another word is drawn, as many times as there are words of non-zero weight

The best member lives on. A generation is scored in few requests: the children and their first mutations are one, and
each further round holds the next words of all children that found nothing yet. Nothing is asked that the algorithm
would not ask child by child, since no child looks at another of its generation.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from isthmus.attacks.parts.members import (
    Swaps,
    best_of_each,
    draw_weighted,
    find_permitted,
    score_swaps,
    settle,
    stream_of,
)
from isthmus.attacks.parts.searches import Search
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Bools, Doubles, Floats, Int32, Ints
from isthmus.engine.requests import Request

Parents = Literal["weaker", "fitter"]
Crossover = Literal["uniform", "cut"]


@dataclass(slots=True)
class Population:
    """Members of a generation, and how readily each of their words is chosen for mutation."""

    words: Int32  # [members, words]
    weights: Doubles  # [members, words], inherited with the words
    scores: Floats  # [members, classes]
    progress: Floats  # [members]; NaN where a member has not been scored yet

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of_original(cls, trial: Trial, size: int, weights: Doubles) -> Population:
        """The original text, repeated."""
        return cls(
            np.tile(trial.original.ids, (size, 1)),
            np.tile(weights, (size, 1)),
            np.tile(trial.scores, (size, 1)),
            np.full(size, trial.progress, np.float32),
        )

    def take(self, rows: Ints) -> Population:
        """Copies of some members."""
        return Population(self.words[rows], self.weights[rows], self.scores[rows], self.progress[rows])

    def put(self, rows: Ints, others: Population) -> None:
        """Replace some members by others."""
        self.words[rows], self.weights[rows] = others.words, others.weights
        self.scores[rows], self.progress[rows] = others.scores, others.progress

    def then(self, others: Population) -> Population:
        """Append the others to these members."""
        return Population(
            np.concatenate([self.words, others.words]),
            np.concatenate([self.weights, others.weights]),
            np.concatenate([self.scores, others.scores]),
            np.concatenate([self.progress, others.progress]),
        )


class MutationSource(Protocol):
    """A source of mutations."""

    def available(self, words: Int32) -> Bools:
        """For every word of every member whether it has substitutes."""

    def of(self, position: int, word: int) -> Int32:
        """Substitutes of a word at a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breeding:
    """Settings of the genetic search."""

    generations: int = 20
    """The population looked at first counts as one of them."""
    temperature: float = 0.3
    parents: Parents = "weaker"
    crossover: Crossover = "uniform"
    max_share: float = 0.2
    """Share of words that a mutation may leave changed, rounded up to whole words."""
    check_children: bool = False
    """Whether children of a crossover are held to the share as well; the user's own limits they always are."""
    retries: int = 20
    """Crossovers tried for a child that breaks a limit, before it is a copy of one of its parents."""
    wear: float = math.inf
    """What a replacement takes off the weight of a word."""
    insists: bool = True
    """Whether another word is tried where the first one drawn has nothing that helps."""
    anyone: bool = False
    """Whether any member may reach the goal, or only the one that is furthest."""

    def __post_init__(self) -> None:
        if self.generations < 1:
            raise UsageError(f"generations must be at least 1, not {self.generations}")
        if self.temperature <= 0:
            raise UsageError(f"the temperature must be positive, not {self.temperature}")
        if not 0 < self.max_share <= 1:
            raise UsageError(f"max_share lies in (0, 1], not {self.max_share}")


def selection(progress: Floats, temperature: float, parents: Parents) -> Doubles:
    """Probability of each member to be drawn as a parent."""
    sign = 1.0 if parents == "fitter" else -1.0
    weight = np.exp(sign * progress.astype(np.float64) / temperature)
    return np.asarray(weight / weight.sum())


class Evolution:
    """The genetic search on one example."""

    def __init__(self, trial: Trial, breeding: Breeding, source: MutationSource) -> None:
        self.trial, self.breeding, self.source = trial, breeding, source
        self.original = trial.original.ids
        self.limit = math.ceil(breeding.max_share * len(self.original))
        self.stream = stream_of(trial)

    def search(self, population: Population) -> Search:
        """Breed until the goal is reached; children of the last generation would never be scored, so none are made."""
        for generation in range(self.breeding.generations):
            population = population.take(np.argsort(-population.progress, kind="stable"))
            if settle(self.trial, population.words, population.scores, population.progress, self.breeding.anyone):
                return
            if generation + 1 == self.breeding.generations or len(population) == 1:
                return
            children = yield from self.children(population)
            yield from self.mutate(children)
            population = population.take(np.array([0])).then(children)

    # ------------------------------------------------------------------ crossover

    def children(self, population: Population) -> Generator[Request, Any, Population]:
        """One child fewer than there are members, each of two parents."""
        chances = selection(population.progress, self.breeding.temperature, self.breeding.parents)
        size = len(population) - 1
        parents = draw_weighted(np.broadcast_to(chances, (2 * size, len(chances))), self.stream)
        one, other = population.take(parents[:size]), population.take(parents[size:])
        children = self._cross(one, other)
        if not (self.breeding.check_children or self.trial.plain_rules or self.trial.asking_rules):
            return children
        unfit = np.arange(size)
        for _ in range(self.breeding.retries):
            unfit = unfit[(yield from self._unfit(children.words[unfit]))]
            if not len(unfit):
                return children
            children.put(unfit, self._cross(one.take(unfit), other.take(unfit)))
        unfit = unfit[(yield from self._unfit(children.words[unfit]))]
        heads = self.stream.random(len(unfit)) < 0.5
        children.put(unfit[heads], one.take(unfit[heads]))
        children.put(unfit[~heads], other.take(unfit[~heads]))
        return children

    def _cross(self, one: Population, other: Population) -> Population:
        shape = one.words.shape
        if self.breeding.crossover == "uniform":
            swapped = self.stream.random(shape) < 0.5
        else:
            cut = np.floor(self.stream.random(shape[0]) * shape[1])
            swapped = np.arange(shape[1]) >= cut[:, None]
        words = np.where(swapped, other.words, one.words)
        weights = np.where(swapped, other.weights, one.weights)
        return Population(words, weights, np.zeros_like(one.scores), np.full(shape[0], np.nan, np.float32))

    def _unfit(self, words: Int32) -> Generator[Request, Any, Bools]:
        """Which rows break a limit."""
        unfit = np.zeros(len(words), bool)
        if self.breeding.check_children:
            unfit = (words != self.original).sum(axis=1) > self.limit
        rows = np.flatnonzero(~unfit)
        holding = yield from find_permitted(self.trial, words, Swaps.of_rows(rows))
        unfit[:] = True
        unfit[rows[holding]] = False
        return unfit

    # ------------------------------------------------------------------ mutation

    def mutate(self, members: Population, weights: Doubles | None = None, tries: Ints | None = None) -> Search:
        """Replace a word in each of the members, if that helps, and score those that have no scores yet.

        `weights` and `tries` take the place of the members' own weights, and of one try for every word that has one.
        """
        weights = (members.weights if weights is None else weights).copy()
        if tries is None:
            words = np.count_nonzero(weights, axis=1)
            tries = words if self.breeding.insists else np.minimum(words, 1)
        tries = tries.copy()
        while True:
            swaps = self._swaps(members.words, weights, tries)
            weights[swaps.rows, swaps.at] = 0  # nobody draws a word again that was tried in vain
            swaps = swaps.take((yield from find_permitted(self.trial, members.words, swaps)))
            new = np.flatnonzero(np.isnan(members.progress))
            if len(swaps) or len(new):
                scores = yield from score_swaps(self.trial, members.words, swaps.after(Swaps.of_rows(new)))
                members.scores[new] = scores[: len(new)]
                members.progress[new] = self.trial.judge(scores[: len(new)])
                tries[self._take_best(members, swaps, scores[len(new) :])] = 0
            if not tries.any():
                return

    def _take_best(self, members: Population, swaps: Swaps, scores: Floats) -> Ints:
        """Apply the best swap of every member if it helps; return these members."""
        progress = self.trial.judge(scores)
        best = best_of_each(swaps.rows, progress)
        best = best[progress[best] > members.progress[swaps.rows[best]]]
        rows, at = swaps.rows[best], swaps.at[best]
        members.words[rows, at] = swaps.words[best]
        members.weights[rows, at] = np.maximum(members.weights[rows, at] - self.breeding.wear, 0)
        members.scores[rows], members.progress[rows] = scores[best], progress[best]
        return rows

    def _swaps(self, words: Int32, weights: Doubles, tries: Ints) -> Swaps:
        """Draw a word for every member that has tries left, until one with substitutes comes, and list those.

        Of the words drawn, a share p = (weight of those with substitutes) / (all weight) is of use, so that the number
        of draws it takes is geometric, and the one of use is drawn by its weight among its like.
        """
        rows = np.flatnonzero(tries > 0)
        useful = np.where(self._useful(words[rows]), weights[rows], 0.0)
        whole, share = weights[rows].sum(axis=1), useful.sum(axis=1)
        share = np.divide(share, whole, out=np.zeros_like(share), where=whole > 0)
        draws = _draws_until(share, self.stream)
        found = draws <= tries[rows]
        tries[rows] -= np.minimum(draws, tries[rows]).astype(np.int64)
        rows, useful = rows[found], useful[found]
        at = draw_weighted(useful, self.stream)
        return self._list_swaps(words, rows, at)

    def _useful(self, words: Int32) -> Bools:
        """For every word of every member whether replacing it keeps within the share and is possible at all."""
        changed = words != self.original
        room = self.limit - changed.sum(axis=1, keepdims=True) + changed
        useful: Bools = (room > 0) & self.source.available(words)
        # One word too many is changed: what can be done is to put one back.
        for row, at in np.argwhere(changed & (room == 0)).tolist():
            useful[row, at] = self.original[at] in self.source.of(at, int(words[row, at]))
        return useful

    def _list_swaps(self, words: Int32, rows: Ints, at: Ints) -> Swaps:
        lists = []
        over = (words[rows] != self.original).sum(axis=1) > self.limit
        for position, word, many in zip(at.tolist(), words[rows, at].tolist(), over.tolist(), strict=True):
            found = self.source.of(position, word)
            lists.append(found[found == self.original[position]] if many else found)
        counts = [len(found) for found in lists]
        flat = np.concatenate([np.zeros(0, np.int32), *lists])
        return Swaps(np.repeat(rows, counts), np.repeat(at, counts), flat)


def _draws_until(share: Doubles, stream: np.random.Generator) -> Doubles:
    """How many draws it takes until one is of use, if each is with probability `share`."""
    uniform = stream.random(len(share))
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = np.ceil(np.log1p(-uniform) / np.log1p(-share))
    return np.where(share > 0, np.where(share < 1, np.maximum(draws, 1), 1), np.inf)
