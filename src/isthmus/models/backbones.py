"""The networks under a classifier, with one interface: ids or embeddings in, one vector per text out.

For question answering there is one vector per token instead (`SpanBackbone`, `SpanEncoderBackbone`).

`StockBackbone` wraps a whole ``AutoModelForSequenceClassification`` and returns its logits; with its last linear layer
taken away it returns the vector that layer would have read. `EncoderBackbone` wraps an encoder without a usable stock
classifier (T5) and returns the mean of the last hidden states. `words.py` has the recurrent and convolutional ones.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from isthmus.arithmetic.transfer import attention_mask
from isthmus.core.errors import ModelError
from isthmus.models.copying import rows_of

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


_TOKENS_FIRST = ("xlnet",)
"""Kinds of encoders that compute on [token, text, width] inside, and take the last token for the whole text."""


class Encoded(NamedTuple):
    """One vector per text, and on request the hidden states of every block.

    Of question answering: logits [batch, 2, length] if it has its own head, else states [batch, length, pooled_size].
    """

    vector: Tensor  # [batch, classes] if the backbone has its own head, else [batch, pooled_size]
    hidden: tuple[Tensor, ...] | None


class Parts(NamedTuple):
    """The parts of a new classifier."""

    backbone: Backbone
    tokenizer: PreTrainedTokenizerBase
    max_tokens: int


class Backbone(nn.Module, ABC):
    """Base of all backbones."""

    form: str
    """How it is stored: ``stock``, ``encoder``, ``lstm`` or ``cnn``."""

    has_head: bool = False
    """Whether its vectors are logits already."""

    accepts_types: bool = False
    """Whether it reads segment ids."""

    tokens_first: bool = False
    """Whether its blocks hand on [token, text, width], with padding before the tokens, and not [text, token, width]."""

    pooled_size: int
    hidden_size: int
    depth: int

    @property
    @abstractmethod
    def table(self) -> nn.Embedding:
        """The word embeddings."""

    def entrances(self) -> list[nn.Module]:
        """The modules that look up words: T5 and similar models hold the same table several times."""
        shared = self.table.weight
        return [module for module in self.modules() if isinstance(module, nn.Embedding) and module.weight is shared]

    def embedding_block(self) -> nn.Module | None:
        """The module that makes the encoder's input from ids or word embeddings, if there is one."""
        return None

    @abstractmethod
    def blocks(self) -> list[nn.Module]:
        """The modules after which noise may be added, each once; a shared block is called several times."""

    @abstractmethod
    def forward(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, types: Tensor | None, hidden: bool
    ) -> Encoded:
        """Encode ids, or embeddings if given."""

    def encoder(self) -> tuple[PreTrainedModel, str] | None:
        """The part that transformers can save and load, and the prefix of its parameter names."""
        return None

    def options(self) -> dict[str, Any]:
        """JSON-ready sizes, if no config.json holds them."""
        return {}

    def own_head(self) -> nn.Linear:
        """The linear layer that computes the logits, if the backbone has one."""
        raise ModelError(f"the {self.form} backbone has no head of its own")

    def take_head_away(self) -> None:
        """Let `forward` return pooled vectors from now on."""
        raise ModelError(f"the {self.form} backbone has no head of its own")


class StockBackbone(Backbone):
    """A stock sequence classifier of transformers."""

    form = "stock"
    has_head = True

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.hidden_size, self.depth = int(model.config.hidden_size), int(model.config.num_hidden_layers)
        self._head_path, head = _last_linear(model)
        self.pooled_size = head.in_features
        self.accepts_types = _accepts_types(model.base_model)
        self.tokens_first = model.config.model_type in _TOKENS_FIRST

    @property
    def table(self) -> nn.Embedding:
        """The word embeddings."""
        return _find_table(self.model)

    def blocks(self) -> list[nn.Module]:
        """The encoder's blocks."""
        return encoder_blocks(self.model.base_model, self.model.config)

    def embedding_block(self) -> nn.Module | None:
        """The embedding module of BERT and similar models: words, positions, normalisation."""
        block, table = getattr(self.model.base_model, "embeddings", None), self.table
        if self.tokens_first or not isinstance(block, nn.Module) or block is table:
            return None
        return block if any(module is table for module in block.modules()) else None

    def encoder(self) -> tuple[PreTrainedModel, str]:
        """The classifier without its head."""
        inner: Any = self.model.base_model
        return inner, f"model.{self.model.base_model_prefix}."

    def own_head(self) -> nn.Linear:
        """The last linear layer."""
        head = self.model.get_submodule(self._head_path)
        assert isinstance(head, nn.Linear)
        return head

    def take_head_away(self) -> None:
        """Replace the last linear layer by the identity."""
        self.model.set_submodule(self._head_path, nn.Identity())
        self.has_head = False

    def forward(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, types: Tensor | None, hidden: bool
    ) -> Encoded:
        """Logits, or the pooled vector once the head is removed."""
        if self.tokens_first and embeddings is None:
            # It would look words up as [token, text], and whoever listens at the table would see them so.
            embeddings = self.table(ids)
        order = None
        if self.tokens_first and mask is not None and embeddings is not None:
            # Its summary is the last token, which must not be padding: padding goes to the left, where it belongs.
            order = mask.argsort(dim=1, stable=True)
            embeddings, mask = _reorder(embeddings, order), _reorder(mask, order)
            types = None if types is None else _reorder(types, order)
        inputs = _inputs(ids, embeddings, types if self.accepts_types else None, hidden)
        output = self.model(attention_mask=attention_mask(self.model, mask), **inputs)
        states = output.hidden_states if hidden else None
        if order is None:
            return Encoded(self._logits(output), states)
        back = order.argsort(dim=1)
        return Encoded(
            self._logits(output, back), None if states is None else tuple(_reorder(each, back) for each in states)
        )

    def _logits(self, output: Any, back: Tensor | None = None) -> Tensor:
        """Logits of the head; `back` restores the original order of tokens."""
        logits: Tensor = output.logits
        return logits


