"""What every defence must keep to. A new file in the family is found by itself; it needs one row in the table."""

import dataclasses
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus import defences
from isthmus.core import catalog
from isthmus.core.types import Victim
from isthmus.data import Splits
from isthmus.defences import Defence
from isthmus.models import Classifier, load_model, load_victim
from isthmus.models.deployment import Deployment, register_deployment
from isthmus.models.victims import wrap
from isthmus.training import TrainingSettings
from isthmus.training import train as train_anywhere
from isthmus.verbs.attack import AttackRequest, attack
from isthmus.verbs.sources import DataRequest

SYNONYMS = str(Path(__file__).parents[1] / "support" / "synonyms.json")
OFF: dict[str, dict[str, Any]] = {
    "standard": {},
    "advaug": {"points": 0},
    "adversarial": {"points": 0},
    "flat": {"points": 0, "masks": False},
    "normalise": {
        "form": "none",
        "deletion": "keep",
        "invisible": False,
        "confusables": False,
        "leet": False,
        "spelling": False,
    },
    "gaussian_noise": {"sigma": 0.0},
    "label_smoothing": {"epsilon": 0.0},
    "confidence_penalty": {"gamma": 0.0},
    "freelb": {"steps": 1, "init_magnitude": 0.0},
    "freelbpp": {"steps": 1, "init_magnitude": 0.0},
    "rdrop": {"strength": 0.0},
    "random_substitution": {"rate": 0.0, "table": SYNONYMS},
    "pgd": {"steps": 0},
    "smart": {"strength": 0.0, "proximal": 0.0},
    "alum": {"strength": 0.0},
    "infobert": {"alpha": 0.0, "beta": 0.0},
    "rsmi": {"sigma": 0.0, "masked": 0, "beta": 0.0},
    "vib": {"beta": 0.0, "deterministic": True},
    "vub": {"beta": 0.0, "entropy_weight": 0.0, "deterministic": True},
    "safer": {"rate": 0.0, "table": SYNONYMS},
}
"""The hyper-parameters that switch each defence off."""

ON: dict[str, dict[str, Any]] = {
    "safer": {"table": SYNONYMS},
    "random_substitution": {"table": SYNONYMS},
    "rsmi": {"sigma": 0.1, "masked": 1},  # of the few words of a toy text
    "advaug": {"attack": "deepwordbug", "mode": "continue"},
    "adversarial": {"attack": "deepwordbug", "points": 8, "keep_failed": True},
    "flat": {"attack": "deepwordbug", "points": 8, "keep_failed": True},
}
"""What a defence needs beyond its defaults to make a difference, or to learn, in a short run without word lists."""
EPOCHS = {"advaug": 5, "adversarial": 2, "flat": 2}
"""The shortest run in which it does; one epoch, if not said."""

HEADINGS = ["References:", "Where we depart:", "Relations:", "Example:"]
train = functools.partial(train_anywhere, device="cpu")
NAMES = catalog.names("defences")
QUICK = TrainingSettings(precision="fp32", epochs=1, batch_size=8, learning_rate=1e-2, log_every=1)


@functools.cache
def data(disguised: bool = False) -> Splits:
    """Toy data; disguised, a character that nobody sees stands in every text, for front ends to take out."""
    splits = toys.splits(32, 8)
    if not disguised:
        return splits
    hidden = tuple(
        dataclasses.replace(example, fields={"text": f"\u200b{example.fields['text']}"}) for example in splits.train
    )
    return Splits("toy", {"train": dataclasses.replace(splits.train, examples=hidden), "dev": splits.dev})


@functools.cache
def plain(epochs: int = 1, disguised: bool = False) -> dict[str, torch.Tensor]:
    settings = dataclasses.replace(QUICK, epochs=epochs)
    return toys.weights(train(data(disguised), toys.classifier(), settings=settings))


def switched_on(name: str) -> Defence:
    return catalog.build("defences", name, ON.get(name, {}))


def test_the_table_has_every_defence():
    assert set(OFF) == set(NAMES)


