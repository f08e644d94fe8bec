"""A model read through Gaussian noise on the pixels, many draws of each image at once.

Every draw's noise comes from its own key, and an image's draws are cut into batches by themselves: a vote depends on
(seed, example, number of the draw) and on no other image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.randomness import branch, draw_normal
from isthmus.certificates._votes import Ballot
from isthmus.core.errors import UsageError, VictimError
from isthmus.core.seeds import derive
from isthmus.core.types import Ints, Victim
from isthmus.models.gaussian_noise import GaussianNoise

_STREAM = derive(0, "certify", "pixel noise")
_AT_ONCE = {"cpu": 500, "cuda": 5_000}


class PixelReader:
    """The base classifier of the Gaussian certificate, on images."""

    stochastic = True
    inner_noise: tuple[float, ...] = ()

    def __init__(self, victim: Victim, sigma: float) -> None:
        self.model: Any = victim.model  # type: ignore[attr-defined]
        self.model.eval()
        self.sigma = sigma
        self.rows_at_once = _AT_ONCE.get(self.model.device.type, _AT_ONCE["cpu"])

    @property
    def total_sigma(self) -> float:
        """Standard deviation of all Gaussian noise on the pixels: the certificate's and the model's own together."""
        noise = self.model.slots.noise
        return math.hypot(self.sigma, noise.sigma if isinstance(noise, GaussianNoise) else 0.0)

    def encode(self, inputs: Sequence[Mapping[str, Any]]) -> list[Tensor]:
        """Arrays of the images as the model reads them."""
        from isthmus.models.victims.images import stack_inputs

        images = torch.from_numpy(stack_inputs(inputs)).to(self.model.device)
        if tuple(images.shape[1:]) != self.model.task.shape:
            raise UsageError(f"the model reads inputs of shape {self.model.task.shape}, not {tuple(images.shape[1:])}")
        return list(images)

    def distance(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        """L2 distance of two images."""
        first, second = self.encode([one, other])
        return float((first.double() - second.double()).norm())

    def votes(self, ballots: Sequence[Ballot]) -> Ints:
        """Count the votes for each class [ballots, classes]; a draw without an answer counts for none."""
        counts = np.zeros((len(ballots), len(self.model.labels)), np.int64)
        try:
            with torch.no_grad():
                for place, ballot in enumerate(ballots):
                    keys = torch.from_numpy(ballot.keys().view(np.int64).copy()).to(self.model.device)
                    for own in torch.split(keys, self.rows_at_once):
                        counts[place] += self._votes(ballot.text, own)
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model failed on {len(ballots)} images with noise: {error}") from error
        return counts

    def _votes(self, image: Tensor, keys: Tensor) -> Ints:
        count = len(keys)
        least = fewest_rows() if keys.device.type == "cpu" else 1
        keys = torch.cat([keys, keys[:1].expand(max(0, least - count))])
        noise = draw_normal(keys, (len(keys), *image.shape), _STREAM).to(image.dtype)
        with self.model.use_keys(branch(keys, "certify", "model") if self.model.stochastic else None):
            logits = self.model(image + self.sigma * noise).logits[:count].float()
        whole = torch.isfinite(logits).all(dim=1)
        return np.bincount(logits.argmax(dim=1)[whole].cpu().numpy(), minlength=logits.shape[1])
