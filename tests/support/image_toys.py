"""Tiny images of two classes, and classifiers of them and of toy texts."""

from __future__ import annotations

import numpy as np
import training_toys as toys

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.types import ImageClassification
from isthmus.data import Dataset
from isthmus.data.images import make_images
from isthmus.models import Classifier
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.images import ImageClassifier


def images(n: int = 40, split: str = "test") -> Dataset:
    """Left or right half bright, with noise."""
    stream = np.random.default_rng(n)
    labels = np.arange(n) % 2
    array = stream.uniform(0, 0.4, size=(n, 6, 6))
    array[labels == 1, :, 3:] += 0.5
    array[labels == 0, :, :3] += 0.5
    return make_images(array.astype(np.float32), labels, ("left", "right"), "halves", split, "toy", 1.0)


def image_model(bottleneck: bool = True, backbone: str = "mlp", seed: int = 0) -> ImageClassifier:
    """An untrained classifier of them."""
    task = ImageClassification(("left", "right"), ("image",), (1, 6, 6))
    model = ImageClassifier.create(backbone, task, seed=seed)
    return model.fill(bottleneck=_bottleneck(model.pooled_size, seed)).eval() if bottleneck else model


def text_model() -> Classifier:
    """An untrained classifier of toy texts with a bottleneck."""
    return toys.classifier().fill(bottleneck=_bottleneck(16)).eval()


def _bottleneck(size: int, seed: int = 0) -> GaussianBottleneck:
    with seed_initialisation(seed, "toy"):
        return GaussianBottleneck(size, 3)
