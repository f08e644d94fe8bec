"""Writing and reading classifiers.

A classifier's folder holds

    config.json, model.safetensors, tokenizer files    the stock classifier, or, where a slot is filled, its encoder
    isthmus.safetensors                                the head and the slots (only where a slot is filled, or no stock
                                                       class fits)
    isthmus.json                                       fields, labels, length, how to build the slots again, and how
                                                       the model answers if not by a single pass

so a classifier with no slot filled is loaded by ``AutoModelForSequenceClassification`` without isthmus, and a model
that answers questions by ``AutoModelForQuestionAnswering``. Only safetensors and JSON are read, and reading runs no
code that came with the folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from isthmus.arithmetic.randomness import seeded
from isthmus.core.errors import ModelError, RunError, UsageError
from isthmus.core.files import read_json, replacing_folder, write_json
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models import words
from isthmus.models._weights import check_inside
from isthmus.models.backbones import Backbone, StockBackbone
from isthmus.models.classifier import Classifier
from isthmus.models.deployment import build_deployment, describe_deployment
from isthmus.models.image_names import is_image_model
from isthmus.models.image_storage import load as load_images
from isthmus.models.pretrained import encoder_backbone, load_stock, outputs_of, stock_backbone
from isthmus.models.slots import Slots, build_slot, describe_slot
from isthmus.models.transformers_files import quiet, read_config, read_tokenizer

FORMAT = 2
"""Newest form of the description; only question answering needs it, and classifiers are still written in form 1."""
DESCRIPTION = "isthmus.json"
WEIGHTS = "isthmus.safetensors"


def save(model: Classifier, folder: Path) -> None:
    """Write `model` beside `folder` and rename it there, so that the folder is whole or not there."""
    if folder.exists() and any(folder.iterdir()) and not _is_model(folder):
        raise RunError(f"{folder} holds other files, and saving a model would replace them: choose another folder")
    with replacing_folder(folder) as fresh:
        _write(model, fresh)


def _write(model: Classifier, folder: Path) -> None:
    from safetensors import SafetensorError

    description: dict[str, Any] = {
        "format": 1,
        "isthmus": version(),
        "form": model.backbone.form,
        "labels": list(model.labels),
        "fields": list(model.task.fields),
        "max_tokens": model.max_tokens,
        "seed": model.seed,
        "slots": {name: describe_slot(slot) for name, slot in model.slots.filled().items()},
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
    """Write what transformers can write, and return the tensors that are left."""
    if isinstance(model.backbone, StockBackbone) and model.is_stock:
        model.backbone.model.save_pretrained(folder)
        return {}
    encoder = model.backbone.encoder()
    if encoder is None:
        description["options"] = model.backbone.options()
    else:
        encoder[0].save_pretrained(folder)
    state = model.state_dict()
    return {name: state[name].detach().cpu().contiguous() for name in _own_names(model)}


def _own_names(model: Classifier) -> list[str]:
    """The tensors that lie in `WEIGHTS`, not in the encoder's file."""
    encoder = model.backbone.encoder()
    elsewhere = ("companions.",) if encoder is None else ("companions.", f"backbone.{encoder[1]}")
    return [name for name in model.state_dict() if not name.startswith(elsewhere)]


