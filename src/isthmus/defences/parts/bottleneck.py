"""Shared by VIB and VUB: the Gaussian bottleneck, its rate, and the loss under any adversary.

    loss = -log p(y | z) + β · R + what the method adds,     z ~ N(μ(x), σ(x)²)

All terms are means over the batch of what each example has by itself, so that they do not depend on how a batch is cut
into passes or over processes; the one exception, VUB's cap="batch", says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from isthmus.core.errors import UsageError
from isthmus.core.types import ImageClassification, Output, Task
from isthmus.defences.base import Batch, Defence, Labelled, Terms, cross_entropy, pass_terms
from isthmus.defences.parts.checks import at_least, check_whole, finite, needs_one_vector, needs_words, one_of
from isthmus.defences.parts.perturbation import Ascent, Climb

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier
    from isthmus.models.bottleneck import GaussianLatent

Adversary = Literal["none", "freelb", "pgd"]


@dataclass(frozen=True)
class StochasticBottleneck(Ascent, ABC):
    """The settings of a Gaussian bottleneck between encoder and head."""

    slots = ("bottleneck",)
    takes_objective = True

    beta: float = 1e-3
    """Price of one nat of information through the bottleneck."""
    latent: int = 0
    """Width of the latent code; 0 takes half of the encoder's for texts and features, 256 for images."""
    shift: float | None = None
    """Added before the softplus that makes the deviations. By default -1 for text and 0.57 for features, as in VUB's
    code, and -5 for images, as in VIB's."""
    last_relu: bool | None = None
    """Whether a relu follows the last layer, as in VUB's code; means are then never negative. By default not for
    images."""
    layers: int | None = None
    """Layers between encoder and code. By default two, as in VUB's code; one for images, whose networks end in enough
    of their own."""
    adversary: Adversary = "none"
    """Climb by which the embeddings are perturbed; its settings are those of `freelb` and `pgd`."""
    deterministic: bool = False
    """With beta = 0: leave the bottleneck out, so that nothing is squeezed and nothing drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.name, "beta", self.beta, 0)
        check_whole(self.name, "latent", self.latent, 0)
        if self.shift is not None:
            finite(self.name, "shift", self.shift)
        if self.layers is not None:
            check_whole(self.name, "layers", self.layers, 1)
        one_of(self.name, "adversary", self.adversary, get_args(Adversary))
        if self.deterministic and self.beta:
            raise UsageError(
                f"{self.name}: deterministic removes the bottleneck, so beta = {self.beta} has no effect: set "
                "beta = 0, or leave deterministic off"
            )

    def adapt_to(self, task: Task) -> Self:
        """Set the usual sizes of the bottleneck for the task, if none were given."""
        usual: dict[str, Any] = {"shift": -1.0, "last_relu": True}
        if isinstance(task, ImageClassification):
            usual = {"shift": 0.57, "last_relu": True}
            if task.has_pixels:
                usual = {"shift": -5.0, "last_relu": False, "layers": 1, "latent": 256}
        # A latent width of 0 is one that was left open; 0 and False are values of the others.
        unset = {name for name in usual if getattr(self, name) is None} | ({"latent"} if not self.latent else set())
        return replace(self, **{name: value for name, value in usual.items() if name in unset})

    @property
    def moves_inputs(self) -> bool:
        """True with an adversary, which moves the embeddings."""
        return self.adversary != "none"

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    @property
    def walks(self) -> bool:
        """True with an adversary, which makes passes of its own."""
        return self.adversary != "none"

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Fill the bottleneck slot."""
        if self.moves_inputs:
            needs_words(self.name, model)
        if self.deterministic:
            return
        from torch import nn

        from isthmus.arithmetic.randomness import seed_initialisation
        from isthmus.models.bottleneck import GaussianBottleneck

        needs_one_vector(self.name, model)
        own = self.adapt_to(model.task)
        assert own.shift is not None
        assert own.last_relu is not None
        with seed_initialisation(model.seed, "bottleneck"):
            slot = GaussianBottleneck(
                model.pooled_size, own.latent or None, own.shift, own.last_relu, layers=own.layers or 2
            )
            model.fill(bottleneck=slot)
            assert model.head is not None
            nn.init.xavier_uniform_(model.head.weight)
            nn.init.zeros_(model.head.bias)

    @abstractmethod
    def terms(self, model: Classifier, output: Output) -> dict[str, Tensor]:
        """The terms besides cross-entropy and rate, by name."""

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Cross-entropy, rate and the method's own terms, at every step of the climb if there is one."""
        import torch

        if self.adversary == "none":
            yield from Defence.losses(self, model, batch)
            return
        climb = Climb(self, model, batch)
        if self.adversary == "pgd":
            for _ in range(self.steps):
                climb.step(torch.autograd.grad(cross_entropy(climb.forward(), batch), climb.delta)[0])
            climb.delta.requires_grad_(False)
        steps = self.steps if self.adversary == "freelb" else 1
        for step in range(steps):
            yield Terms(self._values(model, climb.forward(last=step + 1 == steps), batch, steps))
            if step + 1 < steps:
                climb.step(climb.delta.grad)

    def _values(self, model: Classifier, output: Output, batch: Batch, steps: int) -> dict[str, Tensor]:
        values = self.objective(model, output, batch, pass_terms(model, output, batch))
        return {name: value / steps for name, value in values.items()} if steps > 1 else values

    def objective(self, model: Classifier, output: Output, batch: Batch, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the rate and the method's own terms."""
        output, terms = replace(output, logits=output.logits.float()), dict(terms)
        if self.beta:
            latent: GaussianLatent = output.latent
            terms["rate"] = self.beta * latent.rate().mean()
        return terms | self.terms(model, output)
