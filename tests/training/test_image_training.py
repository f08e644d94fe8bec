"""Images train through the resident loop with every defence that does not need words."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from isthmus import defences
from isthmus.core.errors import DataError, UsageError
from isthmus.data import Splits, load_data
from isthmus.data.images import make_images
from isthmus.models import ImageClassifier, load_model
from isthmus.training import TrainingSettings, train
from isthmus.training.settings import settings_for

QUICK = settings_for("images", "mlp", epochs=2, batch_size=16, learning_rate=3e-3, information=16)


def toy(n=96, classes=3, seed=0):
    """Images of one bright stripe each, whose place is the class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    images = generator.uniform(0, 0.3, (n, 1, 6, 6))
    images[np.arange(n), 0, 2 * labels] += 0.6
    return images.astype(np.float32), labels


def splits(**changes):
    parts = {"train": toy(96, seed=0), "dev": toy(24, seed=1), **changes}
    return Splits(
        "toy",
        {
            name: make_images(images, labels, names=None, title="toy", split=name, where=name)
            for name, (images, labels) in parts.items()
        },
    )


def small(seed=0):
    from isthmus.models.image_backbones import MLP

    torch.manual_seed(seed)
    task = splits().task
    return ImageClassifier(MLP(task.shape, (16, 8)), task, seed=seed)


def fit(defence=None, folder=None, model=None, settings=QUICK, **options):
    return train(splits(), model or small(), defence, settings=settings, device="cpu", folder=folder, **options)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items() if not name.startswith("companions.")}


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


DEFENCES = [
    defences.Standard(),
    defences.VIB(beta=1e-3, latent=4),
    defences.VUB(beta=1e-3, latent=4),
    defences.ConfidencePenalty(),
    defences.LabelSmoothing(),
    defences.RDrop(),
    defences.GaussianNoise(sigma=0.1),
    defences.GaussianNoise(sigma=0.1, base="vib", base_parameters="beta=1e-3;latent=4"),
    defences.Adversarial(attack="fgsm", attack_parameters="epsilon=0.05"),
    defences.Adversarial(attack="fgsm,pgd", attack_parameters="epsilon=0.05;pgd.steps=2", base="vib", ratio=0.25),
]


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: f"{defence.name}-{getattr(defence, 'base', '')}")
def test_it_learns_saves_and_loads(defence, tmp_path):
    model = fit(defence, tmp_path, settings=settings_for("images", "mlp", epochs=5, batch_size=16, learning_rate=1e-2))
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    accuracies = [row["dev_accuracy"] for row in rows if "dev_accuracy" in row]
    assert max(accuracies) > 0.9
    again = load_model(tmp_path / "model")
    assert same(weights(again), weights(model))
    assert not (tmp_path / "checkpoints").exists()
    if again.slots.bottleneck is not None:
        assert [row["dev_information"]["rate"] for row in rows if "dev_information" in row][-1] > 0.1


@pytest.mark.parametrize(
    "off",
    [
        defences.GaussianNoise(sigma=0.0),
        defences.Adversarial(attack="fgsm", ratio=0.0),
        defences.Adversarial(attack="fgsm", attack_parameters="epsilon=0"),
        defences.VIB(beta=0, deterministic=True),
    ],
    ids=lambda defence: repr(defence)[:60],
)
def test_switched_off_it_is_plain_training_to_the_last_bit(off):
    assert same(weights(fit(off)), weights(fit()))


def test_adversarial_images_are_a_share_of_each_batch():
    model, seen = small(), []
    defence = defences.Adversarial(attack="fgsm", attack_parameters="epsilon=0.1", ratio=0.25)
    images, labels = (torch.from_numpy(part) for part in toy(16))
    batch = defences.Batch({"pixels": images}, labels, seed=5)
    model.train()
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append((*args, *kwargs.values())[0]), with_kwargs=True
    )
    next(defence.losses(model, batch))
    hook.remove()
    moved = (seen[-1] - images).abs().flatten(1).amax(dim=1)
    assert torch.allclose(moved[:4], torch.full((4,), 0.1), atol=1e-6)
    assert not moved[4:].any()
    assert seen[-1].min() >= 0
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


class Killed(RuntimeError):
    pass


class KillAt:
    def __init__(self, step):
        self.step = step

    def on_step(self, step, total, metrics):
        if step == self.step:
            raise Killed


@pytest.mark.parametrize(
    "defence", [defences.VIB(latent=4), defences.Adversarial(attack="pgd", attack_parameters="steps=2")]
)
def test_a_killed_training_ends_with_the_same_weights(defence, tmp_path):
    whole = weights(fit(defence))
    with pytest.raises(Killed):
        fit(defence, tmp_path, progress=KillAt(8))
    assert same(weights(fit(defence, tmp_path)), whole)


def test_the_whole_thing_from_digits(tmp_path):
    data = load_data("digits")
    model = train(data, "mlp", defences.VIB(beta=1e-3), settings=settings_for("images", "mlp", epochs=4), device="cpu")
    assert model.slots.bottleneck.latent_size == 256
    with torch.no_grad():
        found = model(torch.from_numpy(np.stack([one.fields["image"] for one in data.test]))).logits.argmax(dim=1)
    assert (found.numpy() == data.test.label_indices()).mean() > 0.85


