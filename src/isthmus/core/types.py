"""The types that all layers share, and the protocols by which lower layers use a model.

Engine, attacks and explanations never import a model class: they see it as a `Victim` (texts in, probabilities out),
a `TokenVictim` (token ids in, probabilities out), a `Differentiable`, a `SentenceEncoder` or a `MaskedLM`. Whoever
calls them hands the model in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]
Doubles = NDArray[np.float64]
Keys = NDArray[np.uint64]
"""What random draws are made from, one for each row."""

Autocast = Callable[[], AbstractContextManager[object]]
"""Makes the context in which a model computes in mixed precision."""

Field = str | NDArray[Any]
"""One part of an input: a text, or an array (an image)."""

Texts = Mapping[str, str]
"""The text fields of one input in reading order, such as ``{"premise": ..., "hypothesis": ...}``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One acceptable answer of a question-answering example."""

    start: int
    text: str


Label = int | tuple[Answer, ...]
"""A class index, or the acceptable answers of a question."""


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled input. `fields` are in the order in which the model reads them.

    >>> from isthmus import Example
    >>> Example("test:0", {"text": "a lovely film"}, 1).texts
    {'text': 'a lovely film'}
    """

    id: str
    fields: Mapping[str, Field]
    label: Label

    @property
    def texts(self) -> dict[str, str]:
        """The text fields, in reading order."""
        return {name: value for name, value in self.fields.items() if isinstance(value, str)}

    @property
    def inputs(self) -> dict[str, Any]:
        """The victim's input: the texts, or the array of an image."""
        return self.texts or dict(self.fields)


OUTSIDE = -1e4
"""Logit of a position that is only padding."""


@dataclass(slots=True)
class Output:
    """Output of a model's forward pass.

    Question answering has logits of shape [batch, 2, length]: where the answer begins and where its last token is.
    Padding has the finite, very low logit `OUTSIDE`, so that a softmax over the length gives it nothing.
    """

    logits: torch.Tensor  # [batch, classes]
    embeddings: torch.Tensor | None = None  # [batch, length, width], the word embeddings that went in
    hidden: tuple[torch.Tensor, ...] | None = None  # per layer [batch, length, width]; hidden[0] = embedding block
    latent: Any = None  # what the bottleneck slot made of the pooled vector


@dataclass(slots=True)
class TokenBatch:
    """Token rows for one forward pass.

    `mask` is None when every row fills the whole length (the engine packs rows of equal length), `types` is None for
    single texts or tokenizers without segment ids. `keys` gives every row its own stream of randomness: a stochastic
    victim draws its noise from it and from nothing else.
    """

    ids: Ints  # [rows, length]
    mask: Ints | None = None  # [rows, length], 1 = token, 0 = padding
    types: Ints | None = None  # [rows, length]
    keys: NDArray[np.uint64] | None = None  # [rows]


Pending = Callable[[], Floats]
"""Work that was started: call it to wait for the rows [rows, classes]."""

Filling = Callable[[], tuple[Ints, Floats]]
"""Blanks that are being filled: call it to wait for tokens and their probabilities, two [blanks, k] arrays."""


ABSTAINS = "(abstains)"
"""The last label of a victim that may decline to answer; where it is the most likely, the victim declined."""


@runtime_checkable
class Victim(Protocol):
    """A classifier as a black box: texts in, class probabilities out.

    >>> from isthmus import Victim, load_victim
    >>> isinstance(load_victim(lambda texts: [[0.5, 0.5] for _ in texts]), Victim)
    True
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names; their order is the order of the columns of `scores`."""

    @property
    def stochastic(self) -> bool:
        """Whether the same text may get different scores."""

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities, one row per text; `keys` as in `TokenBatch`.

        A row the model could not score may hold NaN; a victim that fails as a whole raises `VictimError`.
        """


@runtime_checkable
class TokenVictim(Victim, Protocol):
    """A victim that also takes token ids, so that the engine can splice instead of re-tokenising."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer whose ids `launch` takes."""

    @property
    def max_tokens(self) -> int:
        """Longest row that the model reads, special tokens included; longer inputs are truncated."""

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``: decides how the engine packs batches."""

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        """Launch the scoring; the pending result holds the rows of all batches, in order.

        `exact` asks for float32 arithmetic where the victim otherwise scores in bfloat16.
        """


@runtime_checkable
class Differentiable(Protocol):
    """A victim whose loss can be differentiated with respect to its word embeddings."""

    def embedding_gradients(
        self, batch: TokenBatch, labels: Ints, *, draws: int = 1, as_scored: bool = False
    ) -> Floats:  # [rows, length, width]
        """Gradient of the cross-entropy of each row, averaged over `draws` of the victim's own randomness.

        `as_scored` takes the draw with which `launch` scores a row of the same key, in place of other draws; only a
        stochastic victim is asked for it.
        """

    def embedding_table(self) -> Floats:
        """Word-piece embeddings [vocabulary, width]."""


@runtime_checkable
class Voting(Protocol):
    """A victim that may answer with shares of votes, which stay constant as long as all votes agree."""

    @property
    def graded(self) -> Victim | None:
        """A victim with the same labels that answers a key with the mean of the same draws instead of their votes.

        None where the victim's own answers are such means. Its answers are for climbing: no success counts by them.
        """


@runtime_checkable
class SentenceEncoder(Protocol):
    """Maps texts to unit vectors whose inner product is their similarity."""

    @property
    def name(self) -> str:
        """Its name, shown with every result that used it."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """Unit vectors [texts, width]; a text that cannot be encoded is an error, never NaN."""


@runtime_checkable
class TokenEncoder(SentenceEncoder, Protocol):
    """A sentence encoder that also takes token ids, so that the engine can splice instead of writing texts out."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer whose ids `launch` takes."""

    @property
    def max_tokens(self) -> int:
        """Longest row it reads, special tokens included."""

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def width(self) -> int:
        """Length of a vector."""

    def launch(self, batches: Sequence[TokenBatch]) -> Pending:
        """Launch the encoding; the pending result holds the unit vectors of all rows, in order. A row may be NaN."""


