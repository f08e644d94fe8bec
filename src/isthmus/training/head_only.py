"""The last part of a classifier, as a model of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from isthmus.core.types import Output

if TYPE_CHECKING:
    from isthmus.models import Classifier


class HeadOnly(nn.Module):
    """The last part of a classifier, as a model of its own; training it trains the classifier."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.bottleneck = model.slots.bottleneck
        self.head = last_layer(model)
        self.companions = model.companions

    def forward(self, vectors: Tensor) -> Output:
        """Logits of the vectors."""
        latent = None
        if self.bottleneck is not None:
            latent = self.bottleneck(vectors)
            vectors = latent.sample
        return Output(self.head(vectors), latent=latent)


def last_layer(model: Classifier) -> nn.Module:
    """The linear layer that computes the logits."""
    return model.head if model.head is not None else model.backbone.own_head()
