"""`train`: a classifier with a defence, into a run folder or in memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed
from isthmus.api.given import Data, as_splits, data_request
from isthmus.core.errors import RunError, UnknownName, UsageError

if TYPE_CHECKING:
    from isthmus.data import Splits
    from isthmus.defences import Defence
    from isthmus.models import Classifier
    from isthmus.training.settings import Progress, TrainingSettings
    from isthmus.verbs.sources import DataRequest


def train(
    data: Data,
    backbone: str | Path | Classifier = "minilm",
    defence: str | Defence | Sequence[Defence] | None = None,
    *,
    settings: TrainingSettings | Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    progress: Progress | None = None,
    device: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Classifier:
    """Train a classifier with a defence; with a `folder` it is a run that every verb, and the command line, can open.

    Args:
        data: what to train on: a name, a file, `Splits`, rows of (text, label), a frame.
        backbone: a name, a folder, or a classifier (trained in place where no folder is given).
        defence: how to train: a name such as ``"normalise+freelb"``, a defence, or several, composed in order.
        settings: how long, how fast, in which precision. A mapping (``{"epochs": 1}``) changes what is usual for the
            task and the backbone, as options of the command line do; `TrainingSettings` says everything.
        folder: the run's folder. Data at hand are written into it, so that the run is whole by itself.
        seed: of everything that is drawn.
        limit: maximum number of training examples.
        progress: told about every step.
        device: ``cpu`` or ``cuda``; by default the accelerator if there is one.
        parameters: of a defence given by name; ``freelb.steps`` is for one part of a composition.

    >>> from isthmus import TrainingSettings, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> model = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1), folder="runs/reviews")
    >>> model.labels
    ('bad', 'good')
    """
    from isthmus.defences import build_defence, compose
    from isthmus.models import Classifier
    from isthmus.training import train as fit
    from isthmus.training.settings import TrainingSettings

    check_arguments(folder=folder, device=device, parameters=parameters)
    seed, limit = check_seed(seed), check_count("limit", limit)
    if settings is not None and not isinstance(settings, Mapping | TrainingSettings):
        raise UsageError(
            f"settings takes isthmus.TrainingSettings(…), or changes such as {{'epochs': 1}}, not {settings!r:.80}"
        )
    if progress is not None and not hasattr(progress, "on_step"):
        raise UsageError(f"progress takes an object with the method on_step, not {progress!r:.80}")
    if not isinstance(backbone, str | Path | Classifier):
        raise UsageError(f"backbone takes a name, a folder or a classifier, not {backbone!r:.80}")
    if isinstance(settings, Mapping):
        settings = _change_settings(settings, data, backbone)
    if isinstance(defence, str):
        chosen: Defence | None = build_defence(defence, parameters)
    elif parameters:
        raise UsageError("parameters belong to a defence given by name: give others where the defence is made")
    else:
        chosen = None if defence is None else compose(defence)
    if folder is None:
        splits = _limit_splits(as_splits(data), limit, seed)
        return fit(splits, backbone, chosen, settings=settings, seed=seed, progress=progress, device=device)
    return _train_run(
        data, backbone, defence, chosen, Path(folder), settings, seed, limit, progress, device, parameters or {}
    )


def _change_settings(given: Mapping[str, Any], data: Data, backbone: str | Path | Classifier) -> TrainingSettings:
    """What is usual for the task and the backbone, with changes."""
    from isthmus.training.settings import TrainingSettings, settings_for

    known = {entry.name for entry in dataclasses.fields(TrainingSettings)}
    for key in given:
        if key not in known:
            raise UnknownName("training setting", key, known)
    request = data_request(data)
    task = request.task if request else as_splits(data).task.name
    return settings_for(task, str(backbone) if isinstance(backbone, str | Path) else backbone, **given)


def _limit_splits(splits: Splits, limit: int | None, seed: int) -> Splits:
    from isthmus.data import Splits

    if limit is None:
        return splits
    cut = splits.for_training(seed)
    return Splits(cut.name, {**cut, "train": cut.train.sample(limit, seed)}) if limit < len(cut.train) else splits


def _train_run(
    data: Data,
    backbone: str | Path | Classifier,
    defence: str | Defence | Sequence[Defence] | None,
    chosen: Defence | None,
    folder: Path,
    settings: TrainingSettings | None,
    seed: int,
    limit: int | None,
    progress: Progress | None,
    device: str | None,
    parameters: Mapping[str, Any],
) -> Classifier:
    """Train into a run folder, as the command line does."""
    from isthmus.models import load_model
    from isthmus.verbs.train import TrainRequest
    from isthmus.verbs.train import train as run

    name = backbone if isinstance(backbone, str | Path) else _save_backbone(backbone, folder)
    request = data_request(data)
    if request is None:
        raise UsageError("no data to train on: pass `data`")
    report = run(
        TrainRequest(
            _write_data(as_splits(data), folder) if request is False else request,
            str(name),
            defence if isinstance(defence, str) else "standard",
            parameters,
            settings,
            limit,
            seed,
            folder,
            device,
        ),
        progress,
        defence=chosen,
    )
    return load_model(report.folder.model_path, device=device)


def _save_backbone(backbone: Classifier, folder: Path) -> Path:
    """A classifier at hand, saved where the run can name it."""
    place = folder / "backbone"
    if not place.is_dir():
        backbone.save(place)
    return place


def _write_data(splits: Splits, folder: Path) -> DataRequest:
    """Data at hand, written into the run folder, so that the run can name them."""
    from isthmus.core.files import make_folder, write_atomic
    from isthmus.core.types import Classification, ImageClassification
    from isthmus.verbs.sources import DataRequest

    task = splits.task
    if not isinstance(task, Classification) or isinstance(task, ImageClassification):
        raise UsageError(
            "of data at hand only classified texts can be kept in a run: name images and questions by file"
        )
    place = folder / "data"
    files = {
        f"{'texts' if splits.is_one_file else split}.jsonl": "".join(
            json.dumps({**each.texts, "label": part.labels[_index(each.label)]}, ensure_ascii=False) + "\n"
            for each in part
        )
        for split, part in splits.items()
    }
    files["meta.json"] = json.dumps({"labels": list(splits.task.labels)}, ensure_ascii=False) + "\n"
    there = {file.name: file.read_text(encoding="utf-8") for file in place.glob("*.json*")}
    if there and there != files:
        raise RunError(f"{folder} holds a run with other data: choose another folder")
    make_folder(place)
    for name, text in files.items() if not there else ():
        write_atomic(place / name, text.encode())
    whole = str(place / "texts.jsonl") if splits.is_one_file else str(place)
    return DataRequest(
        whole, label="label", pair=_pair(task.fields), text=task.fields[0] if len(task.fields) == 1 else None
    )


def _index(label: Any) -> int:
    assert isinstance(label, int)
    return label


def _pair(names: Sequence[str]) -> tuple[str, str] | None:
    return (names[0], names[1]) if len(names) == 2 else None
