"""Lipschitz constants of whole classifiers, measured."""

import math
from typing import Any

import pytest
import torch
import training_toys as toys
from image_toys import image_model, images, text_model

from isthmus.core.errors import UsageError
from isthmus.data import Splits
from isthmus.data.images import pixels
from isthmus.measures import Lipschitz
from isthmus.measures._constants import model_constants
from isthmus.measures._network_stretch import jacobian_norms
from isthmus.measures.lipschitz import BOUND, LARGEST, LEAST, LOCAL, LOGITS, PRINTED, PRODUCT, SOUND, local_norms
from isthmus.models.bottleneck import GaussianBottleneck


def spectral(*weights: torch.Tensor) -> float:
    return math.prod(float(torch.linalg.matrix_norm(weight.detach().double(), 2)) for weight in weights)


def test_the_product_of_a_multi_layer_perceptron_is_that_of_its_weights():
    model = image_model()
    linear = [layer.weight for layer in model.backbone.layers.children() if isinstance(layer, torch.nn.Linear)]
    found = model_constants(model)
    bottleneck: Any = model.slots.bottleneck
    # Pixels are rescaled by 2 before the first layer.
    assert found.estimate == pytest.approx(2 * spectral(*linear, bottleneck.first.weight, bottleneck.second.weight))
    means = bottleneck.second.weight[:3]
    assert found.logits == pytest.approx(2 * spectral(*linear, bottleneck.first.weight, means, model.head.weight))


@pytest.mark.parametrize(
    ("backbone", "bottleneck"), [("mlp", True), ("mlp", False), ("cnn_mlp", True), ("allcnn", False)]
)
def test_products_are_above_local_norms(backbone, bottleneck):
    model = image_model(bottleneck, backbone)
    found = model_constants(model)
    assert found.estimate <= found.bound * (1 + 1e-9)
    local = local_norms(model, images(6))
    assert 0 < float(local.max()) <= found.logits


def test_local_norms_are_those_of_the_model():
    model, data = image_model(bottleneck=False), images(5)
    wanted = jacobian_norms(lambda x: model(x).logits, torch.from_numpy(pixels(data)))
    assert torch.allclose(local_norms(model, data), wanted)


def test_the_measure_of_images():
    model, data = image_model(), Splits("halves", {"train": images(10, "train"), "test": images(8)})
    found = Lipschitz()(model, data, n=6)
    column = "from the pixels"
    assert found.figure(PRODUCT, column).estimate <= found.figure(BOUND, column).estimate * (1 + 1e-9)
    assert found.figure(LEAST, column).estimate == pytest.approx(math.log1p(math.exp(-1)))
    # Three dimensions and deviations below 1: the sound constant is the larger one.
    assert found.figure(SOUND, column).estimate > found.figure(PRINTED, column).estimate
    for split in ("train", "test"):
        mean, largest = found.figure(LOCAL, split), found.figure(LARGEST, split).estimate
        assert mean.low <= mean.estimate <= mean.high <= largest <= found.figure(LOGITS, column).estimate
    assert len(found.details["layers"]) == 6


def test_of_texts_only_what_follows_the_encoder_has_a_product():
    found = Lipschitz()(text_model(), Splits("toys", {"test": toys.dataset("test", 8, 0)}), n=4)
    assert found.figure(PRODUCT).of == "from the vector"
    assert found.figure(LOCAL, "test").estimate > 0
    assert "begin at the vector" in found.notes[0]
    stock = Lipschitz()(toys.classifier(), Splits("toys", {"test": toys.dataset("test", 8, 0)}), n=4)
    assert [figure.name for figure in stock.figures] == [LOCAL, LARGEST]
    assert "No product: an encoder of texts" in stock.notes[0]
    with pytest.raises(UsageError, match="neither a bottleneck nor a head"):
        model_constants(toys.classifier())


def test_a_deviation_without_a_bound_is_that_of_a_sample():
    model = image_model(bottleneck=False).fill(bottleneck=GaussianBottleneck(256, 3, last_relu=False)).eval()
    found = Lipschitz(local=False)(model, Splits("halves", {"test": images(8)}))
    assert found.figure(LEAST).estimate > 0
    assert "that of a sample" in found.notes[-1]