def _is_model(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file() or (folder / "config.json").is_file()


def load_model(source: str | Path, *, labels: Sequence[str] | None = None, device: str | None = None) -> Classifier:
    """Read a classifier: a run folder, a folder written by `Classifier.save`, a transformers folder, or a hub name.

    `labels` replaces the class names. A folder of an image classifier gives an `ImageClassifier`, which is used alike.

    >>> from isthmus import TrainingSettings, load_model, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/loaded")
    >>> load_model("runs/loaded").labels
    ('bad', 'good')
    """
    folder = Path(source)
    if (folder / "model").is_dir() and not _is_model(folder):
        folder = folder / "model"
    if folder.is_dir() and not _is_model(folder):
        raise ModelError(f"the folder {str(source)!r} holds no model: no {DESCRIPTION} and no config.json in it")
    if is_image_model(folder):
        model = cast("Classifier", load_images(folder))
    elif (folder / DESCRIPTION).is_file():
        model = _load_own(folder)
    else:
        model = load_stock(folder if folder.is_dir() else str(source))
    if labels is not None:
        model = renamed(model, labels, str(source))
    return model.to(device).eval() if device else model.eval()


def renamed(model: Classifier, labels: Sequence[str], source: str = "given") -> Classifier:
    """The same classifier with other class names."""
    if len(labels) != len(model.labels):
        raise UsageError(
            f"{len(labels)} labels were given ({', '.join(labels)}), but the model {source!r} has "
            f"{len(model.labels)} ({', '.join(model.labels)})"
        )
    if isinstance(model.task, Classification):
        model.task = replace(model.task, labels=tuple(labels))
    return model


def _load_own(folder: Path) -> Classifier:
    described = _description(folder)
    task = _described_task(described)
    tokenizer = read_tokenizer(folder)
    built: dict[str, Any] = {name: build_slot(slot) for name, slot in described["slots"].items()}
    with seeded(0, "loading"):
        body = _load_backbone(folder, described, task, len(tokenizer))
        model = Classifier(
            body, tokenizer, task, max_tokens=int(described["max_tokens"]), seed=int(described["seed"])
        ).fill(**built)
    if not model.is_stock:
        _load_rest(model, folder)
    if described.get("deployment") is not None:
        model.deployment = build_deployment(described["deployment"]).read_beside(folder)
    return model


def _load_backbone(folder: Path, described: Mapping[str, Any], task: Task, vocabulary: int) -> Backbone:
    form = described["form"]
    if form in words.FORMS:
        return words.build(form, vocabulary, described["options"])
    config = read_config(folder, outputs_of(task))
    if form == "encoder":
        return encoder_backbone(folder, config, task)
    # Where a slot is filled the head lies beside the encoder, and is read afterwards.
    return stock_backbone(folder, config, task, complete=not described["slots"])


def _described_task(described: Mapping[str, Any]) -> Task:
    fields = tuple(described["fields"])
    if described.get("task") == "qa":
        return QuestionAnswering(fields, int(described["stride"]))
    return Classification(tuple(described["labels"]), fields)


def _description(folder: Path) -> dict[str, Any]:
    described = read_json(folder / DESCRIPTION)
    needed = {"format": int, "form": str, "labels": list, "fields": list, "max_tokens": int, "seed": int, "slots": dict}
    if not isinstance(described, dict):
        raise ModelError(f"{folder / DESCRIPTION} is not a description of a model")
    if isinstance(described.get("format"), int) and described["format"] > FORMAT:
        raise ModelError(
            f"{folder} was written by isthmus {described.get('isthmus', '?')}, which is newer than this one "
            f"({version()}): upgrade isthmus to read it"
        )
    wrong = [name for name, kind in needed.items() if not isinstance(described.get(name), kind)] or _wrong(described)
    if wrong:
        raise ModelError(f"{folder / DESCRIPTION} is damaged: no valid {wrong[0]!r} in it")
    return described


def version() -> str:
    """That of the package."""
    # Looked up when needed: the package's front page names rooms above this one.
    return str(importlib.import_module(__name__.split(".", 1)[0]).__version__)


def _wrong(described: Mapping[str, Any]) -> list[str]:
    form, answers = described["form"], described.get("task") == "qa"
    named = len(described["labels"]) > 1 and all(isinstance(name, str) for name in described["labels"])
    checks = {
        "task": described.get("task") in (None, "classification", "qa"),
        "stride": not answers or (isinstance(described.get("stride"), int) and described["stride"] > 0),
        "labels": not described["labels"] if answers else named,
        "fields": len(described["fields"]) > 0 and all(isinstance(name, str) for name in described["fields"]),
        "form": form in ("stock", "encoder", *(() if answers else words.FORMS)),
        "options": form not in words.FORMS or isinstance(described.get("options"), dict),
        "slots": set(described["slots"]) <= set(Slots.names),
    }
    return [name for name, right in checks.items() if not right]


def _load_rest(model: Classifier, folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_inside(folder / WEIGHTS, folder)
    try:
        rest = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {folder / WEIGHTS}: {error}") from error
    expected = set(_own_names(model))
    if expected != set(rest):
        odd = ", ".join(sorted(expected ^ set(rest))[:3])
        raise ModelError(f"{folder / WEIGHTS} does not fit the model it lies beside: {odd}")
    try:
        model.load_state_dict(rest, strict=False)
    except RuntimeError as error:
        raise ModelError(f"{folder / WEIGHTS} does not fit the model it lies beside: {error}") from error