def test_the_public_names_are_the_files():
    classes = {catalog.find("defences", name).class_name for name in NAMES}
    assert set(defences.__all__) == classes | {"Batch", "Composed", "Defence", "Terms", "build_defence", "compose"}
    assert all(getattr(defences, name).__name__ == name for name in defences.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_frozen_record_that_knows_its_name(name):
    defence = catalog.build("defences", name)
    assert isinstance(defence, Defence)
    assert defence.name == name
    assert set(defence.parameters) == {parameter.name for parameter in catalog.find("defences", name).parameters}
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(defence, "anything", 1)  # noqa: B010
    assert catalog.build("defences", name, defence.parameters) == defence


@pytest.mark.parametrize("name", NAMES)
def test_its_docstring_has_the_equation_and_the_headings(name):
    entry = catalog.find("defences", name)
    positions = [entry.docstring.find(heading) for heading in HEADINGS]
    assert -1 not in positions
    assert positions == sorted(positions)
    assert re.search(r"^ {4}loss = ", entry.docstring, re.MULTILINE)
    assert all(parameter.doc for parameter in entry.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_switched_off_it_equals_plain_training_to_the_last_bit(name):
    off = catalog.build("defences", name, OFF[name])
    # Two epochs: a second stage, with a seed of its own, would show.
    settings = dataclasses.replace(QUICK, epochs=2)
    model = train(data(), toys.classifier(), off, settings=settings)
    assert toys.same_bits(toys.weights(model), plain(epochs=2))


@pytest.mark.parametrize("name", [name for name in NAMES if OFF[name]])
def test_switched_on_it_makes_a_difference(name):
    epochs, disguised = EPOCHS.get(name, 1), name == "normalise"
    settings = dataclasses.replace(QUICK, epochs=epochs)
    model = train(data(disguised), toys.classifier(), switched_on(name), settings=settings)
    assert not toys.same_bits(toys.weights(model), plain(epochs, disguised))


@pytest.mark.parametrize("name", NAMES)
def test_it_lowers_its_loss_learns_saves_and_loads(name, tmp_path):
    settings = TrainingSettings(precision="fp32", epochs=6, batch_size=16, learning_rate=1e-2, log_every=1)
    defence = switched_on(name)
    model = train(toys.splits(64, 32), toys.classifier(dropout=0.0), defence, settings=settings, folder=tmp_path)
    losses = [row["loss"] for row in toys.rows(tmp_path) if "loss" in row]
    assert sum(losses[-4:]) / 4 < sum(losses[:4]) / 4 - 0.05
    loaded = load_model(tmp_path / "model")
    inputs = model.encode([{"text": "a lovely film"}, {"text": "the plot was dull and stale"}])
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, loaded.eval()(**inputs).logits)
    # What is attacked is the trained model as its deployment answers, read from the folder.
    assert type(loaded.deployment) is type(model.deployment)
    keys = np.arange(2, dtype=np.uint64)
    texts = [{"text": "a lovely film"}, {"text": "the plot was dull and stale"}]
    answers = wrap(model, device="cpu") if model.deployment is None else model.deployment.victim(model)
    assert np.array_equal(load_victim(tmp_path, device="cpu").scores(texts, keys), answers.scores(texts, keys))


@register_deployment
@dataclass(frozen=True)
class Constant(Deployment):
    """Answers the same whatever it reads."""

    share: float = 0.75
    kind = "constant, of a test"

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> Victim:
        del precision
        row = [1 - self.change(options).share, self.change(options).share]
        return wrap(lambda texts: [row] * len(texts), labels=model.labels)


@dataclass(frozen=True)
class Answers(Defence):
    """Plain training of a model that answers by a deployment."""

    share: float = 0.75

    def prepare(self, model: Classifier, data: Any) -> None:
        model.deployment = Constant(self.share)


def test_what_prepare_deploys_is_what_is_attacked(tmp_path):
    train(data(), toys.classifier(), Answers(0.875), settings=QUICK, folder=tmp_path / "model")
    lines = ["text,label", *(f"{example.texts['text']},{example.label}" for example in data().dev)]
    (tmp_path / "dev.csv").write_text("\n".join(lines))
    request = AttackRequest(
        model=str(tmp_path / "model/model"),
        data=DataRequest(str(tmp_path / "dev.csv")),
        out=tmp_path / "run",
        attacks=("deepwordbug",),
        device="cpu",
        label_check=False,
    )
    (outcome,) = attack(request).outcomes
    assert len(outcome.results) == len(data().dev)
    for result in outcome.results:
        assert result.score_before == (0.125, 0.875)
        assert result.outcome == ("failed" if result.label else "skipped")
