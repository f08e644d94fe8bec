"""HotFlip: replace the words whose replacement raises the loss most, by the gradient (Ebrahimi et al., 2018)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isthmus.attacks.base import Semantics, WordAttack
from isthmus.attacks.parts.blanks import has_letter, writing
from isthmus.attacks.parts.candidates import Rule
from isthmus.attacks.parts.neighbours import NearWords
from isthmus.attacks.parts.rules import WordMeaning
from isthmus.attacks.parts.searches import Search, beam
from isthmus.attacks.parts.speech import TaggerName, all_rules, tagger_used, word_tagger
from isthmus.attacks.parts.trial import Trial
from isthmus.core.errors import UsageError
from isthmus.core.types import Floats, Int32, Ints
from isthmus.engine.requests import DELETE, NO_EDITS, Edits, Gradient, Request, TokenGradient
from isthmus.lexicon.stopwords import stop_words
from isthmus.text.draft import Draft
from isthmus.text.vocabulary import Vocabulary

_GAINS_AT_ONCE = 1 << 23
"""Gains worked out at once, so that a long text and a large vocabulary fit in memory."""


@dataclass(frozen=True, kw_only=True)
class HotFlip(WordAttack):
    """Replace words where the gradient predicts the largest loss, keeping a beam of the best texts.

        gain(i, w) = (e_w - e_{x_i}) · ∂ loss(x, y) / ∂ e_{x_i}

    where e are the model's word embeddings and w runs over the tokens of its vocabulary that are whole words; a word of
    several sub-words is flipped at its first. From each of 10 texts the best flip is taken (`textattack`), or the best
    of those that keep the meaning (`paper`); flipped texts are scored, and the best 10 go on. At most two words are
    flipped; the word vectors of old and new word have a cosine of 0.8 and their part of speech is the same.

    References:
        Ebrahimi, Rao, Lowd, Dou: HotFlip: White-Box Adversarial Examples for Text Classification. ACL 2018.

    Where we depart:
        `textattack` follows TextAttack 0.3.11: from a text the one best flip of all is proposed, *then* the rules are
        asked, and most often nothing is left of it. (TextAttack itself runs this on its own word-level models only.)
        `paper` asks the rules first: of each word its neighbours by word vectors that are tokens of the model, of all
        of these the best ten flips. The paper's own experiment has words only, no sub-words.

    Relations:
        The only attack here that needs the model itself; all others see scores. With `draws` the gradient of a
        randomised model is averaged over its randomness.

    Example:
        ``isthmus attack runs/demo --attack hotflip``
    """

    needs_gradients: ClassVar[bool] = True

    semantics: Semantics = "paper"
    """Variant of the algorithm: the paper's, or TextAttack's, which rarely finds a flip that its own rules allow."""
    width: int = 10
    """Number of texts kept after every step."""
    top: int = 1
    """Number of replacements proposed per text, in `textattack` semantics."""
    max_words: int = 2
    """Maximum number of replaced words."""
    draws: int = 1
    """Draws of a randomised model's randomness over which its gradient is averaged."""
    neighbours: str = "counterfitted"
    """Word vectors: counterfitted, glove, or a file; or a synonym table: safer, a .json file, or a run."""
    min_cosine: float = 0.8
    """Minimum cosine of two words' vectors."""
    most: int = 50
    """Maximum number of neighbours per word, in `paper` semantics."""
    part_of_speech: TaggerName = "wordnet"
    """Part-of-speech tagger that says which words may replace each other: wordnet, spacy, nltk, or none."""

    def __post_init__(self) -> None:
        for name in ("width", "top", "max_words", "draws", "most"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")

    def resources(self) -> Mapping[str, str]:
        """Vectors and tagger."""
        return {"word vectors": self.near.neighbours.name, **tagger_used(self.part_of_speech)}

    def rules(self) -> tuple[Rule, ...]:
        """The meaning and the part of speech of the word."""
        return (WordMeaning(self.near.neighbours, self.min_cosine), *all_rules(self.part_of_speech))

    def frozen_columns(self) -> tuple[str, ...]:
        """The recipe of the toolkit edits both texts of a pair."""
        return () if self.semantics == "textattack" else ("premise",)

    @cached_property
    def near(self) -> NearWords:
        """The neighbours among which `paper` semantics choose."""
        return NearWords(self.neighbours, self.most, self.min_cosine, tagger=word_tagger(self.part_of_speech))

    def search(self, trial: Trial) -> Search:
        """Flip step by step."""
        if self.semantics == "paper":
            self.near.prefetch(trial.draft)
        yield from beam(trial, self.flips, self.width)

    def flips(self, trial: Trial, draft: Draft) -> Generator[Request, Any, Edits]:
        """The best flips of a text."""
        positions = trial.positions(stop_words(), draft, repeat=False)
        if not len(positions) or int(trial.find_changed(draft).sum()) >= self.max_words:
            return NO_EDITS
        label, sign = trial.goal.loss(trial.label)
        gradient: TokenGradient = yield Gradient(draft, label, self.draws)
        places, tokens = _first_tokens(gradient, positions)
        values = sign * gradient.values[tokens]
        if self.semantics == "paper":
            return self._near_flips(trial, draft, gradient, places, tokens, values)
        row, token = _best_flips(gradient, tokens, values, _mask_of_words(trial.vocabulary, gradient), self.top)
        at, words = places[row], gradient.words[token]
        other = words != draft.ids[at]
        return writing(at[other], words[other])

    def _near_flips(
        self, trial: Trial, draft: Draft, gradient: TokenGradient, places: Int32, tokens: Ints, values: Floats
    ) -> Edits:
        """The best flips to neighbours that the model has as tokens."""
        own = [self._near(trial, gradient, word) for word in draft.ids[places].tolist()]
        row = np.repeat(np.arange(len(places)), [len(words) for words, _ in own])
        if not len(row):
            return NO_EDITS
        words, new = (np.concatenate([pair[part] for pair in own]) for part in (0, 1))
        table, old = gradient.table, gradient.token_ids[tokens]
        gains = np.einsum("cw,cw->c", table[new] - table[old[row]], values[row])
        best = _find_largest(gains, self.width)
        return writing(places[row[best]], words[best])

    def _near(self, trial: Trial, gradient: TokenGradient, word: int) -> tuple[Int32, Int32]:
        """Neighbours of a word that are tokens of the model, and these tokens."""
        known = trial.vocabulary.memory.setdefault((self.near, "tokens"), {})
        if word not in known:
            vocabulary, token_of = trial.vocabulary, _token_of(trial.vocabulary, gradient)
            words = self.near.words(trial, word).tolist()
            small = vocabulary.ids(vocabulary.strings[new].lower() for new in words).tolist()
            tokens = [token_of.get(new, token_of.get(low)) for new, low in zip(words, small, strict=True)]
            pairs = [(new, token) for new, token in zip(words, tokens, strict=True) if token is not None]
            known[word] = np.array(pairs, np.int32).reshape(-1, 2).T
        found: Int32 = known[word]
        return found[0], found[1]


def _first_tokens(gradient: TokenGradient, positions: Int32) -> tuple[Int32, Ints]:
    """The positions that the model reads, and the first token of each."""
    words, first = np.unique(gradient.position_of, return_index=True)
    at = np.searchsorted(words, positions)
    at[at == len(words)] = 0
    read = words[at] == positions
    return positions[read], first[at[read]]


def _best_flips(
    gradient: TokenGradient, tokens: Ints, values: Floats, words: NDArray[np.bool_], count: int
) -> tuple[Ints, Ints]:
    """The flips of any of the tokens to any word with the largest gains: which token, and what it becomes."""
    found, chosen, size = list[Floats](), list[Ints](), len(words)
    step = max(1, _GAINS_AT_ONCE // size)
    for start in range(0, len(tokens), step):
        own = values[start : start + step]
        now = np.einsum("tw,tw->t", own, gradient.table[gradient.token_ids[tokens[start : start + step]]])
        gains = own @ gradient.table.T - now[:, None]
        gains[:, ~words] = -np.inf
        best = _find_largest(gains.ravel(), count)
        found.append(gains.ravel()[best])
        chosen.append(best + start * size)
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    flips = np.concatenate(chosen)[_find_largest(np.concatenate(found), count)]
    row, token = np.divmod(flips, size)
    return row, token


def _mask_of_words(vocabulary: Vocabulary, gradient: TokenGradient) -> NDArray[np.bool_]:
    """Tokens that are words with a letter."""
    memory = vocabulary.memory.setdefault(_mask_of_words, {})
    if 0 not in memory:
        memory[0] = (gradient.words != DELETE) & has_letter(vocabulary, gradient.words)
    found: NDArray[np.bool_] = memory[0]
    return found


def _token_of(vocabulary: Vocabulary, gradient: TokenGradient) -> dict[int, int]:
    """The token that is a word."""
    memory = vocabulary.memory.setdefault(_token_of, {})
    if 0 not in memory:
        memory[0] = {word: token for token, word in enumerate(gradient.words.tolist()) if word != DELETE}
    found: dict[int, int] = memory[0]
    return found


def _find_largest(values: Floats, count: int) -> Ints:
    """Indices of the largest finite values, the largest first; of equal ones the first."""
    count = min(count, int(np.isfinite(values).sum()))
    if not count:
        return np.zeros(0, np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    chosen = np.flatnonzero(values >= least)
    return chosen[np.argsort(-values[chosen], kind="stable")][:count]
