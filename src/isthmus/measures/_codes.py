"""A classifier's outputs and codes for clean inputs and under a gradient attack, for texts or images.

Inputs are pixels, or the word embeddings of a text. The vector is what the bottleneck or the head reads; the code is
the Gaussian that a bottleneck makes of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.seeds import derive
from isthmus.data.images import is_image_task, pixels
from isthmus.measures._features import BATCH, to_host
from isthmus.models.bottleneck import GaussianLatent
from isthmus.training.encoding import encode_examples

if TYPE_CHECKING:
    from isthmus.attacks.gradient.base import GradientAttack
    from isthmus.data import Dataset
    from isthmus.models import Classifier

_IMAGES = 256
_EPSILON, _SHARE = 0.3, 0.25
"""Radius by default: of pixels, and of embeddings in lengths of a mean token."""


@dataclass(frozen=True, eq=False)
class Codes:
    """Codes of N inputs in the order of the data; on the CPU, float32."""

    labels: Tensor  # [N]
    logits: Tensor  # [N, classes], at the mean of the code where there is one
    vectors: Tensor  # [N, width], what bottleneck or head reads
    mean: Tensor | None = None  # [N, latent]
    deviation: Tensor | None = None  # [N, latent]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> Tensor:
        """Whether each input is classified correctly [N]."""
        return self.logits.argmax(dim=1) == self.labels

    @property
    def gaussian(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations; an error if the code has none."""
        if self.mean is None or self.deviation is None:
            raise UsageError(
                "only a model with a Gaussian bottleneck has a stochastic code: train with --defence vib or vub; "
                "feature_entropy measures features without noise"
            )
        return self.mean, self.deviation


@dataclass(frozen=True)
class InputAttack:
    """A gradient attack on pixels or embeddings, by name."""

    name: str
    epsilon: float | None = None
    """Radius: of pixels, or of embeddings in lengths of a mean token; None is 0.3 and 0.25."""
    steps: int | None = None

    def __post_init__(self) -> None:
        known = [entry.name for entry in catalog.entries("attacks") if entry.kind == "gradient"]
        if self.name not in known:
            raise UnknownName("attack by gradients", self.name, known)

    @property
    def title(self) -> str:
        """The attack's name in a table."""
        return self.name if self.epsilon is None else f"{self.name} {self.epsilon:g}"

    def build(self, unit: float | None) -> GradientAttack:
        """Make the attack on pixels, or on embeddings whose mean token has the length `unit`."""
        known = {entry.name for entry in dataclasses.fields(catalog.find("attacks", self.name).load())}
        given: dict[str, Any] = {}
        if self.steps is not None:
            if "steps" not in known:
                raise UsageError(f"{self.name} takes no steps: leave them out")
            given["steps"] = self.steps
        if self.epsilon is not None and "epsilon" not in known:
            raise UsageError(f"{self.name} has no radius: leave epsilon out")
        if "epsilon" in known:
            own = _EPSILON if unit is None else _SHARE
            given["epsilon"] = (own if self.epsilon is None else self.epsilon) * (1.0 if unit is None else unit)
        if unit is not None and "norm" in known:
            given["norm"] = "l2"
        found: GradientAttack = catalog.find("attacks", self.name).load()(**given)
        return found


StepTaken = Callable[[int], None]


def read_codes(
    model: Classifier, data: Dataset, seed: int = 0, attack: InputAttack | None = None, step: StepTaken = lambda _: None
) -> Codes:
    """Read the codes of every input of the data, or of its attacked version.

    The attack moves every input, also those that are misclassified. Its target is the model as it is.
    """
    if not len(data):
        raise UsageError(f"the {data.split} split of {data.name} is empty: there is nothing to measure")
    rows: list[Tensor] = []
    parts: list[dict[str, Tensor]] = []
    ready, unit = None, None
    done = 0
    for batch in read_batches(model, data, seed):
        if attack is not None and ready is None:
            unit = None if is_image_task(model.task) else batch.token_length()
            ready = attack.build(unit)
        inputs = batch.inputs if ready is None else batch.attack(ready, seed)
        parts.append(batch.read(inputs))
        rows.append(batch.rows)
        done += len(batch.rows)
        step(done)
    order = torch.argsort(torch.cat(rows))
    return Codes(**{name: torch.cat([part[name] for part in parts])[order] for name in parts[0]})


def read_batches(model: Classifier, data: Dataset, seed: int = 0) -> Iterator[PixelBatch | TextBatch]:
    """Yield the data as model inputs, in batches."""
    if model.answers_questions:
        raise UsageError("this model answers questions: codes are those of a classifier")
    if is_image_task(model.task):
        whole = torch.from_numpy(pixels(data))
        labels = torch.from_numpy(data.label_indices())
        for part in torch.split(torch.arange(len(data)), _IMAGES):
            yield PixelBatch(model, whole[part].to(model.device), labels[part].to(model.device), part, seed)
        return
    encoded = encode_examples(model, data.examples, data.fields)
    for batch, numbers in encoded.numbered_batches(BATCH, model.device):
        yield TextBatch(model, batch.inputs, batch.labels, torch.tensor(numbers), seed)


