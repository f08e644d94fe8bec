"""How a model answers is saved with it, and nothing that a folder names is looked up outside the package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from isthmus.core.errors import ModelError, UsageError
from isthmus.models import Classifier, load_model, load_victim
from isthmus.models.deployment import Deployment, register_deployment
from isthmus.models.victims.classifier import ClassifierVictim

TEXTS = [{"text": "a moving film"}, {"text": "it was too long"}]


class Sharpened(ClassifierVictim):
    power = 2.0

    def scores(self, texts: Any, keys: Any = None) -> Any:
        raised = super().scores(texts, keys) ** self.power
        return raised / raised.sum(axis=1, keepdims=True)


@register_deployment
@dataclass(frozen=True)
class Sharper(Deployment):
    power: float = 2.0
    kind = "sharper"

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> ClassifierVictim:
        victim = Sharpened(model, precision)
        victim.power = self.change(options).power
        return victim


@dataclass(frozen=True)
class Unknown(Deployment):
    kind = "nobody registered it"

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> ClassifierVictim:
        raise NotImplementedError


@pytest.fixture
def folder(encoder, tmp_path):
    model = Classifier.create(encoder("bert"), ("no", "yes"))
    model.deployment = Sharper(3.0)
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_model_answers_as_it_was_deployed(folder):
    model = load_model(folder)
    assert model.deployment == Sharper(3.0)
    plain = load_victim(folder, device="cpu", deployed=False).scores(TEXTS)
    raised = plain**3 / (plain**3).sum(axis=1, keepdims=True)
    assert np.allclose(load_victim(folder, device="cpu").scores(TEXTS), raised, atol=1e-6)
    assert np.array_equal(load_victim(folder, device="cpu", power=1.0).scores(TEXTS), plain)


def test_settings_it_does_not_have_are_refused(folder):
    with pytest.raises(UsageError, match="sharper has no setting 'powers'"):
        load_victim(folder, device="cpu", powers=1.0)


def test_a_deployment_nobody_could_load_is_not_saved(encoder, tmp_path):
    model = Classifier.create(encoder("bert"), ("no", "yes"))
    model.deployment = Unknown()
    with pytest.raises(UsageError, match="register_deployment"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"kind": "os:system", "config": {}}, "does not know"),
        ({"kind": "sharper", "config": {"strength": 1}}, "cannot be built"),
        ({"kind": "sharper"}, "kind and config"),
        ("sharper", "kind and config"),
    ],
    ids=["foreign", "wrong setting", "no config", "no mapping"],
)
def test_a_folder_that_describes_it_badly_is_refused(folder, described, message):
    description = json.loads((folder / "isthmus.json").read_text())
    (folder / "isthmus.json").write_text(json.dumps({**description, "deployment": described}))
    with pytest.raises(ModelError, match=message):
        load_model(folder)
