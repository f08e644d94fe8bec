"""Loads the model of a command, and matches its classes with those of the data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isthmus.core.errors import DataError, UsageError, VictimError, VictimUnreachable
from isthmus.core.types import Classification, Example, ImageClassification

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.data import Dataset
    from isthmus.verbs.sources import ModelSource

_WITHOUT_EFFECT = {"timeout", "batch_size", "concurrency", "requests_per_second", "retries", "backoff", "headers"}
"""Inference options that cannot change a prediction; headers may hold keys and are never recorded."""

VERSION = "version"
"""The option by which a user tells two models of one name apart; no victim gets it."""
_OWN_FOLDER = "isthmus.json"
"""What a model folder written by isthmus has, and one of transformers has not."""


def check_precision(precision: str) -> None:
    """Refuse an unknown precision."""
    if precision not in ("fp32", "bf16"):
        raise UsageError(f"--precision is fp32 or bf16, not {precision!r}")


def deciding(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a victim that may change its predictions."""
    return {key: value for key, value in options.items() if key not in _WITHOUT_EFFECT}


def open_victim(
    source: ModelSource,
    data_labels: Sequence[str],
    *,
    labels: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    device: str | None = None,
    precision: str = "fp32",
    images: bool = False,
) -> Victim:
    """Load the model; a function or a service without class names gets those of the data."""
    given = {**(options or {}), "device": device, "precision": precision, **({"images": True} if images else {})}
    victim = _load_victim(source, labels, given)
    try:
        _ = victim.labels
    except VictimUnreachable:
        raise
    except VictimError:
        if labels is not None:
            raise
        victim = _load_victim(source, data_labels, given)
    return victim


def _load_victim(source: ModelSource, labels: Sequence[str] | None, given: Mapping[str, Any]) -> Victim:
    from isthmus.models.victims import load_victim

    precision: Literal["fp32", "bf16"] = "bf16" if given["precision"] == "bf16" else "fp32"
    try:
        return load_victim(source.spec, **{**given, "labels": labels, "precision": precision})
    except TypeError as error:
        unknown = [key for key in given if repr(key) in str(error)]
        if not unknown:
            raise
        raise UsageError(f"-V {unknown[0]} is not a valid option for this model") from error


def check_inputs(victim: Victim, source: ModelSource, data: Dataset) -> None:
    """Refuse images for a model that reads texts, and texts for one that reads images."""
    own, images = reads_images(victim), isinstance(data.task, ImageClassification)
    if own != images:
        kinds = ("images", "texts") if own else ("texts", "images")
        raise UsageError(f"{source.shown} reads {kinds[0]}, and {data.name} holds {kinds[1]}: choose data that fit it")
    task = getattr(getattr(victim, "model", None), "task", None)
    shapes = [each.shape for each in (task, data.task) if isinstance(each, ImageClassification)]
    if len(set(shapes)) > 1:
        raise UsageError(f"{source.shown} reads inputs of shape {shapes[0]}, and those of {data.name} are {shapes[1]}")


def reads_images(victim: Victim) -> bool:
    """Whether a victim reads arrays, not texts."""
    return hasattr(type(victim), "attackable")


def suit_fields(victim: Victim, source: ModelSource, fields: Sequence[str]) -> None:
    """Set the number of text fields of a transformers classifier to that of the data: its folder does not say it."""
    if reads_images(victim):
        return
    model = getattr(victim, "model", None)
    task = getattr(model, "task", None)
    if isinstance(task, Classification) and not (Path(source.spec) / _OWN_FOLDER).is_file() and len(fields) <= 2:
        model.task = replace(task, fields=tuple(fields))  # type: ignore[union-attr]


def numbering(data: Dataset, aligned: Dataset) -> dict[int, int]:
    """Map label indices of the data to the victim's, also for labels without examples."""
    every = tuple(Example(str(index), {}, index) for index in range(len(data.labels)))
    with contextlib.suppress(DataError):
        known = replace(data, examples=every, rejected=()).align_labels(aligned.labels)
        return {index: int(example.label) for index, example in enumerate(known)}  # type: ignore[arg-type]
    found = {int(ours.label): int(theirs.label) for ours, theirs in zip(data, aligned, strict=True)}  # type: ignore[arg-type]
    for index, name in enumerate(data.labels):
        if index not in found and name in aligned.labels:
            found[index] = aligned.labels.index(name)
    return found


def names_in_data(data: Dataset, labels: Sequence[str], numbers: Mapping[int, int]) -> list[str]:
    """The data's name for each of the victim's classes."""
    names = list(labels)
    for ours, theirs in numbers.items():
        names[theirs] = data.labels[ours]
    return names


def choose_label_names(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    """Class names for people: the victim's own, or the data's if the victim only has numbers."""
    pairs = zip(labels, names, strict=True)
    return [theirs if re.fullmatch(r"(?i)(label_)?\d+", ours) else ours for ours, theirs in pairs]
