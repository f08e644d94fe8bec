"""Label smoothing: soft targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, cross_entropy
from isthmus.defences.parts.perturbation import valid

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier


@dataclass(frozen=True)
class LabelSmoothing(Defence):
    """Label smoothing: cross-entropy with soft targets (Szegedy et al., 2016).

        loss = -Σ_c q_c log p(c | x),     q_c = (1 - epsilon) [c = y] + epsilon / classes

    References:
        Szegedy, Vanhoucke, Ioffe, Shlens and Wojna (2016), Rethinking the Inception Architecture for Computer Vision,
        https://arxiv.org/abs/1512.00567 (section 7)

    Where we depart:
        Nowhere: the doubt is spread over all classes, the true one included, as in the paper.

    Relations:
        Up to a constant it adds epsilon · KL(uniform || p); `confidence_penalty` adds KL in the other direction and
        lets the network choose where to be unsure. With epsilon = 0 it is `standard`. A gain under attack may only
        mean flatter scores that mislead a search by score: check it with an attack that sees labels alone.

    Example:
        ``train(data, backbone="minilm", defence=defences.LabelSmoothing(epsilon=0.2))``
    """

    epsilon: float = 0.1
    """Share of the target that is spread evenly over the classes."""

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 1:
            raise UsageError(f"label_smoothing: epsilon is {self.epsilon}; it must be at least 0 and less than 1")

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def objective(self, model: Classifier, output: Output, batch: Batch, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The cross-entropy against the smoothed target, instead of the plain one."""
        if self.epsilon == 0:
            return terms
        others = {name: value for name, value in terms.items() if name != "cross_entropy"}
        return {"smoothed_cross_entropy": self._smooth_loss(output, batch), **others}

    def _smooth_loss(self, output: Output, batch: Batch) -> Tensor:
        from torch.nn import functional

        logits = output.logits.float()
        if logits.dim() == 2:
            return functional.cross_entropy(logits, batch.labels, label_smoothing=self.epsilon)
        # The classes of an end of an answer are the tokens of its window: padding is none of them.
        tokens = valid(batch).transpose(1, 2).to(logits.dtype)
        evenly = -(logits.log_softmax(dim=-1) * tokens).sum(dim=-1) / tokens.sum(dim=-1)
        return (1 - self.epsilon) * cross_entropy(output, batch) + self.epsilon * evenly.mean()
