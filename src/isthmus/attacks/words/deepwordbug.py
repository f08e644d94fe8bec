"""DeepWordBug: misspell the words that matter most (Gao et al., 2018)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.candidates import Candidates, Rule, find_allowed
from isthmus.attacks.parts.characters import EDITS, misspelling
from isthmus.attacks.parts.edit_distance import levenshtein
from isthmus.attacks.parts.rules import MaxEdits
from isthmus.attacks.parts.searches import Search, by_importance, greedy, saliency
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Floats
from isthmus.engine.requests import DELETE, REPLACE, Edits, Request, Score, replacing
from isthmus.lexicon.stopwords import stop_words

WordScore = Literal["combined", "head", "tail", "replace"]
EditName = Literal["substitute", "swap", "delete", "insert"]


@dataclass(frozen=True, kw_only=True)
class DeepWordBug(WordAttack):
    """Misspell words in the order of their importance, one character each.

        textattack   importance(i) = 1 - p(y | x with x_i unknown); then, word by word, the best of one random swap,
                     substitution, deletion and insertion, kept if it lowers p(y)
        paper        importance(i) = head(i) + tail_weight * tail(i), in p(y) lost, with
                         head(i) = F(x_1 … x_i) - F(x_1 … x_{i-1})
                         tail(i) = F(x_i … x_n) - F(x_{i+1} … x_n)
                     then one random edit per word, without looking, until the edit distance reaches the limit

    References:
        Gao, Lanchantin, Soffa, Qi: Black-box Generation of Adversarial Text Sequences to Evade Deep Learning
        Classifiers. IEEE Security and Privacy Workshops 2018.

    Where we depart:
        `textattack` follows TextAttack 0.3.11: stop words are left alone, no word is edited twice, and the texts stay
        within the edit distance. Its random numbers are not ours, so single results differ and rates agree.
        `paper` edits every word that has at least two characters, stop words included.

    Relations:
        TextBugger adds homoglyphs and word-vector neighbours; PWWS replaces whole words by synonyms.

    Example:
        ``isthmus attack runs/demo --attack deepwordbug -P semantics=paper -P edit=swap``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's greedy one, or the paper's."""
    max_edit_distance: int = 30
    """Maximum number of single-character edits (Levenshtein) between original and adversarial text."""
    scorer: WordScore = "combined"
    """Importance in `paper` semantics."""
    tail_weight: float = 1.0
    """Weight of the tail score in the combined one."""
    edit: EditName = "substitute"
    """The edit in `paper` semantics."""

    def __post_init__(self) -> None:
        if self.max_edit_distance < 1:
            raise UsageError(f"max_edit_distance must be at least 1, not {self.max_edit_distance}")

    def search(self, trial: Trial) -> Search:
        """Rank the words, then misspell them in that order."""
        if self.semantics == "paper":
            yield from self._blind(trial)
            return
        order = yield from by_importance(trial, trial.positions(stop_words()))
        yield from greedy(trial, order, self.misspellings)

    def rules(self) -> tuple[Rule, ...]:
        """The edit distance; in `paper` semantics the blind search keeps to it by itself."""
        return (MaxEdits(self.max_edit_distance, each=2),) if self.semantics == "textattack" else ()

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    def misspellings(self, trial: Trial, position: int) -> Edits:
        """One random edit of each of the four kinds."""
        return misspelling(trial.draft, position, trial.rng)

    # ------------------------------------------------------------------ the paper's algorithm

    def _blind(self, trial: Trial) -> Search:
        positions = trial.positions()
        importance = yield from self._importance(trial, positions)
        draft, spent, edit = trial.draft, 0, EDITS[self.edit]
        for position in positions[np.argsort(-importance, kind="stable")].tolist():
            word = draft.word(position)
            new = edit(word, trial.rng) if len(word) > 1 else word
            cost = levenshtein(word, new)
            if not cost or spent + cost > self.max_edit_distance:
                continue
            edits = replacing(position, trial.vocabulary.ids([new]))
            candidates = yield from find_allowed(trial, Candidates(draft, edits))
            if candidates.count:
                spent += cost
                draft = candidates.draft(0)
        scores = yield Score(draft)
        trial.accept(draft, scores[0], float(trial.judge(scores)[0]))

    def _importance(self, trial: Trial, positions: NDArray[np.int32]) -> Generator[Request, Any, Floats]:
        if self.scorer == "replace" or not len(positions):
            return (yield from saliency(trial, positions))
        importance = np.zeros(len(positions), np.float32)
        if self.scorer in ("combined", "head"):
            scores = yield Score(trial.draft, _cut_texts(positions, "head"), 2 * len(positions))
            importance += _drop(trial, scores)
        if self.scorer in ("combined", "tail"):
            scores = yield Score(trial.draft, _cut_texts(positions, "tail"), 2 * len(positions))
            importance += (self.tail_weight if self.scorer == "combined" else 1.0) * _drop(trial, scores)
        return importance


def _drop(trial: Trial, scores: Floats) -> Floats:
    """How much progress is lost by having each word: rows come in pairs, with the word and without it."""
    progress = trial.judge(scores)
    return np.asarray(progress[1::2] - progress[0::2], np.float32)


def _cut_texts(positions: NDArray[np.int32], side: Literal["head", "tail"]) -> Edits:
    """Candidates 2i and 2i + 1: the text up to (or from) the i-th position, with the word there and without it."""
    blocks = []
    for index in range(len(positions)):
        for without in (0, 1):
            gone = positions[index + 1 - without :] if side == "head" else positions[: index + without]
            block = np.empty((len(gone), 4), np.int32)
            block[:, 0], block[:, 1], block[:, 2], block[:, 3] = 2 * index + without, gone, REPLACE, DELETE
            blocks.append(block)
    return np.concatenate(blocks)
