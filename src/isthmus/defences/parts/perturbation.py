"""Perturbations of word embeddings: their start, their ascent, and passes that draw the same dropout masks.

    start     δ = m · u / √(n d),   u uniform in (-1, 1) on the n tokens that are not padding, d wide
    climb     δ ← δ + a · g / ‖g‖,  scaled back to ‖δ‖ ≤ r;   norms are those of the whole sequence
    unit      of m, a and r: the mean norm of the text's word vectors (`relative`), or one (`paper`)

A length that suits one encoder is too long for another: words of GloVe have norms about 5, those of MiniLM about 1.
Dropout and every other draw of the model repeat from pass to pass, so that what changes between two passes over a batch
is the perturbation alone. Afterwards the streams stand where one pass leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Labelled
from isthmus.defences.parts.checks import at_least, check_whole, fill, needs_words, one_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from isthmus.arithmetic.randomness import BatchStream
    from isthmus.models import Classifier


is_measured = False
"""Whether gradients are taken to be looked at, and not to train by."""

Scale = Literal["relative", "paper"]


_FIELDS = ("step_size", "init_magnitude", "max_norm")


class Lengths(NamedTuple):
    """Lengths of a climb: step, start and limit."""

    step: float
    start: float
    limit: float


@dataclass(frozen=True)
class Ascent(Defence):
    """The settings of a gradient ascent; a defence that climbs inherits them."""

    steps: int = 3
    """Passes over a batch, each at a higher perturbation."""
    step_size: float | None = None
    """Length of one step of the climb, whatever the size of the gradient; by default that of the scale."""
    init_magnitude: float | None = None
    """Size of the random start, by default that of the scale; 0 starts at the clean embeddings."""
    max_norm: float | None = None
    """Largest norm of the perturbation of a whole sequence, by default that of the scale; 0 leaves it unlimited."""
    scale: Scale = "relative"
    """Unit of the three lengths: the mean norm of the text's word vectors (by default 0.03, 0.03 and 0.09 of it), or
    one, as in the papers (0.1, 0.1 and 0.3)."""

    def __post_init__(self) -> None:
        one_of(self.name, "scale", self.scale, get_args(Scale))
        fill(self, dict(zip(_FIELDS, self.usual_lengths()[self.scale], strict=True)))
        check_whole(self.name, "steps", self.steps, 1)
        for name, value in zip(_FIELDS, self.lengths, strict=True):
            at_least(self.name, name, value, 0)

    def usual_lengths(self) -> Mapping[str, Lengths]:
        """The default lengths of each scale."""
        return {"relative": Lengths(0.03, 0.03, 0.09), "paper": Lengths(0.1, 0.1, 0.3)}

    @property
    def lengths(self) -> Lengths:
        """The three lengths of this climb."""
        assert self.step_size is not None
        assert self.init_magnitude is not None
        assert self.max_norm is not None
        return Lengths(self.step_size, self.init_magnitude, self.max_norm)

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Refuse a model without word embeddings; nothing is added to the model."""
        needs_words(self.name, model)

    @property
    def moves_inputs(self) -> bool:
        """True: a climb changes the embeddings."""
        return True


