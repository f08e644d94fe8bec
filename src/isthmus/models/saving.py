"""Writes classifiers of texts and of images to a folder, from which `load_model` reads them (`storage.py`)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isthmus.core.errors import RunError, UsageError
from isthmus.core.files import replacing_folder, write_json
from isthmus.core.types import QuestionAnswering
from isthmus.models.backbones import StockBackbone
from isthmus.models.deployment import describe_deployment
from isthmus.models.image_names import DESCRIPTION, TASK
from isthmus.models.slots import describe_slot
from isthmus.models.transformers_files import quiet

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier
    from isthmus.models.images import ImageClassifier

FORMAT = 2
"""Newest form of the description; only question answering needs it, and classifiers are still written in form 1."""
IMAGE_FORMAT = 3
"""The form of the description of a classifier of images."""
WEIGHTS = "isthmus.safetensors"


def save(model: Classifier, folder: Path) -> None:
    """Write `model` beside `folder` and rename it there, so that the folder is complete or absent."""
    if folder.exists() and any(folder.iterdir()) and not is_model(folder):
        raise RunError(f"{folder} holds other files, and saving a model would replace them: choose another folder")
    with replacing_folder(folder) as fresh:
        _write_model(model, fresh)


def _write_model(model: Classifier, folder: Path) -> None:
    from safetensors import SafetensorError

    description: dict[str, Any] = {
        "format": 1,
        "isthmus": version(),
        "form": model.backbone.form,
        "labels": list(model.labels),
        "fields": list(model.task.fields),
        "max_tokens": model.max_tokens,
        "seed": model.seed,
        "slots": {name: describe_slot(slot) for name, slot in model.slots.by_name().items()},
    }
    if isinstance(model.task, QuestionAnswering):
        description |= {"format": FORMAT, "task": model.task.name, "stride": model.task.stride}
    if model.deployment is not None:
        description["deployment"] = describe_deployment(model.deployment)
        model.deployment.write_beside(folder)
    try:
        with quiet():
            model.tokenizer.save_pretrained(folder)
            own = _write_backbone(model, folder, description)
        if own:
            from safetensors.torch import save_file

            save_file(own, folder / WEIGHTS)
    except SafetensorError as error:
        raise RunError(f"cannot write {folder}: {error}; is the disk full?") from error
    write_json(folder / DESCRIPTION, description)
    for file in folder.iterdir():  # The weights come private; a shared folder should follow the user's mask.
        file.chmod((folder / DESCRIPTION).stat().st_mode)


def _write_backbone(model: Classifier, folder: Path, description: dict[str, Any]) -> dict[str, Tensor]:
    """Write what transformers can write, and return the remaining tensors."""
    if isinstance(model.backbone, StockBackbone) and model.is_stock:
        model.backbone.model.save_pretrained(folder)
        return {}
    encoder = model.backbone.encoder()
    if encoder is None:
        description["options"] = model.backbone.options()
    else:
        encoder[0].save_pretrained(folder)
    state = model.state_dict()
    return {name: state[name].detach().cpu().contiguous() for name in own_names(model)}


def own_names(model: Classifier) -> list[str]:
    """Names of the tensors in `WEIGHTS`, not in the encoder's file."""
    encoder = model.backbone.encoder()
    elsewhere = ("companions.",) if encoder is None else ("companions.", f"backbone.{encoder[1]}")
    return [name for name in model.state_dict() if not name.startswith(elsewhere)]


def is_model(folder: Path) -> bool:
    """Whether a folder holds a text classifier, ours or a stock one."""
    return (folder / DESCRIPTION).is_file() or (folder / "config.json").is_file()


def version() -> str:
    """Version of the package."""
    # Looked up when needed: the package's front page names rooms above this one.
    return str(importlib.import_module(__name__.split(".", 1)[0]).__version__)


def save_images(model: ImageClassifier, folder: Path) -> None:
    """Write `model` beside `folder` and rename it there, so that the folder is complete or absent."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if folder.exists() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file():
        raise RunError(f"{folder} holds other files, and saving a model would replace them: choose another folder")
    if model.deployment is not None:
        raise UsageError(f"a classifier of images answers by a single pass and cannot be saved with {model.deployment}")
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("companions.")}
    with replacing_folder(folder) as fresh:
        try:
            save_file({name: value.detach().cpu().contiguous() for name, value in state.items()}, fresh / WEIGHTS)
        except SafetensorError as error:
            raise RunError(f"cannot write {folder}: {error}; is the disk full?") from error
        description = {
            "format": IMAGE_FORMAT,
            "isthmus": version(),
            "task": TASK,
            **model.describe(),
            "labels": list(model.labels),
            "fields": list(model.task.fields),
            "seed": model.seed,
            "slots": {name: describe_slot(slot) for name, slot in model.slots.by_name().items()},
        }
        write_json(fresh / DESCRIPTION, description)
