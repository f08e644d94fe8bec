"""Reading image classifiers (`saving.py` writes them).

``isthmus.json`` says how to build one, ``isthmus.safetensors`` holds its weights.

Only safetensors and JSON are read. A folder names a network and slots of this package, or a network of torchvision or
timm by its name there; nothing else that it says is ever looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.errors import IsthmusError, ModelError
from isthmus.core.files import read_json
from isthmus.core.types import ImageClassification
from isthmus.models._weights import check_inside
from isthmus.models.image_backbones import build_backbone
from isthmus.models.image_names import DESCRIPTION
from isthmus.models.images import ImageClassifier
from isthmus.models.saving import IMAGE_FORMAT, WEIGHTS
from isthmus.models.slots import build_slot


def load(folder: Path) -> ImageClassifier:
    """Read a classifier of images."""
    described = _read_description(folder)
    task = ImageClassification(
        tuple(described["labels"]), tuple(described["fields"]), tuple(int(size) for size in described["shape"])
    )
    built: dict[str, Any] = {name: build_slot(slot) for name, slot in described["slots"].items()}
    with seed_initialisation(0, "loading"):
        try:
            network = build_backbone(described["form"], task.shape, described["options"])
            model = ImageClassifier(network, task, seed=described["seed"]).fill(**built)
        except IsthmusError as error:
            raise ModelError(f"{folder / DESCRIPTION} is damaged: {error}") from error
    _load_weights(model, folder)
    return model.eval()


def _read_description(folder: Path) -> Mapping[str, Any]:
    described = read_json(folder / DESCRIPTION)
    if isinstance(described.get("format"), int) and described["format"] > IMAGE_FORMAT:
        raise ModelError(
            f"{folder} was written by isthmus {described.get('isthmus', '?')}, which is newer than this one: "
            "upgrade isthmus to read it"
        )
    checks = {
        "labels": _are_names(described.get("labels"), 2),
        "fields": _are_names(described.get("fields"), 1),
        "shape": _sizes(described.get("shape")),
        "form": isinstance(described.get("form"), str),
        "options": isinstance(described.get("options"), dict),
        "seed": isinstance(described.get("seed"), int),
        "slots": isinstance(described.get("slots"), dict) and set(described["slots"]) <= {"noise", "bottleneck"},
    }
    for name, right in checks.items():
        if not right:
            raise ModelError(f"{folder / DESCRIPTION} is damaged: no valid {name!r} in it")
    return described  # type: ignore[no-any-return]


def _are_names(value: Any, least: int) -> bool:
    return isinstance(value, list) and len(value) >= least and all(isinstance(name, str) for name in value)


def _sizes(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (1, 3):
        return False
    return all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in value)


def _load_weights(model: ImageClassifier, folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = folder / WEIGHTS
    check_inside(file, folder)
    try:
        model.load_state_dict(load_file(file))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {file}: {error}") from error
    except RuntimeError as error:
        first = " ".join(str(error).split())[:200]
        raise ModelError(f"{file} does not fit the model in its folder: {first}") from error
