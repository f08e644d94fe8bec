"""The grid of images that fool a model."""

import json

import pytest
import torch
import training_toys as toys
from image_toys import image_model, images

from isthmus.core.errors import UsageError
from isthmus.data import Splits
from isthmus.measures import AdversarialImages, Measurement
from isthmus.measures.adversarial_images import pixels_of


def test_pixels_become_whole_numbers():
    image = torch.tensor([[[0.0, 1.0], [0.5, 0.2]]])
    assert pixels_of(image) == (((0,), (255,)), ((128,), (51,)))
    assert len(pixels_of(torch.rand(3, 2, 2))[0][0]) == 3


def test_the_grid_shows_originals_and_differences():
    data = Splits("halves", {"test": images(20)})
    found = AdversarialImages(epsilon=0.2, count=3)(image_model(False), data)
    (plot,) = found.plots
    assert [len(row) for row in plot.panels] == [3, 3, 3]
    for identity, (clean, moved, difference) in zip(found.details["examples"], plot.panels, strict=True):
        example = next(example for example in data["test"] if example.id == identity)
        assert clean.pixels == pixels_of(torch.from_numpy(example.fields["image"]))
        assert clean.title.split(",")[0] == data["test"].labels[int(example.label)]
        first, second = (torch.tensor(panel.pixels) for panel in (clean, moved))
        assert int((first - second).abs().max()) in range(48, 53)  # 0.2 of 255
        moved_by = (first - second).double().norm() / 255
        assert difference.title.startswith("linf 0.2, l2 ")
        assert float(difference.title.rpartition(" ")[2]) == pytest.approx(float(moved_by), rel=0.05)
        assert {value for line in difference.pixels for (value,) in line} & {0, 255}
    again = Measurement.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert again.plots == found.plots


def test_texts_and_models_that_know_nothing_are_refused():
    with pytest.raises(UsageError, match="does not read images: measure a model of images"):
        AdversarialImages()(toys.classifier(), Splits("toys", {"test": toys.dataset("test", 8, 0)}))
    with pytest.raises(UsageError, match="count is 0"):
        AdversarialImages(count=0)