class SpanBackbone(StockBackbone):
    """A stock question answerer of transformers."""

    def take_head_away(self) -> None:
        """Raise: the span head reads all tokens, and a bottleneck needs one vector per text."""
        raise ModelError(f"the span head of {type(self.model).__name__} cannot be taken away")

    def _logits(self, output: Any, back: Tensor | None = None) -> Tensor:
        logits = torch.stack((output.start_logits, output.end_logits), dim=1)
        return logits if back is None else logits.gather(2, back.unsqueeze(1).expand_as(logits))


class EncoderBackbone(Backbone):
    """An encoder whose last hidden states are averaged over the tokens that are not padding."""

    form = "encoder"

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.hidden_size = self.pooled_size = int(model.config.hidden_size)
        self.depth = int(model.config.num_hidden_layers)
        self.accepts_types = _accepts_types(model)
        rates = (getattr(model.config, name, None) for name in ("dropout_rate", "hidden_dropout_prob", "dropout"))
        self.dropout = nn.Dropout(float(next((rate for rate in rates if rate is not None), 0.0)))

    @property
    def table(self) -> nn.Embedding:
        """The word embeddings."""
        return _find_table(self.model)

    def blocks(self) -> list[nn.Module]:
        """The encoder's blocks."""
        return encoder_blocks(self.model, self.model.config)

    def encoder(self) -> tuple[PreTrainedModel, str]:
        """The whole encoder."""
        return self.model, "model."

    def forward(
        self, ids: Tensor | None, embeddings: Tensor | None, mask: Tensor | None, types: Tensor | None, hidden: bool
    ) -> Encoded:
        """The mean of the last hidden states."""
        inputs = _inputs(ids, embeddings, types if self.accepts_types else None, hidden)
        output = self.model(attention_mask=mask, **inputs)
        pooled = self._pool(output.last_hidden_state, mask)
        return Encoded(self.dropout(pooled), output.hidden_states if hidden else None)

    def _pool(self, states: Tensor, mask: Tensor | None) -> Tensor:
        return mean_pool(states, mask)


class SpanEncoderBackbone(EncoderBackbone):
    """An encoder whose last hidden states are kept token by token."""

    def _pool(self, states: Tensor, mask: Tensor | None) -> Tensor:
        return states


def _reorder(values: Tensor, order: Tensor) -> Tensor:
    """Reorder the tokens of rows [batch, length, ...]."""
    places = order if values.dim() == 2 else order.unsqueeze(-1).expand(-1, -1, values.shape[-1])
    return values.gather(1, places)


def _inputs(ids: Tensor | None, embeddings: Tensor | None, types: Tensor | None, hidden: bool) -> dict[str, Any]:
    """Keyword arguments for transformers, without those that are None."""
    inputs: dict[str, Any] = {"input_ids": ids} if embeddings is None else {"inputs_embeds": embeddings}
    if types is not None:
        inputs["token_type_ids"] = types
    if hidden:
        inputs["output_hidden_states"] = True
    return inputs


def mean_pool(hidden: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the tokens of each row that are not padding."""
    if mask is None:
        return hidden.mean(dim=1)
    weight = rows_of(mask, hidden).unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)


def encoder_blocks(encoder: nn.Module, config: PretrainedConfig) -> list[nn.Module]:
    """The blocks of any encoder: its first list of modules with one entry per layer (per group, in ALBERT)."""
    depth = int(config.num_hidden_layers)
    lists = [module for module in encoder.modules() if isinstance(module, nn.ModuleList)]
    for wanted in (depth, getattr(config, "num_hidden_groups", depth)):
        for candidate in lists:
            if len(candidate) == wanted:
                return list(candidate)
    raise ModelError(f"cannot find the {depth} blocks of {type(encoder).__name__}, so noise cannot be put on them")


def _find_table(model: PreTrainedModel) -> nn.Embedding:
    table = model.get_input_embeddings()
    if not isinstance(table, nn.Embedding):
        raise ModelError(f"{type(model).__name__} has no plain table of word embeddings")
    return table


def _last_linear(model: PreTrainedModel) -> tuple[str, nn.Linear]:
    inside = {id(module) for module in model.base_model.modules()}
    found = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and id(module) not in inside and module.out_features == model.config.num_labels
    ]
    if not found:
        raise ModelError(f"{type(model).__name__} does not end in a linear layer, so it cannot be used as a classifier")
    return found[-1]


def _accepts_types(encoder: nn.Module) -> bool:
    takes = "token_type_ids" in inspect.signature(encoder.forward).parameters
    return takes and int(getattr(encoder.config, "type_vocab_size", 2)) > 1
