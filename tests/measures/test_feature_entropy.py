"""Entropy of quantised features."""

import math

import numpy as np
import pytest
import torch
import training_toys as toys
from image_toys import image_model, images

from isthmus.core.errors import UnknownName, UsageError
from isthmus.data import Splits
from isthmus.data.images import pixels
from isthmus.measures import FeatureEntropy
from isthmus.measures.base import Asked, Facts, Subject
from isthmus.measures.feature_entropy import ACCURACY, CEILING, JVHW, MILLER, MLE, ONCE, UNIT, quantise, read_layer


def test_units_are_cut_into_levels_of_equal_width():
    features = torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.9, 5.0], [4.0, 5.0]])
    assert quantise(features, 4)[:, 0].tolist() == [0, 1, 2, 3, 3]
    assert quantise(features, 2)[:, 0].tolist() == [0, 0, 1, 1, 1]
    assert quantise(features, 4)[:, 1].tolist() == [0] * 5  # A unit that never moves.
    moved = quantise(7 * features - 3, 4)
    assert (moved == quantise(features, 4)).all()


def test_features_are_the_last_convolution_as_a_relu_leaves_it():
    model, data = image_model(False, "allcnn"), images(6)
    by_convolution = read_layer(model, data, "convolution")
    with torch.no_grad():
        vectors = model.backbone(torch.from_numpy(pixels(data)))
    assert torch.allclose(by_convolution, vectors, atol=1e-6)  # That network ends there.
    assert read_layer(image_model(False, "cnn_mlp"), data, "convolution").shape == (6, 64)
    assert read_layer(image_model(False, "cnn_mlp"), data, "vector").shape == (6, 256)
    assert read_layer(toys.classifier(), toys.dataset("test", 6, 0), "convolution").shape == (6, 16)


def subject(model, data, name="run", **parameters) -> Subject:
    found = Subject.of(model, data, Asked(), name)
    found.facts = Facts("adversarial", parameters)
    return found


class Known(torch.nn.Module):
    """Features that are known: which half of each of `units` pixels is bright."""

    def __init__(self, model, units: int) -> None:
        super().__init__()
        self.backbone, self.task, self.slots = torch.nn.Identity(), model.task, model.slots
        self.answers_questions, self.labels, self.device = False, model.labels, model.device
        self.use_keys, self.units = model.use_keys, units
        self.head = torch.nn.Linear(units, 2)

    def forward(self, inputs):
        from isthmus.core.types import Output

        return Output(self.head((inputs.flatten(1)[:, : self.units] > 0.5).float()))


def bits_data(n: int, seed: int) -> Splits:
    """Images whose first four pixels are fair coins."""
    from isthmus.data.images import make_images

    stream = np.random.default_rng(seed)
    array = np.zeros((n, 6, 6), dtype=np.float32)
    array[:, 0, :4] = stream.integers(0, 2, size=(n, 4))
    return Splits(
        "coins", {"test": make_images(array, np.arange(n) % 2, ("left", "right"), "coins", "test", "toy", 1.0)}
    )


def test_the_entropy_of_known_symbols_is_found():
    model = Known(image_model(False), 4)
    found = FeatureEntropy(bits=True)(model, bits_data(400, 0))
    for name in (MLE, MILLER, JVHW):
        assert found.figure(f"{name} (bits)").estimate == pytest.approx(4, abs=0.06)
    mle = found.figure(f"{MLE} (bits)")
    assert mle.estimate <= 4
    assert mle.low < mle.estimate < mle.high
    assert found.figure(f"{UNIT} (bits)").estimate == pytest.approx(1, abs=0.02)
    assert found.figure(f"{CEILING} (bits)").estimate == pytest.approx(math.log2(400))
    assert found.figure(ONCE).estimate < 0.05
    assert found.notes == ()


def test_it_warns_where_nearly_every_symbol_is_unique():
    found = FeatureEntropy(levels=64)(image_model(False), Splits("halves", {"test": images(30)}))
    assert found.figure(ONCE).estimate > 0.9
    assert "of 30 symbols occur once" in found.notes[0]
    assert found.figure(f"{MLE} (nats)").estimate == pytest.approx(math.log(30), abs=0.15)


def test_runs_are_drawn_over_the_parameter_in_which_they_differ():
    data = Splits("halves", {"test": images(24)})
    first = subject(image_model(False, seed=1), data, "b", ratio=0.5)
    first.others = (subject(image_model(False, seed=2), data, "a", ratio=0.0),)
    found = FeatureEntropy(over="ratio", attack="fgsm", epsilon=0.1).measure(first)
    assert list(dict.fromkeys(figure.of for figure in found.figures)) == ["0", "0.5"]
    under = "accuracy under fgsm 0.1"
    for value in ("0", "0.5"):
        assert found.figure(under, value).estimate <= found.figure(ACCURACY, value).estimate
    by_name = {plot.name: plot for plot in found.plots}
    assert set(by_name) == {"entropy", "accuracy", "feature_entropy"}
    assert by_name["entropy"].series[0].x == (0.0, 0.5)
    assert by_name["feature_entropy"].x_label == under
    assert by_name["feature_entropy"].series[1].y[1] == found.figure(f"{JVHW} (nats)", "0.5").estimate
    with pytest.raises(UnknownName, match="rato"):
        FeatureEntropy(over="rato").measure(first)


def test_a_unit_has_two_levels_at_least():
    with pytest.raises(UsageError, match="levels is 1"):
        FeatureEntropy(levels=1)