@runtime_checkable
class RoughEncoder(TokenEncoder, Protocol):
    """A sentence encoder that is faster where a small error does no harm."""

    @property
    def rough_error(self) -> float | None:
        """Largest error of a cosine of two rough vectors; None where nothing is gained."""

    def launch_roughly(self, batches: Sequence[TokenBatch]) -> Pending:
        """Launch the encoding in fast arithmetic. A row may be NaN."""


@runtime_checkable
class MaskedLM(Protocol):
    """Fills blanks. A blank is written as the tokenizer's mask token."""

    @property
    def name(self) -> str:
        """Its name, shown with every result that used it."""

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its own tokenizer, which need not be the victim's."""

    def fill(self, batch: TokenBatch, positions: Ints, k: int) -> tuple[Ints, Floats]:
        """For each row the `k` most likely tokens at its position, and their probabilities: two [rows, k] arrays."""


@runtime_checkable
class TokenMaskedLM(MaskedLM, Protocol):
    """A masked language model that takes any number of blanks per row and runs asynchronously.

    Blank i is the token at `places[i]` of row `rows[i]`, counted over all batches.
    """

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""

    @property
    def max_tokens(self) -> int:
        """Longest row it reads, special tokens included."""

    def launch_fill(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, k: int, allowed: Bools) -> Filling:
        """Launch the search for the `k` most likely allowed tokens (`allowed` is [vocabulary]) at every blank.

        Probabilities are those among all tokens; where fewer than `k` are allowed the rest have probability 0.
        """

    def launch_likelihood(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, tokens: Ints) -> Pending:
        """Launch the computation of log p(tokens[i] | row) at every blank; the pending result is [blanks]."""


@dataclass(frozen=True, slots=True)
class Classification:
    """The task of giving one of `labels` to the texts in `fields` (one field, or two for a pair)."""

    labels: tuple[str, ...]
    fields: tuple[str, ...] = ("text",)

    name: str = field(default="classification", init=False)

    def predictions(self, scores: Floats) -> Ints:
        """The most likely class of each row."""
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)

    def metrics(self, scores: Floats, labels: Ints) -> dict[str, float]:
        """Accuracy of a batch of scores."""
        return {"accuracy": float((self.predictions(scores) == labels).mean()) if len(labels) else float("nan")}


@dataclass(frozen=True, slots=True)
class QuestionAnswering:
    """The task of finding in a context the span that answers a question.

    A context longer than the model reads is cut into windows that overlap; `stride` is the number of tokens by which
    one window lies further on than the one before.
    """

    fields: tuple[str, ...] = ("question", "context")
    stride: int = 128

    name: str = field(default="qa", init=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """Empty: there are no classes."""
        return ()


@dataclass(frozen=True, slots=True)
class ImageClassification(Classification):
    """The task of giving one of `labels` to an image, or to a vector of features.

    An image has the shape (channels, height, width) and pixels in [0, 1]; a vector has the shape (width,).
    """

    fields: tuple[str, ...] = ("image",)
    shape: tuple[int, ...] = ()

    name: str = field(default="images", init=False)

    @property
    def has_pixels(self) -> bool:
        """Whether inputs are images, not vectors of any range."""
        return len(self.shape) == 3


Task = Classification | QuestionAnswering
"""What outputs mean."""
