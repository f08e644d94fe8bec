"""Image data sets: from arrays to labelled examples, and back.

An example's one field is an array [channels, height, width]: of uint8 as the source has it, or of float32 in [0, 1].
Vectors [width] of any range are features that another network computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from isthmus.core.types import Example, Floats, ImageClassification, Task
from isthmus.data.dataset import Dataset, Rejected

IMAGE, FEATURES = "image", "features"
_CHANNELS = (1, 3, 4)


def is_image_task(task: Task) -> bool:
    """Whether the task's inputs are arrays, not texts."""
    return isinstance(task, ImageClassification)


def pixels(data: Dataset | Iterable[Example]) -> Floats:
    """All images as one array [examples, channels, height, width] of float32 in [0, 1]; vectors stay as they are."""
    arrays = [_array(example) for example in data]
    if not arrays:
        shape = data.task.shape if isinstance(data, Dataset) and isinstance(data.task, ImageClassification) else ()
        return np.zeros((0, *shape), np.float32)
    stacked = np.stack(arrays)
    if stacked.dtype == np.uint8:
        return stacked.astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(stacked, dtype=np.float32)


def _array(example: Example) -> NDArray[Any]:
    (value,) = example.fields.values()
    if isinstance(value, str):
        raise DataError(f"example {example.id} is a text, not an image")
    return value


def make_images(
    images: NDArray[Any],
    labels: NDArray[Any],
    names: Sequence[str] | None,
    title: str,
    split: str,
    where: str,
    maximum: float | None = None,
) -> Dataset:
    """Make a data set of two arrays; `maximum` is the value of white, if neither 255 (whole numbers) nor 1."""
    array = _in_range(_channels_first(images, where), where, maximum)
    classes = _class_numbers(labels, len(array), where)
    known = tuple(names) if names is not None else tuple(map(str, range(int(classes.max(initial=1)) + 1)))
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1) if array.dtype != np.uint8 else None
    field = IMAGE if array.ndim == 4 else FEATURES
    examples, rejected = [], []
    for row, label in enumerate(classes.tolist()):
        if not 0 <= label < len(known):
            reason = f"{where}, row {row + 1}: label {label} is outside 0 … {len(known) - 1} ({', '.join(known[:12])})"
            rejected.append(Rejected(str(row), reason))
        elif finite is not None and not finite[row]:
            rejected.append(Rejected(str(row), f"{where}, row {row + 1}: the image holds NaN or infinite values"))
        else:
            examples.append(Example(str(row), {field: array[row]}, label))
    task = ImageClassification(known, (field,), tuple(array.shape[1:]))
    return Dataset(title, split, task, tuple(examples), tuple(rejected))


def _channels_first(images: NDArray[Any], where: str) -> NDArray[Any]:
    """Images of any layout as [rows, channels, height, width]; [rows, width] stays."""
    if images.ndim == 2:
        return images
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[1] in _CHANNELS and images.shape[3] not in _CHANNELS:
        return images
    if images.ndim == 4 and images.shape[3] in _CHANNELS:
        return np.moveaxis(images, 3, 1)
    if images.ndim == 4 and images.shape[1] in _CHANNELS:
        return images
    raise DataError(
        f"{where}: images should be an array [rows, height, width], [rows, height, width, channels] or "
        f"[rows, channels, height, width] with 1, 3 or 4 channels, or vectors [rows, width], not {list(images.shape)}"
    )


def _in_range(array: NDArray[Any], where: str, maximum: float | None) -> NDArray[Any]:
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind not in "uif":
        raise DataError(f"{where}: images should be numbers, not {array.dtype}")
    if array.ndim == 2 and maximum is None:
        return array.astype(np.float32)
    if array.dtype == np.uint8 and maximum in (None, 255):
        return array
    if maximum is None:
        maximum = 255.0 if array.dtype.kind in "ui" else 1.0
    with np.errstate(invalid="ignore"):
        scaled = (array / np.float64(maximum)).astype(np.float32)
    known = scaled[np.isfinite(scaled)]
    low, high = float(known.min(initial=0.0)), float(known.max(initial=0.0))
    if low < 0 or high > 1:
        found = f"{low * maximum:g} to {high * maximum:g}"
        if array.dtype.kind == "f":
            remedy = "Scale it to [0, 1] (divide by 255 where it holds bytes), or save it as uint8"
        else:
            remedy = "Scale it to 0 … 255, or save `maximum`, the value of white, beside it"
        raise DataError(f"{where}: pixels run from {found} as {array.dtype}, not from 0 to {maximum:g}. {remedy}")
    return scaled


def _class_numbers(labels: NDArray[Any], rows: int, where: str) -> NDArray[np.int64]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (rows,):
        raise DataError(
            f"{where}: {rows} images and labels of shape {list(labels.shape)}: one label an image is needed"
        )
    if labels.dtype.kind not in "uib" and not (labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all())):
        raise DataError(f"{where}: labels should be whole numbers from 0, not {labels.dtype}")
    return labels.astype(np.int64)
