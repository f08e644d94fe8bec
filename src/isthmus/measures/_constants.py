"""Lipschitz constants of a classifier: from its input to the code if its network has them, else from its vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from isthmus.core.errors import UsageError
from isthmus.data.images import is_image_task
from isthmus.measures._layer_stretch import spectral_norm
from isthmus.measures._network_stretch import EncoderConstants, LayerStretch, bottleneck_constants, lipschitz_constant
from isthmus.models.bottleneck import GaussianBottleneck

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class ModelConstants:
    """Constants of a classifier."""

    start: str
    """Where differences are measured: ``pixels``, or ``vector``, what an encoder of texts hands on."""
    estimate: float
    """To the parameters of the code (or the vector, without a bottleneck), convolutions by power iteration."""
    bound: float
    """The same, never below the truth."""
    logits: float | None
    """To the logits at the mean of the code: a bound; None where the head is part of the encoder."""
    code: EncoderConstants | None
    """Of the Gaussian encoder, from the same start."""
    layers: tuple[LayerStretch, ...] = ()


def model_constants(model: Classifier) -> ModelConstants:
    """Multiply the norms of a classifier's layers."""
    bottleneck, head = model.slots.bottleneck, model.head
    if bottleneck is not None and not isinstance(bottleneck, GaussianBottleneck):
        raise UsageError(f"{type(bottleneck).__name__} is not known to have a Lipschitz constant")
    estimate, bound, start = 1.0, 1.0, "vector"
    layers: tuple[LayerStretch, ...] = ()
    if is_image_task(model.task):
        network: Any = model.backbone
        task: Any = model.task
        found = lipschitz_constant(network, torch.zeros(1, *task.shape, device=model.device))
        estimate, bound, layers, start = found.estimate, found.bound, found.layers, "pixels"
    code = None
    if bottleneck is not None:
        own = bottleneck_constants(bottleneck)
        code = EncoderConstants(bound * own.mean, bound * own.deviation, bound * own.whole, own.latent, own.least)
        estimate, bound = estimate * own.whole, code.whole
    elif head is None:
        raise UsageError(
            "an encoder of texts is not known to have a Lipschitz constant, and this model has neither a bottleneck "
            "nor a head of its own behind it: train with --defence vib or vub"
        )
    logits = None
    if head is not None:
        norm = spectral_norm(head.weight)
        logits = norm * (bound if code is None else code.mean)
    return ModelConstants(start, estimate, bound, logits, code, layers)
