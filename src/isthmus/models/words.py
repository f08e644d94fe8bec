"""Word-level classifiers: a recurrent and a convolutional network over GloVe vectors.

    lstm: h_1 … h_n = LSTM(e_1 … e_n);  pooled = max over t of h_t
    cnn:  c_k = ReLU(Conv_k(e)) for widths k;  pooled = max over t of [c_3; c_4; c_5]

Sizes are those of Chen and Ji (2022): 300 hidden units, and 200 filters each of widths 3, 4 and 5. Words come from a
word-level tokenizer in transformers' form, so that ids, splicing and saving work as for any other model. Padding and
the mask token are zero vectors.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.errors import AssetError, UnknownName, UsageError
from isthmus.models.backbones import Backbone, Encoded, Parts
from isthmus.models.copying import rows_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from isthmus.lexicon.vectors import WordVectors

SPECIALS = ("[PAD]", "[UNK]", "[SEP]", "[MASK]")
PAD, UNKNOWN, SEPARATOR, MASK = range(4)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Valid `options` of `Classifier.create` for ``lstm`` and ``cnn``."""

    vectors: str | None = "glove"
    """Asset or file of word vectors; None starts from random ones."""

    width: int = 50
    """Width of the word embeddings where no vectors are used."""

    frozen: bool = False
    """Whether word embeddings stay as they are while training."""

    hidden: int = 300
    """Hidden units of the LSTM."""

    bidirectional: bool = False
    """Whether a second LSTM reads from the end."""

    filters: int = 200
    """Filters of each width of the CNN."""

    widths: tuple[int, ...] = (3, 4, 5)
    """Widths of the CNN's filters, in words."""

    dropout: float = 0.2
    """Dropout on embeddings and on the pooled vector."""

    vocabulary: int = 50_000
    """Most frequent words kept."""

    least: int = 1
    """How often a word must occur to be kept."""

    more: int = 0
    """Words of the vectors, the most frequent first, that are added though no text has them."""


