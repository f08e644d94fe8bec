"""How much predictions change under the worst small perturbation of the word embeddings.

smoothness(x) = max_{δ small} KL_sym(p(· | e + δ), p(· | e)),     KL_sym(p, q) = KL(p ‖ q) + KL(q ‖ p)

paper       δ ← clip(δ + η · g / ‖g‖_∞, -ε, ε)                    ‖·‖_∞ over the sequence
released    δ ← (δ + η · g) / ‖δ + η · g‖_∞                       per token: perturbations of size one

The gradient g is that of a divergence which vanishes at δ = 0, so that the start decides how much of it is left above
rounding: a start of 1e-5 is at the edge of float32, and in bfloat16 the search climbs little better than at random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from isthmus.core.types import Output
from isthmus.defences._ascent import Dice, valid
from isthmus.defences._checks import at_least, needs_words, one_of, whole
from isthmus.defences.base import Batch, Defence, Labelled

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.models import Classifier

Mode = Literal["paper", "released"]
Divergence = Callable[["Tensor", "Tensor"], "Tensor"]


@dataclass(frozen=True)
class Smoothness(Defence):
    """The settings of the search for the worst small perturbation."""

    strength: float = 1.0
    """Weight of the smoothness term."""
    steps: int = 1
    """Steps of the search."""
    step_size: float = 1e-3
    """Length of one step (η)."""
    noise: float = 1e-5
    """Standard deviation of the random start."""
    radius: float = 1e-5
    """Largest change of a coordinate (ε); not used in `released` mode."""
    mode: Mode = "paper"
    """Whose projection: the paper's, or the released code's."""

    def __post_init__(self) -> None:
        whole(self.name, "steps", self.steps, 1)
        one_of(self.name, "mode", self.mode, get_args(Mode))
        for name in ("strength", "step_size", "noise", "radius"):
            at_least(self.name, name, getattr(self, name), 0)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Nothing is put into the model, but it must have word embeddings."""
        needs_words(self.name, model)

    @property
    def moves_inputs(self) -> bool:
        """The search moves the embeddings."""
        return True

    def perturbed(self, model: Classifier, batch: Batch, clean: Output, dice: Dice, divergence: Divergence) -> Output:
        """The model at the perturbation that changes the clean predictions most, with the dice of the clean pass."""
        import torch

        target, embeddings = clean.logits.detach(), clean.embeddings
        # The clean pass's own, so that the table of all words gets its gradient once.
        assert embeddings is not None
        mask = valid(batch).to(embeddings.dtype)
        delta = self.noise * gaussian_start(embeddings, batch.stream(self.name)) * mask
        for _ in range(self.steps):
            delta.requires_grad_()
            dice.restore()
            moved: Output = model(**batch.inputs, inputs_embeds=embeddings.detach() + delta)
            # The sum over the batch: how far a sentence moves must not depend on how many others there are.
            (gradient,) = torch.autograd.grad(divergence(moved.logits, target) * len(target), delta)
            delta = self._step(delta.detach(), gradient * mask)
        dice.restore()
        output: Output = model(**batch.inputs, inputs_embeds=embeddings + delta)
        return output

    def _step(self, delta: Tensor, gradient: Tensor) -> Tensor:
        if self.mode == "released":
            moved = delta + self.step_size * gradient
            return moved / moved.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6)
        largest = gradient.flatten(1).abs().amax(dim=1).view(-1, 1, 1).clamp(min=1e-30)
        return (delta + self.step_size * gradient / largest).clamp(-self.radius, self.radius)


def gaussian_start(like: Tensor, stream: torch.Generator) -> Tensor:
    """Standard normal draws, of the shape of the embeddings."""
    import torch

    return torch.randn(like.shape, generator=stream, device=like.device, dtype=like.dtype)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(softmax p ‖ softmax q), mean over the rows."""
    log_p, log_q = p.float().log_softmax(dim=-1), q.float().log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


def symmetric_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL in both directions."""
    return kl(p, q) + kl(q, p)
