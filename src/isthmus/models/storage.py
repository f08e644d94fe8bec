"""Reads the classifiers that `saving.py` writes.

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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from isthmus.arithmetic.randomness import seed_initialisation
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.files import read_json
from isthmus.core.hardware import check_device
from isthmus.core.parameter_values import check_names
from isthmus.core.types import Classification, QuestionAnswering, Task
from isthmus.models import words
from isthmus.models._weights import check_inside
from isthmus.models.backbones import Backbone
from isthmus.models.classifier import Classifier
from isthmus.models.deployment import build_deployment
from isthmus.models.image_names import DESCRIPTION, is_image_model
from isthmus.models.image_storage import load as load_images
from isthmus.models.pretrained import encoder_backbone, outputs_of, stock_backbone
from isthmus.models.saving import FORMAT, WEIGHTS, is_model, own_names, version
from isthmus.models.slots import Slots, build_slot
from isthmus.models.stock import load_stock
from isthmus.models.transformers_files import read_config, read_tokenizer


def load_model(source: str | Path, *, labels: Sequence[str] | None = None, device: str | None = None) -> Classifier:
    """Read a classifier: a run folder, a folder written by `Classifier.save`, a transformers folder, or a hub name.

    `labels` replaces the class names. A folder of an image classifier gives an `ImageClassifier`, which is used alike.

    >>> from isthmus import TrainingSettings, load_model, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> _ = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/loaded")
    >>> load_model("runs/loaded").labels
    ('bad', 'good')
    """
    check_device(device)
    check_names("labels", labels)
    if not isinstance(source, str | PathLike):
        raise UsageError(f"a model is named by its folder or its name on the hub, not {source!r:.80}")
    folder = Path(source)
    if (folder / "model").is_dir() and not is_model(folder):
        folder = folder / "model"
    if folder.is_dir() and not is_model(folder):
        raise ModelError(f"the folder {str(source)!r} holds no model: no {DESCRIPTION} and no config.json in it")
    if is_image_model(folder):
        model = cast("Classifier", load_images(folder))
    elif (folder / DESCRIPTION).is_file():
        model = _load_own(folder)
    else:
        model = load_stock(folder if folder.is_dir() else str(source))
    if labels is not None:
        model = rename_labels(model, labels, str(source))
    return model.to(device).eval() if device else model.eval()


def rename_labels(model: Classifier, labels: Sequence[str], source: str = "given") -> Classifier:
    """The classifier with other class names."""
    if len(labels) != len(model.labels):
        raise UsageError(
            f"{len(labels)} labels were given ({', '.join(labels)}), but the model {source!r} has "
            f"{len(model.labels)} ({', '.join(model.labels)})"
        )
    if isinstance(model.task, Classification):
        model.task = replace(model.task, labels=tuple(labels))
    return model


def _load_own(folder: Path) -> Classifier:
    described = _read_description(folder)
    task = _read_task(described)
    tokenizer = read_tokenizer(folder)
    built: dict[str, Any] = {name: build_slot(slot) for name, slot in described["slots"].items()}
    with seed_initialisation(0, "loading"):
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


def _read_task(described: Mapping[str, Any]) -> Task:
    fields = tuple(described["fields"])
    if described.get("task") == "qa":
        return QuestionAnswering(fields, int(described["stride"]))
    return Classification(tuple(described["labels"]), fields)


def _read_description(folder: Path) -> dict[str, Any]:
    described = read_json(folder / DESCRIPTION)
    needed = {"format": int, "form": str, "labels": list, "fields": list, "max_tokens": int, "seed": int, "slots": dict}
    if not isinstance(described, dict):
        raise ModelError(f"{folder / DESCRIPTION} is not a description of a model")
    if isinstance(described.get("format"), int) and described["format"] > FORMAT:
        raise ModelError(
            f"{folder} was written by isthmus {described.get('isthmus', '?')}, which is newer than this one "
            f"({version()}): upgrade isthmus to read it"
        )
    wrong = [name for name, kind in needed.items() if not isinstance(described.get(name), kind)] or _make_error(
        described
    )
    if wrong:
        raise ModelError(f"{folder / DESCRIPTION} is damaged: no valid {wrong[0]!r} in it")
    return described


def _make_error(described: Mapping[str, Any]) -> list[str]:
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
    expected = set(own_names(model))
    if expected != set(rest):
        odd = ", ".join(sorted(expected ^ set(rest))[:3])
        raise ModelError(f"{folder / WEIGHTS} does not fit the model in its folder: {odd}")
    try:
        model.load_state_dict(rest, strict=False)
    except RuntimeError as error:
        raise ModelError(f"{folder / WEIGHTS} does not fit the model in its folder: {error}") from error