def test_a_beta_that_leaves_nothing_is_said(caplog):
    fit(defences.VIB(beta=10, latent=4), settings=settings_for("images", batch_size=1, epochs=3, learning_rate=1e-2))
    assert "the prediction hardly depends on the image" in caplog.text


def test_a_batch_of_one_and_a_constant_image():
    images, labels = toy(5)
    images[2] = 0.5
    fitted = train(
        splits(train=(images, labels)), small(), settings=settings_for("images", epochs=1, batch_size=4), device="cpu"
    )
    assert all(value.isfinite().all() for value in fitted.state_dict().values())


@pytest.mark.parametrize(
    "name",
    [
        "freelb",
        "pgd",
        "smart",
        "alum",
        "infobert",
        "rsmi",
        "safer",
        "advaug",
        "adversarial",
        "flat",
        "random_substitution",
    ],
)
def test_what_needs_words_is_refused(name):
    from isthmus.core import catalog

    with pytest.raises(UsageError, match=f"{name}.* images"):
        fit(catalog.build("defences", name))


def test_what_does_not_fit_is_named():
    with pytest.raises(UsageError, match="normalise"):
        fit(defences.Normalise())
    with pytest.raises(UsageError, match="toy holds images, and minilm reads texts"):
        train(splits(), "minilm", device="cpu")
    images, labels = toy(9)
    with pytest.raises(DataError, match=r"dev split of toy holds inputs of shape \(1, 5, 6\), and the model reads"):
        train(splits(dev=(images[:, :, 1:], labels)), small(), device="cpu")
    with pytest.raises(UsageError, match=r"give an \.npz of vectors"):
        fit(settings=TrainingSettings(trains="head"))
    with pytest.raises(UsageError, match="attacks on words and on images"):
        defences.Adversarial(attack="fgsm,pwws")
    with pytest.raises(UsageError, match="ratio is for attacks on images"):
        defences.Adversarial(attack="pwws", ratio=0.5)


def test_features_train_a_head_as_in_vub(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 2
    vectors = generator.normal(3 * labels[:, None], 1, (120, 10))
    np.savez(tmp_path / "features.npz", x=vectors, y=labels)
    settings = settings_for("images", "features", epochs=10, learning_rate=1e-2)
    data = load_data(tmp_path / "features.npz")
    model = train(data, "features", defences.VUB(beta=1e-3), settings=settings, device="cpu", folder=tmp_path / "run")
    assert model.slots.bottleneck.latent_size == 5
    assert max(json.loads(line).get("dev_accuracy", 0) for line in (tmp_path / "run" / "train.jsonl").open()) > 0.9
    with pytest.raises(UsageError, match="fgsm moves pixels, and this model reads features"):
        defences.Adversarial(attack="fgsm").prepare(model, None)


AVERAGED = replace(QUICK, average_weights=0.9)


def test_an_average_of_the_weights_follows_its_recursion_and_leaves_the_training_as_it_is(tmp_path):
    """a_t = d a_{t-1} + (1 - d) w_t, recomputed from weights after every step; the weights are those without."""
    steps = replace(AVERAGED, batch_size=96, epochs=4, snapshots=True)  # One step an epoch: snapshots show them all.
    start = weights(small())
    plain = fit(settings=replace(steps, average_weights=None))
    model = fit(settings=steps, folder=tmp_path)
    assert same(weights(plain), weights(model))
    expected = {name: value.double() for name, value in start.items()}
    for epoch in range(1, 5):
        raw = load_file(tmp_path / f"snapshots/{epoch}.safetensors")
        expected = {name: 0.9 * value + 0.1 * raw[name].double() for name, value in expected.items()}
        kept = load_file(tmp_path / f"snapshots/averaged/{epoch}.safetensors")
        assert all(torch.allclose(kept[name].double(), value, atol=1e-6) for name, value in expected.items())
    last = weights(load_model(tmp_path / "averaged"))
    assert same(last, kept)
    assert not same(last, weights(load_model(tmp_path / "model")))


def test_without_decay_the_average_is_the_last_weights(tmp_path):
    fit(settings=replace(AVERAGED, average_weights=0.0, snapshots=True), folder=tmp_path)
    assert same(weights(load_model(tmp_path / "averaged")), load_file(tmp_path / "snapshots/2.safetensors"))


def test_a_training_that_stops_half_way_continues_to_the_same_average(tmp_path):
    class Stop(Exception):
        pass

    class Watch:
        def on_step(self, step, total, metrics):
            if step == 9:
                raise Stop

    fit(defences.VIB(beta=1e-3, latent=4), folder=tmp_path / "whole", settings=AVERAGED)
    with pytest.raises(Stop):
        fit(defences.VIB(beta=1e-3, latent=4), folder=tmp_path / "cut", settings=AVERAGED, progress=Watch())
    assert not (tmp_path / "cut/averaged").exists()
    fit(defences.VIB(beta=1e-3, latent=4), folder=tmp_path / "cut", settings=AVERAGED)
    for part in ("model", "averaged"):
        assert same(weights(load_model(tmp_path / "whole" / part)), weights(load_model(tmp_path / "cut" / part)))


def test_an_average_that_makes_no_sense_is_refused():
    for value in (1.0, -0.1, "much", True):
        with pytest.raises(UsageError, match="average_weights"):
            replace(QUICK, average_weights=value)
