"""A folder of images: one folder per class, directly or inside one folder per split.

    digits/train/zero/0001.png        splits, classes, images
    digits/zero/0001.png              classes, images; nobody has split them

Classes are numbered in the order of their folders' names. All images must have one size; one that cannot be read, or
has another size, becomes a row that could not be used. Grey stays grey; where any image has colours all are read so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError, MissingExtra
from isthmus.core.types import Example, ImageClassification
from isthmus.data._sources import canonical
from isthmus.data._tables import is_readable
from isthmus.data.dataset import Dataset, Rejected, Splits
from isthmus.data.images import IMAGE

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
_SPLITS = ("train", "dev", "test")


def holds_images(folder: Path) -> bool:
    """Whether a folder holds images in folders, and no table of texts."""
    if not folder.is_dir():
        return False
    if any(is_readable(file) and not file.name.startswith((".", "meta.json")) for file in folder.iterdir()):
        return False
    inner = [path for path in folder.iterdir() if path.is_dir()]
    return any(_images_in(path) or any(_images_in(deeper) for deeper in _folders(path)) for path in inner)


def read_folder(folder: Path, title: str | None, names: Sequence[str] | None) -> Splits:
    """Read the splits of a folder."""
    name = title or folder.resolve().name
    inner = _folders(folder)
    has_splits = all(canonical(path.name) in _SPLITS for path in inner) and not any(map(_images_in, inner))
    places = {canonical(path.name): path for path in inner} if has_splits else {"all": folder}
    classes = sorted({path.name for place in places.values() for path in _folders(place)})
    known = tuple(names) if names is not None else tuple(classes)
    if len(known) != len(classes):
        raise DataError(f"{folder} has {len(classes)} folders of classes ({', '.join(classes[:8])}), not {len(known)}")
    files = {
        split: [(file, classes.index(kind.name)) for kind in _folders(place) for file in _images_in(kind)]
        for split, place in places.items()
    }
    library = _pillow()
    rows = {
        split: [
            ImageRow(file.relative_to(places[split]).as_posix(), _read_image(library, file), label, str(file))
            for file, label in pairs
        ]
        for split, pairs in files.items()
    }
    return make_splits(name, {split: rows[split] for split in (*_SPLITS, "all") if split in rows}, known)


class ImageRow(NamedTuple):
    """An image of a source."""

    key: str
    image: NDArray[np.uint8] | str  # [channels, height, width], or why it cannot be read
    label: int
    where: str


def make_splits(name: str, rows: Mapping[str, Sequence[ImageRow]], labels: tuple[str, ...]) -> Splits:
    """Make data sets of one image size; if any image has colours, all are read with colours."""
    found = [row.image for part in rows.values() for row in part if isinstance(row.image, np.ndarray)]
    coloured = any(len(image) == 3 for image in found)
    shapes = Counter((3 if coloured else 1, *image.shape[1:]) for image in found)
    shape: tuple[int, ...] = max(shapes, key=lambda each: shapes[each]) if shapes else ()
    return Splits(name, {split: _dataset(name, split, part, labels, shape) for split, part in rows.items()})


def _dataset(
    name: str, split: str, rows: Sequence[ImageRow], labels: tuple[str, ...], shape: tuple[int, ...]
) -> Dataset:
    examples, rejected = [], []
    for row in rows:
        if isinstance(row.image, str):
            rejected.append(Rejected(row.key, row.image))
        elif row.image.shape[1:] != shape[1:]:
            expected, size = (f"{each[2]} x {each[1]}" for each in (shape, row.image.shape))
            reason = f"{row.where} is {size} pixels, and most images are {expected}: resize it"
            rejected.append(Rejected(row.key, reason))
        elif not 0 <= row.label < len(labels):
            rejected.append(Rejected(row.key, f"{row.where} has the label {row.label}, outside 0 … {len(labels) - 1}"))
        else:
            image = row.image if len(row.image) == shape[0] else np.repeat(row.image, shape[0], axis=0)
            examples.append(Example(row.key, {IMAGE: image}, row.label))
    if not examples:
        first = f"; the first: {rejected[0].reason}" if rejected else ""
        raise DataError(f"the {split} split of {name} holds no image that can be used{first}")
    return Dataset(name, split, ImageClassification(labels, (IMAGE,), shape), tuple(examples), tuple(rejected))


def _read_image(library: Any, file: Path) -> NDArray[np.uint8] | str:
    """An image [channels, height, width], or the reason why it cannot be read."""
    try:
        with library.open(file) as image:
            return array_of(image)
    except Exception as error:  # Decoders raise OSError, SyntaxError, ValueError, struct.error and their own types.
        return f"{file} cannot be read as an image: {str(error).strip() or type(error).__name__}"


def array_of(image: Any) -> NDArray[np.uint8]:
    """A Pillow image as an array [channels, height, width], with one or three channels."""
    if image.mode in ("I", "I;16"):  # Sixteen bits, which Pillow would cut off instead of scaling.
        return (np.asarray(image, dtype=np.float64)[None] / 257).round().clip(0, 255).astype(np.uint8)
    array = np.asarray(image.convert("L" if image.mode in ("1", "L", "F", "LA") else "RGB"))
    return array[None] if array.ndim == 2 else np.moveaxis(array, 2, 0)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("pillow", "images", "reading images from files") from error
    return Image


def _folders(path: Path) -> list[Path]:
    return sorted(inner for inner in path.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _images_in(path: Path) -> list[Path]:
    return sorted(file for file in path.iterdir() if file.is_file() and file.suffix.lower() in SUFFIXES)
