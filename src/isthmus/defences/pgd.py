"""Adversarial training: train on the last step of a gradient ascent in the word embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.defences.base import Batch, Defence, Terms, cross_entropy, pass_terms
from isthmus.defences.parts.perturbation import Ascent, Climb

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class PGD(Ascent):
    """Adversarial training: the loss at the worst perturbation that a few steps find (Madry et al., 2018).

        loss = (1 - c) · -log p(y | e + δ_S) + c · -log p(y | e),     δ_{s+1} = Π(δ_s + a · g_s / ‖g_s‖)

    References:
        Madry, Makelov, Schmidt, Tsipras and Vladu (2018), Towards Deep Learning Models Resistant to Adversarial
        Attacks, https://arxiv.org/abs/1706.06083
        Miyato, Dai and Goodfellow (2017), Adversarial Training Methods for Semi-Supervised Text Classification,
        https://arxiv.org/abs/1605.07725

    Where we depart:
        The perturbation lives in the word embeddings, in an L2 ball over the whole sequence, instead of in pixels, and
        steps have a fixed length along the gradient instead of along its sign. Half of the loss is that of the clean
        text; the paper has none of it (``clean=0``), which cost a CNN 4 points on Rotten Tomatoes (one seed). Lengths
        are multiples of the mean norm of the text's word vectors. Dropout masks are shared by all passes.

    Relations:
        `freelb` uses the gradients of all steps for training and is cheaper. With steps = 0 it is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.PGD(steps=3))``
    """

    takes_objective = True

    clean: float = 0.5
    """Share of the loss at the clean embeddings."""

    def __post_init__(self) -> None:
        if self.steps != 0:
            super().__post_init__()
        if not 0 <= self.clean <= 1:
            raise UsageError(f"pgd: clean is {self.clean}; it is a share from 0 to 1")

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Climb with gradients of the perturbation alone; then yield one term at its end."""
        if self.steps == 0:
            yield from Defence.losses(self, model, batch)
            return
        import torch

        climb = Climb(self, model, batch)
        for _ in range(self.steps):
            loss = cross_entropy(climb.forward(), batch)
            climb.step(torch.autograd.grad(loss, climb.delta)[0])
        climb.delta.requires_grad_(False)
        if self.clean:
            climb.dice.restore()
            values = pass_terms(model, model(**batch.inputs), batch)
            yield Terms({name: self.clean * value for name, value in values.items()})
        if self.clean < 1:
            values = pass_terms(model, climb.forward(last=True), batch)
            yield Terms({f"adversarial_{name}": (1 - self.clean) * value for name, value in values.items()})
