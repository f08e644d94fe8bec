"""Images in ``.npz`` files: one file, or a folder with one file per split.

A file holds `images` and `labels` (or `x` and `y`), alone or for several splits: ``x_train``, ``train_images``,
``val_labels`` and their like are all understood. `label_names` and `maximum` may lie beside them. Pickles are never
loaded.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from isthmus.data._sources import canonical, label_names_in
from isthmus.data._tables import is_readable
from isthmus.data.dataset import Splits
from isthmus.data.images import make_images

SUFFIX = ".npz"
_IMAGES = ("images", "image", "x", "data", "features")
_LABELS = ("labels", "label", "y", "target", "targets")
_ORDER = ("train", "dev", "test")
_MOST_CLASSES = 100_000
Arrays = dict[str, NDArray[Any]]


def holds_arrays(path: Path) -> bool:
    """Whether a path is an ``.npz`` file, or a folder of such files and no other data."""
    if path.is_dir():
        files = [file for file in path.iterdir() if file.is_file() and not file.name.startswith((".", "meta.json"))]
        return any(file.suffix == SUFFIX for file in files) and not any(map(is_readable, files))
    return path.suffix == SUFFIX


def read_arrays(
    path: Path, title: str | None, images: str | None, labels: str | None, names: Sequence[str] | None
) -> Splits:
    """Read the splits of a file or a folder; `images` and `labels` name the arrays if their names are unusual."""
    if not path.exists():
        raise DataError(f"no file or folder {path}")
    files = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
    parts: dict[str, tuple[Path, Arrays]] = {}
    for file in files:
        for split, found in _splits_in(file, images, labels).items():
            split = canonical(file.stem if split == "all" else split)
            if split in parts:
                raise DataError(f"{path}: {parts[split][0].name} and {file.name} both hold the split {split}: keep one")
            parts[split] = file, found
    own = path.stem if path.is_file() else path.resolve().name
    if path.is_file() and list(parts) == [canonical(own)] and canonical(own) not in _ORDER:
        parts = {"all": next(iter(parts.values()))}
    elif path.is_file() and canonical(own) in _ORDER and len(parts) == 1:
        own = path.resolve().parent.name
    order = sorted(parts, key=lambda part: (_ORDER.index(part) if part in _ORDER else len(_ORDER), part))
    known = tuple(names) if names is not None else _class_names(path, parts)
    made = {}
    for split in order:
        file, found = parts[split]
        maximum = found.get("maximum")
        scale = None if maximum is None else float(maximum)
        where = file.name if len(parts) == 1 else f"{file.name} ({split})"
        made[split] = make_images(found["images"], found["labels"], known, title or own, split, where, scale)
    shapes = {data.task.shape for data in made.values()}  # type: ignore[union-attr]
    if len(shapes) > 1:
        shown = ", ".join(f"{split} {data.task.shape}" for split, data in made.items())  # type: ignore[union-attr]
        raise DataError(f"{path}: the splits hold images of different shapes ({shown})")
    return Splits(title or own, made)


def _class_names(path: Path, parts: Mapping[str, tuple[Path, Arrays]]) -> tuple[str, ...]:
    """Class names from the file, from ``meta.json``, or else the numbers up to the largest training label."""
    for _, found in parts.values():
        if "label_names" in found:
            return tuple(str(name) for name in found["label_names"].tolist())
    stated = label_names_in(path if path.is_dir() else path.parent, "train") if path.is_dir() else None
    if stated is not None:
        return stated
    deciding = [parts["train"]] if "train" in parts else list(parts.values())
    numbers = [found["labels"] for _, found in deciding if found["labels"].dtype.kind in "uifb"]
    highest = max((int(np.nanmax(each, initial=1)) for each in numbers), default=1)
    if highest >= _MOST_CLASSES:
        raise DataError(f"{path}: labels go up to {highest}, and class numbers are counted from 0: are these labels?")
    return tuple(map(str, range(highest + 1)))


def _splits_in(file: Path, images: str | None, labels: str | None) -> dict[str, Arrays]:
    arrays = load_npz(file)
    shared: Arrays = {key: arrays.pop(key) for key in ("label_names", "maximum") if key in arrays}
    if images is not None or labels is not None:
        images, labels = images or _one_of(arrays, _IMAGES, file), labels or _one_of(arrays, _LABELS, file)
        for key in (images, labels):
            if key not in arrays:
                raise DataError(f"{file} holds no array {key!r}: it holds {', '.join(arrays) or 'nothing'}")
        return {"all": {"images": arrays[images], "labels": arrays[labels], **shared}}
    found: dict[str, Arrays] = {}
    for key, array in arrays.items():
        kind, split = _meaning(key)
        if kind is not None:
            found.setdefault(split, dict(shared))[kind] = array
    whole = {split: parts for split, parts in found.items() if {"images", "labels"} <= parts.keys()}
    if not whole:
        raise DataError(
            f"{file} holds the arrays {', '.join(arrays) or '(none)'}: expected images and labels, or x_train, "
            "y_train, x_test, y_test. Name yours by --text (images) and --label (labels)"
        )
    return whole


def _one_of(arrays: Arrays, usual: Sequence[str], file: Path) -> str:
    for key in arrays:
        if key.lower() in usual:
            return key
    raise DataError(f"{file} holds no array called {', '.join(usual)}: it holds {', '.join(arrays) or 'nothing'}")


def _meaning(key: str) -> tuple[str | None, str]:
    """The role of an array by its name: ``images`` or ``labels``, and the split."""
    words = re.split(r"[_\-. ]+", key.lower())
    kinds = ["images" if word in _IMAGES else "labels" for word in words if word in (*_IMAGES, *_LABELS)]
    rest = "_".join(word for word in words if word not in (*_IMAGES, *_LABELS))
    if len(kinds) != 1 or not re.fullmatch(r"[a-z0-9_]*", rest):
        return None, ""
    return kinds[0], canonical(rest) if rest else "all"


def load_npz(file: Path) -> Arrays:
    """Load the arrays of a file as data; an array of Python objects is refused."""
    try:
        if not zipfile.is_zipfile(file):
            raise DataError(f"{file} cannot be read as an .npz file of arrays: it is not a zip archive, or cut short")
        with np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except DataError:
        raise
    except Exception as error:  # A damaged archive raises whatever zipfile, zlib and numpy stumble over.
        reason = "it holds Python objects" if "pickle" in str(error) else str(error) or type(error).__name__
        raise DataError(f"{file} cannot be read as an .npz file of arrays: {reason}") from error
