"""An image classifier with slots for defences.

    pixels in [0, 1] -> [noise] -> rescaled -> network -> vector -> [bottleneck] -> head -> logits

It is trained, attacked, certified and saved as a classifier of texts is; what needs word embeddings is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isthmus.arithmetic.randomness import seed_initialisation, use_keys
from isthmus.core.errors import UsageError
from isthmus.core.types import ImageClassification, Output
from isthmus.models.image_backbones import ImageBackbone, create_backbone, initialise
from isthmus.models.slots import EMBEDDINGS, Bottleneck, Noise, Slots, WordMask

if TYPE_CHECKING:
    from isthmus.models.deployment import Deployment

PIXELS = EMBEDDINGS
"""The layer number of the pixels, for noise on them."""


class ImageClassifier(nn.Module):
    """A classifier of images, or of vectors, with slots for defences.

    Attributes:
        task: label names and the shape of an input.
        slots: which of the slots are filled; there is no word mask.
        companions: what a defence keeps beside the model while it trains.
    """

    answers_questions = False

    def __init__(self, backbone: ImageBackbone, task: ImageClassification, *, seed: int = 0) -> None:
        super().__init__()
        self.backbone, self.task, self.seed = backbone, task, seed
        self.slots = Slots()
        self.companions = nn.ModuleDict()
        self.deployment: Deployment | None = None
        self.head = self._make_head(backbone.pooled_size, "head")

    @staticmethod
    def create(backbone: str, task: ImageClassification, *, seed: int = 0) -> ImageClassifier:
        """Make a new, untrained classifier; `backbone` is in `image_backbones.NAMES`, torchvision:NAME or timm:NAME."""
        if len(task.labels) < 2:
            raise UsageError(f"a classifier needs at least two classes, not {', '.join(task.labels) or 'none'}")
        with seed_initialisation(seed, "backbone"):
            network = create_backbone(backbone, task.shape)
        return ImageClassifier(network, task, seed=seed).eval()

    def _make_head(self, size: int, *key: str) -> nn.Linear:
        with seed_initialisation(self.seed, *key):
            head = nn.Linear(size, len(self.labels))
            initialise(head)
        return head

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names, in the order of the logits."""
        return self.task.labels

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return self.head.weight.device

    @property
    def pooled_size(self) -> int:
        """Width of the vector that a bottleneck reads."""
        return self.backbone.pooled_size

    @property
    def stochastic(self) -> bool:
        """Whether the same input may get different scores outside training."""
        return self.slots.stochastic

    def fill(
        self,
        *,
        word_mask: WordMask | None = None,
        noise: Noise | None = None,
        bottleneck: Bottleneck | None = None,
    ) -> ImageClassifier:
        """Fill slots; a bottleneck gets a new head of its width."""
        if word_mask is not None:
            raise UsageError(f"{type(word_mask).__name__} masks words, and an image has none")
        if noise is not None and set(noise.layers) - {PIXELS}:
            raise UsageError(f"noise on blocks {list(noise.layers)}: of an image classifier only the pixels take any")
        for name, slot in (("noise", noise), ("bottleneck", bottleneck)):
            if slot is not None:
                self.slots.put(name, slot.to(self.device).train(self.training), self.seed)
        if bottleneck is not None:
            self.head = self._make_head(bottleneck.latent_size, "head", "bottleneck").to(self.device)
        return self

    def forward(self, pixels: Tensor) -> Output:
        """Logits, and the latent code if there is a bottleneck."""
        if tuple(pixels.shape[1:]) != self.task.shape:
            raise UsageError(f"this model reads inputs of shape {self.task.shape}, not {tuple(pixels.shape[1:])}")
        if self.slots.noise is not None:
            pixels = self.slots.noise(PIXELS, pixels, None)
        return self.decode(self.backbone(pixels))

    def decode(self, vector: Tensor) -> Output:
        """The output of bottleneck and head for the network's vector."""
        latent = None
        if self.slots.bottleneck is not None:
            latent = self.slots.bottleneck(vector)
            vector = latent.sample.to(vector.dtype)
        return Output(self.head(vector), latent=latent)

    @contextlib.contextmanager
    def use_keys(self, keys: Tensor | None) -> Iterator[None]:
        """Inside, each row's randomness comes from its own key (see `isthmus.arithmetic.randomness`)."""
        with use_keys(self, keys):
            yield

    def save(self, folder: str | Path) -> None:
        """Save the classifier to `folder`; `load_model` reads it back bit for bit."""
        from isthmus.models.saving import save_images

        save_images(self, Path(folder))

    def describe(self) -> dict[str, Any]:
        """The arguments that build it again, untrained."""
        return {"form": self.backbone.form, "options": self.backbone.options(), "shape": list(self.task.shape)}