class Climb:
    """One batch under a perturbation that climbs the gradient."""

    def __init__(self, ascent: Ascent, model: Classifier, batch: Batch, still: bool = False) -> None:
        """Start at random, or at the clean embeddings if `still`."""
        self.ascent, self.model, self.inputs = ascent, model, batch.inputs
        self.dice = Dice(model)
        self.words = model.embed(batch.inputs["input_ids"])
        self.mask = valid(batch).to(self.words.dtype)
        self.unit = mean_norm(self.words.detach(), self.mask) if ascent.scale == "relative" else None
        magnitude = 0.0 if still else ascent.lengths.start
        delta = start(self.words.detach(), self.mask, magnitude, batch.draws(ascent.name))
        self.delta = (delta if self.unit is None else delta * self.unit).requires_grad_()
        self._fresh = True
        self._earlier = _EarlierPasses(batch)

    def forward(self, *, hidden: bool = False, last: bool = False) -> Output:
        """Run the model at the current perturbation, with the dropout masks of the first pass.

        What is added has the gradient of what it is added to. So the words' own is taken once, in the `last` pass, for
        all passes together: a table of all words, filled and added up every time, is dear.
        """
        if not self._fresh:
            self.dice.restore()
        self._fresh = False
        words = self.words if last else self.words.detach()
        if last and self._earlier.gradient is not None and words.requires_grad:
            words.register_hook(self._earlier.add_to)
        output: Output = self.model(**self.inputs, inputs_embeds=words + self.delta, hidden=hidden)
        return output

    def step(self, gradient: Tensor | None) -> None:
        """Climb along the gradient of the loss with respect to the perturbation."""
        assert gradient is not None
        if self.delta.grad is not None:
            self._earlier.keep(self.delta.grad)
        step, _, limit = self.ascent.lengths
        moved = ascend(self.delta.detach(), gradient.detach() * self.mask, self._scale(step))
        self.delta = (keep_within(moved, self._scale(limit)) if limit else moved).requires_grad_()

    def _scale(self, length: float) -> float | Tensor:
        return length if self.unit is None else length * self.unit


class _EarlierPasses:
    """The words' gradient in the passes before the last, to be added to that of the last.

    It is a hook of the words and must not hold them: a circle through torch's graph is never freed.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.gradient: Tensor | None = None

    def keep(self, gradient: Tensor) -> None:
        """Add the gradient of one pass."""
        self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def add_to(self, gradient: Tensor) -> Tensor:
        """The gradient with that of the earlier passes, which are then done with."""
        if is_measured or self.batch.is_measured:  # Only a share is looked at: the backward pass is still to come.
            return gradient
        earlier, self.gradient = self.gradient, None
        return gradient if earlier is None else gradient + earlier


def start(like: Tensor, mask: Tensor, magnitude: float, stream: torch.Generator | BatchStream) -> Tensor:
    """The initial perturbation, in the shape of the embeddings."""
    import torch

    from isthmus.arithmetic.randomness import draw_from

    if magnitude == 0:
        return torch.zeros_like(like)
    noise = 2 * draw_from(stream, "uniform", like.shape, like.device, like.dtype) - 1
    return noise * mask * (magnitude / (mask.sum(dim=(1, 2), keepdim=True) * like.shape[-1]).sqrt())


def ascend(delta: Tensor, gradient: Tensor, step_size: float | Tensor) -> Tensor:
    """One step of fixed length along the gradient of each sequence."""
    return delta + step_size * gradient / sequence_norm(gradient).clamp(min=1e-8)


def keep_within(delta: Tensor, max_norm: float | Tensor) -> Tensor:
    """Scale perturbations that are longer than `max_norm` back to it."""
    return delta * (max_norm / sequence_norm(delta).clamp(min=1e-12)).clamp(max=1.0)


def mean_norm(words: Tensor, mask: Tensor) -> Tensor:
    """Mean norm of the word vectors of each text [batch, 1, 1]."""
    norms = words.norm(dim=-1, keepdim=True) * mask
    mean: Tensor = norms.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return mean


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
    """The states of all random streams of a forward pass, so that another pass can draw the same.

    While a step is recorded (`training/captured.py`) the state of a GPU's stream is a place in the recording: torch
    counts it from where the recording begins, and a replay starts it where the stream then is.
    """

    def __init__(self, model: Classifier) -> None:
        import torch

        from isthmus.arithmetic.randomness import Stream

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
        """Set the streams back to these states."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.state, self.device)
        elif self.device.type == "mps":
            torch.mps.set_rng_state(self.state)
        else:
            torch.set_rng_state(self.state)
        for stream, count in zip(self.streams, self.counts, strict=True):
            stream.count = count
