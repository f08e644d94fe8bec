"""Gaussian noise on the inputs during training: pixels, or word embeddings."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from isthmus.core.errors import UsageError
from isthmus.core.types import ImageClassification, Task
from isthmus.defences.base import Batch, Defence, Labelled, Plan, Terms
from isthmus.defences.parts.attacked_examples import build_base
from isthmus.defences.parts.checks import at_least, needs_words

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class GaussianNoise(Defence):
    """Gaussian noise on the pixels, or on the word embeddings of a text, of every training example.

        loss = -log p(y | x + σ ε),     ε ~ N(0, I), drawn again at every step

    The noise is of training alone: afterwards the model answers without it, and `isthmus certify` smooths it with noise
    of whatever deviation is asked for, best of the same.

    References:
        Cohen, Rosenfeld and Kolter (2019), Certified Adversarial Robustness via Randomized Smoothing,
        https://arxiv.org/abs/1902.02918, who train so.

    Where we depart:
        Pixels are in [0, 1] and noisy ones are not clipped, as in the paper; the network rescales them afterwards.

    Relations:
        `rsmi` keeps noise inside the encoder when it is put to work. `adversarial` adds the worst change instead of a
        random one. With sigma = 0 it is its base.

    Example:
        ``isthmus train --data digits --backbone mlp --defence gaussian_noise -P sigma=0.25``
    """

    sigma: float | None = None
    """Standard deviation of the noise; by default 0.25 for pixels and 0.05 for word embeddings."""
    base: str = "standard"
    """Defence whose losses train on the noisy inputs."""
    base_parameters: str = ""
    """Parameters of that defence: key=value, several of them separated by semicolons."""

    def __post_init__(self) -> None:
        if self.sigma is not None:
            at_least(self.name, "sigma", self.sigma, 0)
        if self._base.moves_inputs or self._base.replaces_examples:
            raise UsageError(
                f"{self.name}: base is {self.base}, which moves inputs or makes examples itself; choose a defence that "
                "does not, such as standard, vib or label_smoothing"
            )

    @functools.cached_property
    def _base(self) -> Defence:
        return build_base(self.name, self.base, self.base_parameters)

    def adapt_to(self, task: Task) -> Self:
        """Set the usual standard deviation for the task, if none was given."""
        usual = 0.25 if isinstance(task, ImageClassification) else 0.05
        return replace(self, sigma=usual) if self.sigma is None else self

    @property
    def moves_inputs(self) -> bool:
        """True, unless the noise is zero."""
        return self.sigma != 0

    @property
    def trains_images(self) -> bool:
        """True if the base trains images."""
        return self._base.trains_images

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Prepare as the base does."""
        if not isinstance(model.task, ImageClassification):
            needs_words(self.name, model)
        self._base.prepare(model, data)

    def plan(self, epochs: int) -> Plan:
        """Divide the epochs as the base does."""
        return self._base.plan(epochs)

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The base's losses on noisy inputs."""
        return self._base.losses(model, self.transform(model, batch))

    @property
    def walks(self) -> bool:
        """False: the base, or the other defences of a composition, make the passes."""
        return False

    def transform(self, model: Classifier, batch: Batch) -> Batch:
        """The batch with noise on its inputs."""
        import torch

        sigma = self.adapt_to(model.task).sigma
        assert sigma is not None
        if sigma:
            name = "pixels" if isinstance(model.task, ImageClassification) else "inputs_embeds"
            clean = batch.inputs["pixels"] if name == "pixels" else model.embed(batch.inputs["input_ids"])
            noise = torch.randn(clean.shape, generator=batch.stream(self.name), device=clean.device)
            batch = replace(batch, inputs={**batch.inputs, name: clean + sigma * noise})
        return batch
