"""PWWS: replace by WordNet synonyms, ordered by probability-weighted word saliency (Ren et al., 2019)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.candidates import Candidates, find_allowed
from isthmus.attacks.parts.searches import Search, greedy, saliency
from isthmus.attacks.parts.synonyms import Synonyms, wordnet_synonyms
from isthmus.attacks.parts.trial import Trial
from isthmus.core.types import Floats
from isthmus.engine.requests import Request, replacing
from isthmus.lexicon.by_name import load_table
from isthmus.lexicon.stopwords import stop_words


@dataclass(frozen=True, kw_only=True)
class PWWS(WordAttack):
    """Replace words by synonyms, ordered by word saliency times the effect of the best synonym.

        H(i) = softmax(S)_i * best_i
        S_i    = 1 - p(y | x with x_i unknown)                saliency
        best_i = max over synonyms s of  1 - p(y | x with x_i = s)          (textattack)
                 max over synonyms s of  p(y | x) - p(y | x with x_i = s)   (paper)

    `textattack` then goes through the words in the order of H, scores all synonyms again in the text as it stands, and
    takes the best if it helps. `paper` puts in each word's best synonym as found on the original text, one after the
    other, until the label flips.

    References:
        Ren, Deng, He, Che: Generating Natural Language Adversarial Examples through Probability Weighted Word
        Saliency. ACL 2019.

    Where we depart:
        The paper also swaps named entities for others of the same type in the data, and keeps the part of speech; both
        semantics here leave that out, as TextAttack does. Stop words are left alone in both.
        Synonyms are tried in WordNet's order, where TextAttack's order is that of a set of strings; this matters for
        exact ties only.

    Relations:
        TextFooler takes neighbours in a word-vector space instead, with constraints on meaning; DeepWordBug misspells.

    Example:
        ``isthmus attack runs/demo --attack pwws -P semantics=paper``
    """

    semantics: Semantics = "textattack"
    """Variant of the algorithm: TextAttack's greedy one, or the paper's."""
    wordnet: str | None = None
    """Folder with the WordNet 3.0 dictionary files; by default the asset `wordnet`."""
    table: str | None = None
    """A synonym table in place of WordNet: safer, a .json file, or a run trained with safer."""
    synonyms: Synonyms | None = field(default=None, repr=False)
    """Another source of synonyms: a function from a word to words."""

    def resources(self) -> Mapping[str, str]:
        """The synonyms' source."""
        if self.synonyms is not None:
            return {"synonyms": getattr(self.synonyms, "__name__", type(self.synonyms).__name__)}
        if self.table is not None:
            return {"synonyms": load_table(self.table).title}
        return {"synonyms": f"WordNet 3.0 ({self.wordnet or 'asset wordnet'})"}

    def search(self, trial: Trial) -> Search:
        """Order the words by H, then replace them in that order."""
        positions = trial.positions(stop_words())
        if not len(positions):
            return
        salience = yield from saliency(trial, positions)
        best = yield from self._best_swaps(trial, positions)
        weight = np.exp(salience - salience.max())
        weighted = weight / weight.sum() * best.gain
        ranks = np.argsort(-weighted, kind="stable")
        if self.semantics == "paper":
            yield from _one_after_another(trial, positions[ranks], best.word[ranks])
        else:
            yield from greedy(trial, positions[ranks].tolist(), lambda trial, at: replacing(at, self.swaps(trial, at)))

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    def swaps(self, trial: Trial, position: int) -> NDArray[np.int32]:
        """The synonyms of the word at a position."""
        if self.synonyms is not None:
            source = self.synonyms
        elif self.table is not None:
            source = load_table(self.table).replacements
        else:
            source = wordnet_synonyms(self.wordnet)
        return trial.vocabulary.ids(source(trial.draft.word(position)))

    def _best_swaps(self, trial: Trial, positions: NDArray[np.int32]) -> Generator[Request, Any, _BestSwaps]:
        """The best synonym of every word in the original text, all scored in one request."""
        best = _BestSwaps(np.zeros(len(positions), np.float32), np.full(len(positions), -1, np.int32))
        edits = np.concatenate([replacing(at, self.swaps(trial, at)) for at in positions.tolist()])
        edits[:, 0] = np.arange(len(edits))
        candidates = yield from find_allowed(trial, Candidates(trial.draft, edits))
        if not candidates.count:
            return best
        scores = yield candidates.score()
        progress = trial.judge(scores)
        drop = progress - trial.progress if self.semantics == "paper" else progress
        first = np.searchsorted(candidates.edits[:, 1], positions)
        last = np.searchsorted(candidates.edits[:, 1], positions, side="right")
        for index, (start, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            if end > start:
                winner = start + int(drop[start:end].argmax())
                best.gain[index], best.word[index] = drop[winner], candidates.edits[winner, 3]
        return best


@dataclass(frozen=True, slots=True)
class _BestSwaps:
    gain: Floats  # [positions]
    word: NDArray[np.int32]  # [positions]; -1 where there is no synonym


def _one_after_another(trial: Trial, positions: NDArray[np.int32], words: NDArray[np.int32]) -> Search:
    for position, word in zip(positions.tolist(), words.tolist(), strict=True):
        if word < 0:
            continue
        candidates = yield from find_allowed(
            trial, Candidates(trial.draft, replacing(position, np.array([word], np.int32)))
        )
        if not candidates.count:
            continue
        scores = yield candidates.score()
        if trial.accept(candidates.draft(0), scores[0], float(trial.judge(scores)[0])):
            return
