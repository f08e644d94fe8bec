"""BadChars: characters that a reader does not see and a tokenizer does (Boucher et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import WordAttack
from isthmus.attacks.parts.candidates import Candidates, find_allowed
from isthmus.attacks.parts.disguise import DisguiseKind, Mark, disguise, marks_of
from isthmus.attacks.parts.searches import Proposal, Search, by_importance, greedy
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import Floats
from isthmus.engine.requests import NO_EDITS, REPLACE, Edits, replacing
from isthmus.lexicon.confusables import DIRECTION_MARKS

Strategy = Literal["greedy", "evolution"]


@dataclass(frozen=True, kw_only=True)
class BadChars(WordAttack):
    """Put in characters that change what the model reads and nothing that a reader sees.

        skeleton(x') = skeleton(x),   at most `max_edits` disturbances, each an invisible character, a look-alike, two
                                      letters stored the other way round, or a letter that a backspace takes back
        greedy       words in the order of 1 - p(y | x with x_i unknown): of all disturbances of the word the best, if
                     it lowers p(y); from the first word again while that helps
        evolution    a vector of `max_edits` numbers, each naming a disturbance anywhere in the text or none; from every
                     vector v to  best + F (v_1 - v_2)  in some of its numbers, F in [0.5, 1], if that is no worse

    References:
        Boucher, Shumailov, Anderson, Papernot: Bad Characters: Imperceptible NLP Attacks. IEEE S&P 2022.

    Where we depart:
        The paper tries one kind of disturbance at a time, always by differential evolution, with populations of 32
        vectors per number; here the kinds compete, the greedy search is the default, and the evolution is that of one
        population of 32, a generation a request. Of the look-alikes of a letter only the closest is used. Letters that
        join or cluster, and combining marks, are left alone, where the paper would change what is seen.

    Relations:
        TextBugger and DeepWordBug misspell visibly. Tokenizers that drop control characters (BERT's does) never see the
        invisible ones, and read swapped and deleted letters as misspellings: there homoglyphs, swaps and deletions do
        the work.

    Example:
        ``isthmus attack runs/demo --attack badchars -P kinds=homoglyph,invisible -P max_edits=3``
    """

    kinds: tuple[DisguiseKind, ...] = ("invisible", "homoglyph", "reorder", "delete")
    """Disturbances to use: invisible, homoglyph, reorder, delete."""
    max_edits: int = 5
    """Maximum number of disturbances in a text."""
    strategy: Strategy = "greedy"
    """How to place them: word by word, or by differential evolution."""
    population: int = 32
    """Number of vectors in a generation of the evolution."""
    generations: int = 20
    """Maximum number of generations of the evolution."""

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in get_args(DisguiseKind):
                raise UnknownName("kind of bad character", kind, get_args(DisguiseKind))
        if self.strategy not in get_args(Strategy):
            raise UnknownName("strategy", self.strategy, get_args(Strategy))
        if self.max_edits < 1 or not self.kinds:
            raise UsageError("max_edits must be at least 1, and kinds must name something")
        if self.population < 4 or self.generations < 1:
            raise UsageError("an evolution needs a population of at least 4 and at least one generation")

    def resources(self) -> Mapping[str, str]:
        """The table of characters."""
        return {"bad characters": f"{', '.join(self.kinds)} (table of isthmus.lexicon.confusables)"}

    def search(self, trial: Trial) -> Search:
        """Place the disturbances."""
        kinds = self.kinds
        # Where the text directs its writing itself, a swap of ours might be seen.
        if any(mark in text for text in trial.original.texts.values() for mark in DIRECTION_MARKS):
            kinds = tuple(kind for kind in kinds if kind != "reorder")
        if self.strategy == "evolution":
            yield from self._evolution(trial, kinds)
            return
        order = yield from by_importance(trial, trial.positions())
        propose, moves = self._proposal(kinds), -1
        while not trial.reached and moves < trial.moves < self.max_edits:
            moves = trial.moves
            yield from greedy(trial, order, propose)

    def _proposal(self, kinds: tuple[DisguiseKind, ...]) -> Proposal:
        """One disturbance more of a word, wherever it fits; what was put in before stays."""
        written: dict[tuple[int, int], tuple[Mark, ...]] = {}

        def propose(trial: Trial, position: int) -> Edits:
            if trial.moves >= self.max_edits:
                return NO_EDITS
            word, now = trial.original.word(position), int(trial.draft.ids[position])
            marks = written.get((position, now), ())
            more = [(*marks, mark) for mark in marks_of(word, kinds, trial.rng)]
            options = {disguise(word, own): own for own in more}
            options.pop(trial.draft.word(position), None)
            ids = trial.vocabulary.ids(options)
            written.update(zip(((position, new) for new in ids.tolist()), options.values(), strict=True))
            return replacing(position, ids)

        return propose

    # ------------------------------------------------------------------ differential evolution

    def _evolution(self, trial: Trial, kinds: tuple[DisguiseKind, ...]) -> Search:
        everything = [
            (position, mark)
            for position in trial.positions().tolist()
            for mark in marks_of(trial.original.word(position), kinds, trial.rng)
        ]
        if not everything:
            return
        rng = np.random.default_rng(trial.rng.getrandbits(63))
        shape, top = (self.population, self.max_edits), len(everything) + 1.0  # the last number stands for nothing
        vectors = rng.random(shape) * top
        fitness = np.full(self.population, -np.inf, np.float32)
        for generation in range(self.generations + 1):
            children = vectors if not generation else _children(vectors, fitness, top, rng)
            candidates = yield from find_allowed(trial, self._decode(trial, children, everything))
            if not candidates.count:
                continue
            scores = yield candidates.score()
            progress = trial.judge(scores)
            numbers = np.arange(self.population) if candidates.numbers is None else candidates.numbers
            no_worse = progress >= fitness[numbers]
            vectors[numbers[no_worse]], fitness[numbers[no_worse]] = children[numbers[no_worse]], progress[no_worse]
            best = int(progress.argmax())
            if progress[best] > trial.progress:
                trial.accept(candidates.draft(best), scores[best], float(progress[best]))
            if trial.reached:
                return

    def _decode(self, trial: Trial, vectors: NDArray[np.float64], everything: list[tuple[int, Mark]]) -> Candidates:
        """The texts that vectors stand for."""
        original, rows = trial.original, list[tuple[int, int, int, int]]()
        for index, numbers in enumerate(vectors.astype(np.int64).tolist()):
            chosen: dict[int, list[Mark]] = {}
            for number in numbers:
                if number < len(everything):
                    position, mark = everything[number]
                    chosen.setdefault(position, []).append(mark)
            rows += [
                (index, position, REPLACE, trial.vocabulary.id(disguise(original.word(position), chosen[position])))
                for position in sorted(chosen)
            ]
        return Candidates(original, np.array(rows, np.int32).reshape(-1, 4), len(vectors))


def _children(
    vectors: NDArray[np.float64], fitness: Floats, top: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """best + F (v_1 - v_2) in about seven of ten numbers, and in one at least; outside the bounds a random number."""
    count, length = vectors.shape
    others = np.array([rng.permutation(count - 1)[:2] for _ in range(count)])
    others += others >= np.arange(count)[:, None]  # two others, never the vector itself
    weight = rng.uniform(0.5, 1.0)
    mutants = vectors[int(fitness.argmax())] + weight * (vectors[others[:, 0]] - vectors[others[:, 1]])
    fresh = rng.random(vectors.shape) * top
    mutants = np.where((mutants >= 0) & (mutants < top), mutants, fresh)
    taken = rng.random(vectors.shape) < 0.7
    taken[np.arange(count), rng.integers(length, size=count)] = True
    return np.where(taken, mutants, vectors)
