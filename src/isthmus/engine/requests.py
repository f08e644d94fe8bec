"""The requests of attacks to the engine.

An attack is a generator, written for one text; it *yields* one of these and is resumed with the answer:

    scores       = yield Score(draft, edits, count)                     float32 [count, classes]
    scores       = yield Score(draft, edits, count, draws=k)            float32 [count * k, classes], k rows a candidate
    similarities = yield Similarity(draft, edits, count, reference)     float32 [count]
    fills        = yield Fill(draft, positions, k, span)                Fills: word ids and probabilities [positions, k]
    logarithms   = yield Likelihood(draft, positions, words)            float32 [words]
    gradient     = yield Gradient(draft, label)                         TokenGradient: float32 [tokens, width]

`edits` is int32 [edits, 4]: (candidate, position, span, word), sorted by candidate. Span 0 inserts before the position,
1 replaces it, 2 merges it with the next; `word` is a vocabulary id (DELETE and UNKNOWN are reserved). A candidate
without edits is the draft itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isthmus.core import compiled
from isthmus.core.types import Floats, Ints
from isthmus.text.draft import DELETE, INSERT, MERGE, REPLACE, UNKNOWN, Draft
from isthmus.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from isthmus.engine.spelling import Spelling

Edits = NDArray[np.int32]
NO_EDITS: Edits = np.zeros((0, 4), np.int32)


class Score:
    """Class probabilities of `count` candidates. `exact` asks for full precision.

    `fresh` is no query of the attack but a look of whoever judges it: a randomised victim draws from a stream that the
    attack never sees, nothing is counted, limited or remembered.

    `draws` asks for K draws of each candidate, which are the same in every request of one program, and count as
    K queries; 0 asks for one that no other query has. Of a victim that votes they come as means (`Voting`),
    unless `as_deployed` asks for the votes.
    """

    __slots__ = ("as_deployed", "asked", "base", "count", "draws", "each", "edits", "exact", "fresh", "rows")

    def __init__(
        self,
        base: Draft,
        edits: Edits = NO_EDITS,
        count: int = 1,
        exact: bool = False,
        fresh: bool = False,
        draws: int = 0,
        as_deployed: bool = False,
    ) -> None:
        self.base, self.edits, self.count, self.exact, self.fresh = base, edits, count, exact, fresh
        self.as_deployed = as_deployed
        self.asked = count  # candidates that the victim was asked about: fewer where the budget ended
        self.draws, self.each, self.rows = draws, 1, count
        if draws:
            self.ask_for(draws)

    def ask_for(self, draws: int) -> None:
        """Ask for `draws` draws of each candidate: `each` rows and queries a candidate, `rows` in the answer."""
        self.draws, self.each = draws, max(1, draws)
        self.rows = self.count * self.each


class Similarity:
    """Similarity (cosine of sentence vectors) of `count` candidates to `reference`.

    `window` is the number of words around the edit that are compared; None compares the whole field. Only the field
    that was edited is read. With `rough` a fast answer does: `error` then says how far off a cosine may be (None where
    the answer is exact after all), and one that could not be told is NaN.
    """

    __slots__ = ("_whole", "base", "count", "edits", "error", "reference", "rough", "window")

    def __init__(
        self,
        base: Draft,
        edits: Edits,
        count: int,
        reference: Draft | None = None,
        window: int | None = None,
        rough: bool = False,
    ) -> None:
        self.base, self.edits, self.count = base, edits, count
        self.reference = base if reference is None else reference
        self.window, self.rough = window, rough
        self.error: float | None = None
        self._whole: Similarity | None = None

    def take(self, start: int, stop: int) -> Similarity:
        """The request for the candidates start to stop."""
        edits = take_edits(self.edits, start, stop)
        part = Similarity(self.base, edits, stop - start, self.reference, self.window, self.rough)
        part._whole = self
        return part

    def is_within(self, error: float) -> None:
        """Note how far off the answer may be, for a part in the whole as well."""
        self.error = error
        if self._whole is not None:
            self._whole.is_within(error)


class Fill:
    """The words a masked language model finds most likely at each position, the most likely first.

    Span 0 opens a blank before the position, 1 blanks it, 2 blanks it together with the next. The model reads the field
    of the position: all of it, or as many tokens around the blank as it takes.

    Only tokens that are whole words count, and the `k` best of those are given. With `strip`, as in TextAttack, of the
    `k` best tokens that hold one word those are given that spell it and nothing else, pieces of words too, their mark
    taken off; two that then spell the same are given once. With `keep` the word stays where it
    is and the model is asked what else could be there: for every sub-word of it (`Fills.pieces`) the `k` best
    tokens of any kind, and as words those of them that are whole words, where the word there is a single sub-word.
    """

    __slots__ = ("base", "k", "keep", "positions", "span", "strip")

    def __init__(
        self,
        base: Draft,
        positions: NDArray[np.int32],
        k: int,
        span: int = REPLACE,
        keep: bool = False,
        strip: bool = False,
    ) -> None:
        self.base, self.positions, self.k, self.span, self.keep = base, positions, k, span, keep
        self.strip = strip


class Likelihood:
    """How likely a masked language model finds `words[i]` at `positions[i]`.

    (1 / n) * sum over its n sub-words of  log p(sub-word | the text with n blanks in its place)
    """

    __slots__ = ("base", "positions", "words")

    def __init__(self, base: Draft, positions: NDArray[np.int32], words: NDArray[np.int32]) -> None:
        self.base, self.positions, self.words = base, positions, words


class Gradient:
    """Gradient of the victim's cross-entropy for `label` with respect to its word embeddings, averaged over `draws`.

    `shared` takes the draws of `Score(draws=…)`, the others are drawn again for every request.
    """

    __slots__ = ("base", "draws", "label", "shared")

    def __init__(self, base: Draft, label: int, draws: int = 1, shared: bool = False) -> None:
        self.base, self.label, self.draws, self.shared = base, label, draws, shared


@dataclass(frozen=True, slots=True)
class Fills:
    """Answer to `Fill`: rows are padded with DELETE at probability 0."""

    words: NDArray[np.int32]  # [positions, k]
    probabilities: Floats  # [positions, k]
    pieces: tuple[tuple[Ints, Floats], ...] | None = None
    """With `keep`, for each position the tokens and their probabilities [sub-words of the word there, k]."""
    spelling: Spelling | None = None

    def words_of(self, token_ids: Ints) -> NDArray[np.int32]:
        """The word that each row [sub-words] of token ids spells, its marks taken off; DELETE if it is not one word."""
        assert self.spelling is not None
        return self.spelling.join(token_ids)


@dataclass(frozen=True, slots=True)
class TokenGradient:
    """Answer to `Gradient`; `position_of` says which word each token belongs to (-1: none).

    ``table @ values[i]`` is how fast the loss grows when token i is moved towards each token of the vocabulary.
    """

    values: Floats  # [tokens, width]
    position_of: NDArray[np.int32]  # [tokens]
    token_ids: Ints  # [tokens]
    table: Floats  # [vocabulary, width] the victim's word embeddings, shared by all answers
    words: NDArray[np.int32]  # [vocabulary] the word that each token spells, DELETE where it is not a whole word


Request = Score | Similarity | Fill | Likelihood | Gradient


def replacing(position: int, words: NDArray[np.int32]) -> Edits:
    """Edits: candidate i has `words[i]` at `position`."""
    edits = _one_each(len(words))
    edits[:, 1] = position
    edits[:, 3] = words
    return edits


def replacing_by(position: int, words: list[str], vocabulary: Vocabulary) -> Edits:
    """Edits: candidate i has the string `words[i]` at `position`."""
    if compiled.part is None:
        return replacing(position, vocabulary.ids(words))
    made = np.frombuffer(compiled.part.replacing(position, words, vocabulary.table, vocabulary.strings), np.int32)
    return made.reshape(-1, 4)


def at_each(positions: NDArray[np.int32], word: int, span: int = REPLACE) -> Edits:
    """Edits: candidate i has `word` at `positions[i]`."""
    edits = _one_each(len(positions))
    edits[:, 1] = positions
    edits[:, 3] = word
    if span != REPLACE:
        edits[:, 2] = span
    return edits


def take_edits(edits: Edits, start: int, stop: int) -> Edits:
    """The edits of the candidates start to stop, numbered from 0."""
    low, high = np.searchsorted(edits[:, 0], [start, stop])
    own = edits[low:high].copy()
    own[:, 0] -= start
    return own


def _one_each(count: int) -> Edits:
    """Edits of `count` candidates, one replacement each, positions and words still to be filled in."""
    if count <= len(_TEMPLATE):
        return _TEMPLATE[:count].copy()
    edits = np.zeros((count, 4), np.int32)
    edits[:, 0], edits[:, 2] = np.arange(count), REPLACE
    return edits


_TEMPLATE: Edits = np.zeros((1024, 4), np.int32)
_TEMPLATE[:, 0], _TEMPLATE[:, 2] = np.arange(1024), REPLACE

__all__ = [
    "DELETE", "INSERT", "MERGE", "NO_EDITS", "REPLACE", "UNKNOWN", "Edits", "Fill", "Fills", "Gradient", "Likelihood",
    "Request", "Score", "Similarity", "TokenGradient", "at_each", "replacing", "replacing_by", "take_edits",
]  # fmt: skip