class PixelBatch:
    """A batch of images."""

    def __init__(self, model: Any, inputs: Tensor, labels: Tensor, rows: Tensor, seed: int) -> None:
        self.model, self.inputs, self.labels, self.rows, self.seed = model, inputs, labels, rows, seed

    @property
    def keys(self) -> Tensor:
        """Keys of each row's random numbers."""
        found = [derive(self.seed, "measure", int(row)) >> 1 for row in self.rows]
        return torch.tensor(found, dtype=torch.int64, device=self.labels.device)

    def forward(self, inputs: Tensor) -> Any:
        """Run the model once."""
        return self.model(inputs)

    def attack(self, attack: GradientAttack, seed: int) -> Tensor:
        """The attacked inputs."""
        target, movable = self.target()
        bounds = (0.0, 1.0) if movable is None and self.model.task.has_pixels else None
        found = attack.run(
            target,
            self.inputs,
            self.labels,
            bounds=bounds,
            keys=self.keys,
            movable=movable,
            seed=seed,
            skip_wrong=False,
        )
        return found.adversarial

    def target(self) -> tuple[Any, Tensor | None]:
        """The attack's target, and the coordinates that may change."""
        return self.model, None

    def token_length(self) -> float:
        """Raise: images have no tokens."""
        raise AssertionError("images have no tokens")

    def read(self, inputs: Tensor) -> dict[str, Tensor]:
        """Read labels, logits, vectors and codes."""
        with torch.no_grad(), self.model.use_keys(self.keys), _entering(self.model) as seen:
            output = self.forward(inputs)
        found = {"labels": self.labels, "logits": output.logits, "vectors": seen[0] if seen else self.pool(inputs)}
        if isinstance(output.latent, GaussianLatent):
            mean = output.latent.mean
            with torch.no_grad():
                found |= {"mean": mean, "deviation": output.latent.deviation, "logits": self.model.head(mean)}
        return {name: to_host(value) for name, value in found.items()}

    def pool(self, inputs: Tensor) -> Tensor:
        """The vector of a model without a head of its own."""
        raise AssertionError("an image classifier has a head")


class TextBatch(PixelBatch):
    """A batch of texts, as word embeddings."""

    def __init__(self, model: Any, tokens: dict[str, Tensor], labels: Tensor, rows: Tensor, seed: int) -> None:
        self.tokens = tokens
        with torch.no_grad():
            embeddings = model.embed(tokens["input_ids"]).float()
        super().__init__(model, embeddings, labels, rows, seed)

    def forward(self, inputs: Tensor) -> Any:
        """Run the model with the embeddings replaced."""
        return self.model(**self.tokens, inputs_embeds=inputs)

    def target(self) -> tuple[Any, Tensor | None]:
        """The model as a function of embeddings; padding stays as it is."""
        from isthmus.attacks.gradient.parts.targets import EmbeddingTarget

        target = EmbeddingTarget(self.model, self.tokens)
        return target, target.movable

    def token_length(self) -> float:
        """Mean length of a token's embedding, to two digits."""
        mask = self.tokens.get("attention_mask")
        lengths = self.inputs.norm(dim=-1)
        return float(f"{float((lengths if mask is None else lengths[mask.bool()]).mean()):.2g}")

    def pool(self, inputs: Tensor) -> Tensor:
        """The sentence's vector of the last layer."""
        from isthmus.defences.infobert import sentence_vectors

        mask = self.tokens.get("attention_mask")
        mask = torch.ones_like(self.tokens["input_ids"]) if mask is None else mask
        with torch.no_grad(), self.model.use_keys(self.keys):
            output = self.model(**self.tokens, inputs_embeds=inputs, hidden=True)
        return sentence_vectors(self.model, output, mask.bool().unsqueeze(-1))


@contextlib.contextmanager
def _entering(model: Any) -> Iterator[list[Tensor]]:
    """Inside, record the input of the bottleneck, or of the head if there is no bottleneck."""
    seen: list[Tensor] = []
    part: nn.Module | None = model.slots.bottleneck if model.slots.bottleneck is not None else model.head
    if part is None:
        yield seen
        return
    handle = part.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


@contextlib.contextmanager
def head_replaced(model: Any, head: nn.Module) -> Iterator[None]:
    """Inside, the model predicts with another head."""
    own = model.head
    model.head = head
    try:
        yield
    finally:
        model.head = own
