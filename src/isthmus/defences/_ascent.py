"""Perturbations of word embeddings: where one starts, how it climbs, and passes that roll the same dice.

    start     δ = m · u / √(n d),   u uniform in (-1, 1) on the n tokens that are not padding, d wide
    climb     δ ← δ + a · g / ‖g‖,  scaled back to ‖δ‖ ≤ r;   norms are those of the whole sequence

Dropout and every other draw of the model repeat from pass to pass, so that what changes between two passes over a batch
is the perturbation alone. Afterwards the streams stand where one pass leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.types import Output
from isthmus.defences._checks import at_least, needs_words, whole
from isthmus.defences.base import Batch, Defence, Labelled

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.models import Classifier


@dataclass(frozen=True)
class Ascent(Defence):
    """The settings of a climb; a defence that climbs inherits them."""

    steps: int = 3
    """Passes over a batch, each at a higher perturbation."""
    step_size: float = 0.1
    """Length of one step of the climb, whatever the size of the gradient."""
    init_magnitude: float = 0.1
    """Size of the random start; 0 starts at the clean embeddings."""
    max_norm: float = 0.3
    """Largest norm of the perturbation of a whole sequence; 0 leaves it unlimited."""

    def __post_init__(self) -> None:
        whole(self.name, "steps", self.steps, 1)
        for name in ("step_size", "init_magnitude", "max_norm"):
            at_least(self.name, name, getattr(self, name), 0)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Nothing is put into the model, but it must have word embeddings."""
        needs_words(self.name, model)

    @property
    def moves_inputs(self) -> bool:
        """A climb moves the embeddings."""
        return True


class Climb:
    """One batch under a perturbation that climbs."""

    def __init__(self, ascent: Ascent, model: Classifier, batch: Batch, still: bool = False) -> None:
        """Start at random, or `still` at the clean embeddings."""
        self.ascent, self.model, self.inputs = ascent, model, batch.inputs
        self._batch = batch
        self.dice = Dice(model)
        self.words = model.embed(batch.inputs["input_ids"])
        self.mask = valid(batch).to(self.words.dtype)
        magnitude = 0.0 if still else ascent.init_magnitude
        self.delta = start(self.words.detach(), self.mask, magnitude, batch.stream(ascent.name)).requires_grad_()
        self._fresh = True
        self._waiting: Tensor | None = None

    def forward(self, *, hidden: bool = False, last: bool = False) -> Output:
        """The model at the perturbation as it stands, with the dice of the first pass.

        What is added has the gradient of what it is added to. So the words' own is taken once, in the `last` pass, for
        all passes together: a table of all words, filled and added up every time, is dear.
        """
        if not self._fresh:
            self.dice.restore()
        self._fresh = False
        words = self.words if last else self.words.detach()
        if last and self._waiting is not None and words.requires_grad:
            words.register_hook(self._with_earlier_passes)  # type: ignore[no-untyped-call]
        output: Output = self.model(**self.inputs, inputs_embeds=words + self.delta, hidden=hidden)
        return output

    def _with_earlier_passes(self, gradient: Tensor) -> Tensor:
        if self._batch.is_measured:
            return gradient
        waiting, self._waiting = self._waiting, None
        return gradient if waiting is None else gradient + waiting

    def step(self, gradient: Tensor | None) -> None:
        """Climb along the gradient of the loss with respect to the perturbation."""
        assert gradient is not None
        if self.delta.grad is not None:
            self._waiting = self.delta.grad if self._waiting is None else self._waiting + self.delta.grad
        moved = ascended(self.delta.detach(), gradient.detach() * self.mask, self.ascent.step_size)
        self.delta = within(moved, self.ascent.max_norm).requires_grad_()


def start(like: Tensor, mask: Tensor, magnitude: float, stream: torch.Generator) -> Tensor:
    """The first perturbation, of the shape of the embeddings."""
    import torch

    if magnitude == 0:
        return torch.zeros_like(like)
    noise = 2 * torch.rand(like.shape, generator=stream, device=like.device, dtype=like.dtype) - 1
    return noise * mask * (magnitude / (mask.sum(dim=(1, 2), keepdim=True) * like.shape[-1]).sqrt())


def ascended(delta: Tensor, gradient: Tensor, step_size: float) -> Tensor:
    """One step of fixed length along the gradient of each sequence."""
    return delta + step_size * gradient / sequence_norm(gradient).clamp(min=1e-8)


def within(delta: Tensor, max_norm: float) -> Tensor:
    """Scale sequences that are longer than `max_norm` back to it; 0 is no limit."""
    if max_norm == 0:
        return delta
    return delta * (max_norm / sequence_norm(delta).clamp(min=1e-12)).clamp(max=1.0)


def sequence_norm(values: Tensor) -> Tensor:
    """Euclidean norm over all tokens of a sequence [batch, 1, 1]."""
    norms: Tensor = values.flatten(1).norm(dim=1)
    return norms.view(-1, 1, 1)


def valid(batch: Batch) -> Tensor:
    """1 for tokens, 0 for padding [batch, length, 1]."""
    import torch

    mask = batch.inputs.get("attention_mask")
    if mask is None:
        mask = torch.ones_like(batch.inputs["input_ids"])
    return mask.unsqueeze(-1)


class Dice:
    """Where all random streams of a forward pass stand, so that another pass can draw the same."""

    def __init__(self, model: Classifier) -> None:
        import torch

        from isthmus.models.randomness import Stream

        self.streams = [module for module in model.modules() if isinstance(module, Stream)]
        self.counts = [stream.count for stream in self.streams]
        self.device = model.device
        if self.device.type == "cuda":
            self.state = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            self.state = torch.mps.get_rng_state()
        else:
            self.state = torch.get_rng_state()

    def restore(self) -> None:
        """Put the streams back to where they stood."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.state, self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(self.state)
        else:
            torch.set_rng_state(self.state)
        for stream, count in zip(self.streams, self.counts, strict=True):
            stream.count = count
