"""Measures how much the worst small perturbation of the word embeddings changes predictions.

smoothness(x) = max_{δ small} KL_sym(p(· | e + δ), p(· | e)),     KL_sym(p, q) = KL(p ‖ q) + KL(q ‖ p)

relative    δ ← clip(δ + η · g / ‖g‖_∞, -ε, ε)                    η, ε and the start in units of rms(e)
paper       the same with η, ε and the start as they are          ‖·‖_∞ over the sequence
released    δ ← (δ + η · g) / ‖δ + η · g‖_∞                       per token: perturbations of size one

rms(e) is the root mean square of the coordinates of a text's word vectors. The paper's radius of 1e-5 is 2e-4 of it in
MiniLM, and the term then has about 2e-5 of the task's gradient in float32 and rounding noise in bfloat16: the gradient
g is that of a divergence which vanishes at δ = 0, so the start decides how much of it is left above rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Labelled
from isthmus.defences.parts.checks import at_least, check_whole, fill, needs_words, one_of
from isthmus.defences.parts.perturbation import Dice, valid

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.arithmetic.randomness import BatchStream
    from isthmus.models import Classifier

SmoothnessMode = Literal["relative", "paper", "released"]
Divergence = Callable[["Tensor", "Tensor"], "Tensor"]
_RELATIVE = {"step_size": 1.0, "noise": 0.05, "radius": 0.05}
_PUBLISHED = {"step_size": 1e-3, "noise": 1e-5, "radius": 1e-5}


@dataclass(frozen=True)
class Smoothness(Defence):
    """The settings of the search for the worst small perturbation."""

    strength: float = 1.0
    """Weight of the smoothness term."""
    steps: int = 1
    """Steps of the search."""
    step_size: float | None = None
    """Length of one step (η); by default 1 (`relative`), 1e-3 (`paper`, `released`)."""
    noise: float | None = None
    """Standard deviation of the random start; by default 0.05 (`relative`), 1e-5 (`paper`, `released`)."""
    radius: float | None = None
    """Largest change of a coordinate (ε); by default 0.05 (`relative`), 1e-5 (`paper`); not used in `released` mode."""
    mode: SmoothnessMode = "relative"
    """Projection: the paper's in units of the text's word vectors, the paper's, or the released code's."""

    def __post_init__(self) -> None:
        check_whole(self.name, "steps", self.steps, 1)
        one_of(self.name, "mode", self.mode, get_args(SmoothnessMode))
        fill(self, _RELATIVE if self.mode == "relative" else _PUBLISHED)
        for name, value in (("strength", self.strength), *self._lengths.items()):
            at_least(self.name, name, value, 0)

    @property
    def _lengths(self) -> dict[str, float]:
        """Step, noise and radius, which are set by now."""
        found = {"step_size": self.step_size, "noise": self.noise, "radius": self.radius}
        return {name: value for name, value in found.items() if value is not None}

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Refuse a model without word embeddings; nothing is added to the model."""
        needs_words(self.name, model)

    @property
    def moves_inputs(self) -> bool:
        """True: the search changes the embeddings."""
        return True

    def perturb(self, model: Classifier, batch: Batch, clean: Output, dice: Dice, divergence: Divergence) -> Output:
        """Run the model at the perturbation that changes its clean predictions most, with the same dropout masks."""
        import torch

        target, embeddings = clean.logits.detach(), clean.embeddings
        # The clean pass's own, so that the table of all words gets its gradient once.
        assert embeddings is not None
        mask = valid(batch).to(embeddings.dtype)
        unit = root_mean_square(embeddings.detach(), mask) if self.mode == "relative" else None
        noise = self._lengths["noise"] if unit is None else self._lengths["noise"] * unit
        delta = noise * gaussian_start(embeddings, batch.draws(self.name)) * mask
        for _ in range(self.steps):
            delta.requires_grad_()
            dice.restore()
            moved: Output = model(**batch.inputs, inputs_embeds=embeddings.detach() + delta)
            # The sum over the batch: how far a sentence moves must not depend on how many others there are.
            (gradient,) = torch.autograd.grad(divergence(moved.logits, target) * len(target), delta)
            delta = self._step(delta.detach(), gradient * mask, unit)
        dice.restore()
        output: Output = model(**batch.inputs, inputs_embeds=embeddings + delta)
        return output

    def _step(self, delta: Tensor, gradient: Tensor, unit: Tensor | None) -> Tensor:
        step, radius = self._lengths["step_size"], self._lengths["radius"]
        if self.mode == "released":
            moved = delta + step * gradient
            return moved / moved.abs().amax(dim=-1, keepdim=True).clamp(min=1e-6)
        # One scale for each text [batch, 1, 1]: a step moves its largest coordinate by step_size.
        largest = gradient.flatten(1).abs().amax(dim=1).view(-1, 1, 1).clamp(min=1e-30)
        if unit is None:
            return (delta + step * gradient / largest).clamp(-radius, radius)
        moved = delta + step * unit * gradient / largest
        return inside(moved, radius * unit)


def inside(values: Tensor, limit: Tensor) -> Tensor:
    """Clip every value to [-limit, limit]."""
    return values.maximum(-limit).minimum(limit)


def root_mean_square(words: Tensor, mask: Tensor) -> Tensor:
    """Root mean square of the coordinates of each text's word vectors [batch, 1, 1]."""
    squares = (words.square() * mask).sum(dim=(1, 2), keepdim=True)
    return (squares / (mask.sum(dim=(1, 2), keepdim=True) * words.shape[-1]).clamp(min=1)).sqrt()


def gaussian_start(like: Tensor, stream: torch.Generator | BatchStream) -> Tensor:
    """Standard normal draws, in the shape of the embeddings."""
    from isthmus.arithmetic.randomness import draw_from

    return draw_from(stream, "normal", like.shape, like.device, like.dtype)


def kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(softmax p ‖ softmax q), the mean over the rows."""
    log_p, log_q = p.float().log_softmax(dim=-1), q.float().log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1).mean()


def symmetric_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL in both directions."""
    return kl(p, q) + kl(q, p)
