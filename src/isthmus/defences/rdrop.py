"""R-Drop: two passes under different dropout masks must agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from isthmus.core import progress
from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Labelled, Terms, pass_terms
from isthmus.defences.parts.checks import at_least
from isthmus.defences.parts.smoothness import symmetric_kl

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class RDrop(Defence):
    """R-Drop: the predictions of two dropout passes must agree (Liang et al., 2021).

        loss = ½ [-log p₁(y | x) - log p₂(y | x)] + α/4 · [KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)]

    p₁ and p₂ are the same model with the same weights under two dropout masks.

    References:
        Liang, Wu, Li, Wang, Meng, Qin, Chen, Zhang and Liu (2021), R-Drop: Regularized Dropout for Neural Networks,
        https://arxiv.org/abs/2106.14448

    Where we depart:
        The paper's loss is twice this one: halved, it has the size of the plain loss, and clipping and rate mean what
        they mean there. A model without dropout has one prediction and not two; it is then trained as `standard` does,
        and told so.

    Relations:
        `alum` compares the clean pass with a perturbed one under the same masks instead. With strength = 0 it is
        `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.RDrop(strength=1.0))``
    """

    takes_objective = True

    strength: float = 1.0
    """Weight of the divergence (α)."""

    def __post_init__(self) -> None:
        at_least(self.name, "strength", self.strength, 0)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Check that the model has dropout; nothing is added to it."""
        if self.strength and not drops(model):
            progress.note("rdrop: this model has no dropout, so both passes are equal: it is trained as by `standard`")

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Compute both passes as one pass over twice the batch."""
        if not self.strength or not drops(model):
            yield from Defence.losses(self, model, batch)
            return
        import torch

        twice = {name: torch.cat([value, value]) for name, value in batch.inputs.items()}
        output: Output = model(**twice)
        both = replace(batch, inputs=twice, labels=torch.cat([batch.labels, batch.labels]))
        first, second = output.logits.chunk(2)
        agreement = self.strength / 4 * symmetric_kl(first, second)
        yield Terms({**pass_terms(model, output, both), "agreement": agreement})


def drops(model: Classifier) -> bool:
    """Whether any layer of the model has dropout."""
    from torch import nn

    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return True
        # Attention and recurrent layers keep a rate and no layer of their own.
        rates = [value for name, value in vars(module).items() if "dropout" in name and isinstance(value, float)]
        if any(rate > 0 for rate in rates):
            return True
    return False
