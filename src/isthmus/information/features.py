"""The outputs of a model for a set of texts, as the estimators use them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Features:
    """Features of N texts with M tokens in all, special tokens included; on the CPU, float32."""

    ids: Tensor  # [M], the tokens' numbers
    words: Tensor  # [M, embedding], what the table holds: x
    tokens: Tensor  # [M, width], what leaves the embedding block: t
    owner: Tensor  # [M], the text a token belongs to
    sentences: Tensor  # [N, hidden], the text's vector: z
    labels: Tensor  # [N], or [N, 2] of answers to questions
    logits: Tensor | None = None  # [N, classes], at the mean of the latent code where there is one
    mean: Tensor | None = None  # [N, latent]
    deviation: Tensor | None = None  # [N, latent]

    def __len__(self) -> int:
        return len(self.labels)

    def per_text(self, values: Tensor) -> Tensor:
        """The mean of token values over each text's tokens; texts without a token are left out."""
        sums = torch.zeros(len(self), dtype=torch.float64).index_add_(0, self.owner, values.double())
        counts = torch.bincount(self.owner, minlength=len(self))  # tokens of each text [N]
        return sums[counts > 0] / counts[counts > 0]