class WordBackbone(Backbone):
    """Shared by both networks: the embedding table and dropout."""

    def __init__(self, vocabulary: int, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.depth = 1
        self.embedding = nn.Embedding(vocabulary, sizes.width, padding_idx=PAD)
        self.embedding.weight.requires_grad_(not sizes.frozen)
        self.dropout = nn.Dropout(sizes.dropout)
        with torch.no_grad():
            self.embedding.weight[MASK].zero_()

    @property
    def table(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding

    def options(self) -> dict[str, Any]:
        """JSON-able sizes."""
        return asdict(self.sizes)

    def forward(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, types: Tensor | None, hidden: bool
    ) -> Encoded:
        """The maximum over the positions that are not padding."""
        if embeddings is None:
            embeddings = self.embedding(ids)
        states = self.read(self.dropout(embeddings), mask)
        seen = states
        if mask is not None:
            seen = states.masked_fill(rows_of(mask, states).unsqueeze(-1) == 0, -torch.inf)
        pooled = self.dropout(seen.amax(dim=1))
        return Encoded(pooled, (embeddings, states) if hidden else None)

    def read(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        """A vector for every position."""
        raise NotImplementedError


class Recurrence(nn.Module):
    """An LSTM whose output at a position does not depend on padding."""

    def __init__(self, width: int, hidden: int, bidirectional: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=bidirectional)

    def forward(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states [batch, length, hidden]."""
        # Read forwards, padding comes after every word and cannot reach it.
        if mask is None or not self.lstm.bidirectional:
            return self.lstm(embeddings)[0]  # type: ignore[no-any-return]
        packed = nn.utils.rnn.pack_padded_sequence(
            embeddings, mask.sum(dim=1).clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = self.lstm(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=embeddings.shape[1])
        return padded


class LSTMBackbone(WordBackbone):
    """An LSTM whose hidden states are max-pooled."""

    form = "lstm"

    def __init__(self, vocabulary: int, sizes: Sizes) -> None:
        super().__init__(vocabulary, sizes)
        self.recurrence = Recurrence(sizes.width, sizes.hidden, sizes.bidirectional)
        self.hidden_size = self.pooled_size = sizes.hidden * (2 if sizes.bidirectional else 1)

    def blocks(self) -> list[nn.Module]:
        """The recurrence is its only block."""
        return [self.recurrence]

    def read(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden states."""
        return self.recurrence(embeddings, mask)  # type: ignore[no-any-return]


class Convolutions(nn.Module):
    """Filters of several widths, each over a window centred on a position; beyond the text there are zeros."""

    def __init__(self, width: int, filters: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.filters = nn.ModuleList(nn.Conv1d(width, filters, size) for size in widths)

    def forward(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        """Filter outputs [batch, length, filters * widths]."""
        if mask is not None:
            embeddings = embeddings * mask.unsqueeze(-1).to(embeddings.dtype)
        columns = embeddings.transpose(1, 2)
        outputs = [
            torch.relu(layer(_pad_to_centre(columns, size)))
            for layer, size in zip(self.filters, self.widths, strict=True)
        ]
        return torch.cat(outputs, dim=1).transpose(1, 2)


def _pad_to_centre(columns: Tensor, size: int) -> Tensor:
    return nn.functional.pad(columns, ((size - 1) // 2, size // 2))


class CNNBackbone(WordBackbone):
    """Convolutions over words, max-pooled."""

    form = "cnn"

    def __init__(self, vocabulary: int, sizes: Sizes) -> None:
        super().__init__(vocabulary, sizes)
        self.convolutions = Convolutions(sizes.width, sizes.filters, sizes.widths)
        self.hidden_size = self.pooled_size = sizes.filters * len(sizes.widths)

    def blocks(self) -> list[nn.Module]:
        """The convolutions are its only block."""
        return [self.convolutions]

    def read(self, embeddings: Tensor, mask: Tensor | None) -> Tensor:
        """Filter outputs."""
        return self.convolutions(embeddings, mask)  # type: ignore[no-any-return]


FORMS: dict[str, type[WordBackbone]] = {"lstm": LSTMBackbone, "cnn": CNNBackbone}


def build(form: str, vocabulary: int, options: Mapping[str, Any]) -> WordBackbone:
    """Make an untrained backbone of the given sizes."""
    return FORMS[form](vocabulary, sizes_of(options))


def sizes_of(options: Mapping[str, Any]) -> Sizes:
    """Check options and convert them to sizes."""
    known = {field.name for field in fields(Sizes)}
    for name in options:
        if name not in known:
            raise UnknownName("option of a word-level classifier", name, known)
    sizes = Sizes(**{**options, "widths": tuple(options.get("widths", Sizes().widths))})
    for name in ("width", "hidden", "filters", "vocabulary", "least"):
        if not isinstance(getattr(sizes, name), int) or getattr(sizes, name) < 1:
            raise UsageError(f"{name} is a positive whole number, not {getattr(sizes, name)!r}")
    if not isinstance(sizes.more, int) or sizes.more < 0:
        raise UsageError(f"more is a whole number that is at least 0, not {sizes.more!r}")
    if not sizes.widths or any(not isinstance(size, int) or size < 1 for size in sizes.widths):
        raise UsageError(f"widths are positive whole numbers, not {list(sizes.widths)}")
    return sizes


def find_parts(
    form: str,
    *,
    seed: int,
    max_tokens: int | None,
    texts: Sequence[str] | None,
    options: Mapping[str, Any],
) -> Parts:
    """Make an untrained word-level network with the vocabulary of `texts`."""
    if not texts:
        raise UsageError(f"the backbone {form!r} builds its vocabulary from the training texts: pass texts=")
    sizes = sizes_of(options)
    known = _word_vectors(sizes)
    tokenizer = word_tokenizer(texts, sizes.vocabulary, sizes.least, _more(known, sizes.more), sizes.more)
    vectors = None if known is None else _read_table(known, tokenizer, seed)
    if vectors is not None:
        sizes = sizes_of({**asdict(sizes), "width": vectors.shape[1]})
    with seed_initialisation(seed, "backbone"):
        backbone = FORMS[form](len(tokenizer), sizes)
    if vectors is not None:
        with torch.no_grad():
            backbone.embedding.weight.copy_(vectors)
            backbone.embedding.weight[[PAD, MASK]] = 0.0
    limit = max_tokens or 256
    tokenizer.model_max_length = limit
    return Parts(backbone, tokenizer, limit)


def word_tokenizer(
    texts: Iterable[str], size: int, least: int, others: Sequence[str] = (), more: int = 0
) -> PreTrainedTokenizerBase:
    """Make a tokenizer of lower-case words and punctuation marks; the most frequent first, ties in alphabetical order.

    Behind them come the first `more` of the `others` that are not there yet.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    splitter = pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    kept = sorted((word for word, n in counts.items() if n >= least), key=lambda word: (-counts[word], word))
    words = [word for word in kept if word not in SPECIALS][: max(size - len(SPECIALS), 0)]
    there = {*SPECIALS, *words}
    new = (word for word in dict.fromkeys(others) if word not in there and _is_one(word, normalizer, splitter))
    words += itertools.islice(new, more)
    vocabulary = {word: index for index, word in enumerate([*SPECIALS, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    # The separator at the end leaves an empty text one token to read.
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", SEPARATOR)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", sep_token="[SEP]", mask_token="[MASK]"
    )


def _is_one(word: str, normalizer: Any, splitter: Any) -> bool:
    """Whether the tokenizer can produce this word."""
    return [found for found, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word))] == [word]


def _word_vectors(sizes: Sizes) -> WordVectors | None:
    """The initial word vectors; None, with a warning, if the asset is not available."""
    from isthmus.lexicon.vectors import WordVectors

    if sizes.vectors is None:
        return None
    try:
        return WordVectors.load(sizes.vectors)
    except AssetError as error:
        warnings.warn(f"word embeddings start from random values: {error}", stacklevel=4)
        return None


def _more(vectors: WordVectors | None, count: int) -> Sequence[str]:
    if count and vectors is None:
        raise UsageError(f"{count} more words were asked for, but there are no word vectors to take them from")
    return vectors.words if count and vectors is not None else ()


def _read_table(vectors: WordVectors, tokenizer: PreTrainedTokenizerBase, seed: int) -> Tensor:
    """Read the vectors of the vocabulary."""
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    return torch.from_numpy(vectors.matrix_for(words, seed=seed))
