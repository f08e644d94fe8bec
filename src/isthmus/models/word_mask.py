"""Variational word masks: every word is kept with a learned probability, its importance.

    φ(w) = softmax(W₂ tanh(W₁ e(w) + b₁) + b₂)[1]        e(w): the word's row of the embedding table
    in training      x_i ← W_i x_i,  W_i ~ Bernoulli(φ(w_i)), straight through a Gumbel-softmax sample
    outside          x_i ← φ(w_i) x_i

Special tokens and padding are left alone. Outside training φ lies in a buffer over the vocabulary, written once after
the weights moved and looked up by id: it depends on the word and on nothing else, whatever embeddings are given in the
word's place. After the embedding block (`after_block`) φ reads what that block makes of the word, position and
normalisation included, as the released code does; then it is no property of the word, and there is no buffer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isthmus.core.errors import UsageError
from isthmus.models.slots import WordMask

if TYPE_CHECKING:
    from isthmus.models.backbones import Backbone


class VariationalWordMask(WordMask):
    """Learns the importance of each word; its own random stream leaves dropout masks as they are."""

    def __init__(
        self, width: int, vocabulary: int, hidden: int = 400, temperature: float = 1.0, after_block: bool = False
    ) -> None:
        super().__init__()
        if not (math.isfinite(temperature) and temperature > 0):
            raise UsageError(f"the temperature of the word masks is a number above 0, not {temperature}")
        self.width, self.vocabulary, self.hidden = int(width), int(vocabulary), int(hidden)
        self.temperature, self.after_block = float(temperature), bool(after_block)
        self.first, self.second = nn.Linear(self.width, self.hidden), nn.Linear(self.hidden, 2)
        self.importance: Tensor
        self.register_buffer("importance", torch.full((0 if after_block else self.vocabulary,), 0.5))
        self._is_current = False
        # Inside a tuple: the table belongs to the classifier and must not become a part of this module.
        self._table: tuple[nn.Embedding, ...] = ()

    def config(self) -> dict[str, Any]:
        """The arguments that build it again."""
        names = ("width", "vocabulary", "hidden", "temperature", "after_block")
        return {name: getattr(self, name) for name in names}

    def attach(self, backbone: Backbone) -> None:
        """Use the rows of the model's embedding table."""
        super().attach(backbone)
        table = backbone.table
        if not self.after_block and (table.num_embeddings, table.embedding_dim) != (self.vocabulary, self.width):
            raise UsageError(
                f"the word masks are for {self.vocabulary} words of width {self.width}, but the classifier has "
                f"{table.num_embeddings} of width {table.embedding_dim}"
            )
        self._table = (table,)

    @torch.no_grad()
    def begin_at(self, importance: float) -> None:
        """Initialise all words with about this importance."""
        half = math.log(importance / (1 - importance)) / 2
        self.second.bias.add_(torch.tensor([-half, half], device=self.second.bias.device))

    def forward(
        self, embeddings: Tensor, attention_mask: Tensor | None, special_mask: Tensor, input_ids: Tensor
    ) -> Tensor:
        """Embeddings times 0 or 1 in training, times φ outside."""
        if self.training:
            self._is_current = False
            factor = self._sample(self._gap_at(embeddings, input_ids))
        elif self.after_block:
            factor = torch.sigmoid(self.gap(embeddings))
        else:
            factor = self.factors()[input_ids]
        spared = special_mask if attention_mask is None else special_mask | (attention_mask == 0)
        factor = factor.masked_fill(spared, 1.0)
        return embeddings * factor.unsqueeze(-1).to(embeddings.dtype)

    def gap(self, vectors: Tensor) -> Tensor:
        """log φ / (1 - φ) of the network's input vectors, in float32 also under autocast."""
        with torch.autocast(vectors.device.type, enabled=False):
            outputs = self.second(torch.tanh(self.first(vectors.to(self.first.weight.dtype)))).float()
        gap: Tensor = outputs[..., 1] - outputs[..., 0]
        return gap

    def gap_of(self, ids: Tensor) -> Tensor:
        """The same for words by id, differentiable with respect to the network's weights."""
        # Not by calling the table: whoever listens there would take it for the words of a text.
        return self.gap(nn.functional.embedding(ids, self._require_table().weight.detach()))

    def factors(self) -> Tensor:
        """φ of every entry of the vocabulary, as used outside training."""
        if not self._is_current:
            self._refresh()
        return self.importance

    @property
    def scales_words(self) -> bool:
        """True, unless it depends on more than the word."""
        return not self.after_block

    def _gap_at(self, embeddings: Tensor, input_ids: Tensor) -> Tensor:
        return self.gap(embeddings) if self.after_block else self.gap_of(input_ids)

    def _sample(self, gap: Tensor) -> Tensor:
        """Draw 0 or 1 with the gradient of the Gumbel-softmax sample; with two classes that is a logistic draw."""
        uniform = self.stream.uniform(gap.detach()).clamp(min=2.0**-24, max=1 - 2.0**-24)
        soft = torch.sigmoid((gap + uniform.log() - (-uniform).log1p()) / self.temperature)
        hard = (soft.detach() > 0.5).to(soft.dtype)
        return hard + (soft - soft.detach())

    def _require_table(self) -> nn.Embedding:
        if not self._table:
            raise UsageError("word masks read a classifier's word embeddings: add them with Classifier.fill first")
        return self._table[0]

    @torch.no_grad()
    def _refresh(self) -> None:
        if not self.after_block:
            self.importance.copy_(torch.sigmoid(self.gap(self._require_table().weight.detach())))
        self._is_current = True

    # What is stored is always that of the weights it lies beside; what is read is used as it is, to the last bit.

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        if self._table and not self._is_current:
            self._refresh()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._is_current = f"{prefix}importance" in state_dict
