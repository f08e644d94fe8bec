"""Classifiers of images: the networks as described, the slots, and folders that are read as data."""

import json
import sys
import types

import pytest
import torch
from torch import nn

from isthmus.core.errors import ModelError, UnknownName, UsageError
from isthmus.core.types import ImageClassification
from isthmus.defences import VIB, VUB, Standard
from isthmus.inference.two_step import TwoStep
from isthmus.models import ImageClassifier, load_model
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.models.image_backbones import NAMES, create_backbone

LABELS = ("a", "b", "c")
TASKS = {name: ImageClassification(LABELS, ("image",), (3, 8, 8)) for name in NAMES}
TASKS["features"] = ImageClassification(LABELS, ("features",), (12,))


def linear_sizes(model):
    return [(part.in_features, part.out_features) for part in model.modules() if isinstance(part, nn.Linear)]


def make(name, seed=0):
    return ImageClassifier.create(name, TASKS[name], seed=seed)


def test_the_networks_are_those_described():
    mnist = ImageClassification(tuple("0123456789"), ("image",), (1, 28, 28))
    model = ImageClassifier.create("vib_mlp", mnist)
    VIB().prepare(model, None)
    assert linear_sizes(model) == [(784, 1024), (1024, 1024), (1024, 512), (256, 10)]
    assert model.slots.bottleneck.config() == {
        "pooled_size": 1024, "latent_size": 256, "shift": -5.0, "last_relu": False, "layers": 1, "inference": "mean"
    }  # fmt: skip
    paper = ImageClassifier.create("mlp", mnist)
    assert linear_sizes(paper) == [(784, 512), (512, 512), (512, 512), (512, 256), (256, 256), (256, 256), (256, 10)]
    filters = [
        (part.in_channels, part.out_channels) for part in make("cnn_mlp").modules() if isinstance(part, nn.Conv2d)
    ]
    assert filters == [(3, 32), (32, 64)]
    strides = [part.stride[0] for part in make("allcnn").modules() if isinstance(part, nn.Conv2d)]
    assert strides == [1, 1, 2, 1, 1, 2, 1, 1]
    head = ImageClassifier.create("features", ImageClassification(LABELS, ("features",), (768,)))
    VUB().prepare(head, types.SimpleNamespace(label_indices=lambda: torch.tensor([0, 1, 2]).numpy()))
    assert linear_sizes(head) == [(768, 768), (768, 768), (384, 3)]  # D, D, and classes of K = D / 2
    assert (head.slots.bottleneck.shift, head.slots.bottleneck.last_relu) == (0.57, True)


def test_pixels_are_rescaled_inside():
    model = make("mlp")
    seen = []
    model.backbone.layers.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(torch.tensor([0.0, 0.5, 1.0]).view(3, 1, 1, 1).expand(3, 3, 8, 8))
    assert seen[0].flatten(1).unique(dim=1).flatten().tolist() == [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("defence", [Standard(), VIB(beta=1e-3)])
def test_saved_and_read_back_to_the_last_bit(name, defence, tmp_path):
    model = make(name, seed=3)
    defence.prepare(model, None)
    model.fill(noise=GaussianNoise(0.1, [-1]))
    model.eval().save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert isinstance(again, ImageClassifier)
    assert again.task == model.task
    keys = torch.arange(5)
    inputs = torch.rand(5, *TASKS[name].shape)
    with model.use_keys(keys), again.use_keys(keys), torch.no_grad():
        assert torch.equal(model(inputs).logits, again(inputs).logits)
    assert model.stochastic
    assert load_model(tmp_path / "model", labels=["x", "y", "z"]).labels == ("x", "y", "z")


def test_a_deployment_is_refused_when_the_model_is_saved(tmp_path):
    model = make("mlp")
    model.deployment = TwoStep()
    with pytest.raises(UsageError, match="answers by a single pass"):
        model.save(tmp_path / "model")


def test_a_seed_decides_the_weights():
    first, second, other = make("mlp", 1), make("mlp", 1), make("mlp", 2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"form": "resnet"}, "no network for images called 'resnet'"),
        ({"form": "library", "options": {"name": "os:system"}}, "torchvision:NAME or timm:NAME"),
        ({"options": {"depth": 3}}, "cannot be built"),
        ({"options": {"widths": [0]}}, "positive whole numbers"),
        ({"shape": [3, -8, 8]}, "no valid 'shape'"),
        ({"labels": ["one"]}, "no valid 'labels'"),
        ({"slots": {"word_mask": {}}}, "no valid 'slots'"),
        ({"slots": {"noise": {"class": "os:System", "config": {}}}}, "not part of isthmus"),
        ({"labels": ["a", "b"]}, "does not fit the model"),
        ({"format": 99}, "upgrade isthmus"),
    ],
)
def test_damaged_folders_are_named(tmp_path, change, words):
    make("mlp").save(tmp_path / "model")
    file = tmp_path / "model" / "isthmus.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ModelError, match=words):
        load_model(tmp_path / "model")


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match=r"reads inputs of shape \(3, 8, 8\), not \(3, 9, 9\)"):
        make("mlp")(torch.zeros(1, 3, 9, 9))
    with pytest.raises(UnknownName, match="Did you mean 'cnn_mlp'"):
        create_backbone("cnnmlp", (1, 8, 8))
    with pytest.raises(UsageError, match="take mlp or features"):
        create_backbone("allcnn", (12,))
    with pytest.raises(UsageError, match="only the pixels"):
        make("mlp").fill(noise=GaussianNoise(0.1, [0]))


def test_networks_of_libraries_by_name(monkeypatch, tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 3)
            self.fc = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 1000))

        def forward(self, images):
            return self.fc(self.stem(images).mean((2, 3)))

    models = types.ModuleType("torchvision.models")
    vars(models).update(list_models=lambda: ["tiny"], get_model=lambda name, weights: Net())
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    model = ImageClassifier.create("torchvision:tiny", ImageClassification(LABELS, ("image",), (1, 8, 8)))
    assert model.pooled_size == 6
    images = torch.rand(2, 1, 8, 8)
    model.save(tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model")(images).logits, model(images).logits)
    with pytest.raises(UnknownName, match="Did you mean 'tiny'"):
        create_backbone("torchvision:tinny", (1, 8, 8))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UsageError, match="needs timm: pip install timm"):
        create_backbone("timm:resnet18", (1, 8, 8))
