"""A folder of images: one folder a class, inside one folder a split or alone.

    digits/train/zero/0001.png        splits, classes, images
    digits/zero/0001.png              classes, images; nobody has split them

Classes are numbered in the order of their folders' names. All images must have one size; one that cannot be read, or
has another size, becomes a row that could not be used. Grey stays grey; where any image has colours all are read so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    if not folder.is_dir() or any(is_readable(file) and file.name != "meta.json" for file in folder.iterdir()):
        return False
    inner = [path for path in folder.iterdir() if path.is_dir()]
    return any(_images_in(path) or any(_images_in(deeper) for deeper in _folders(path)) for path in inner)


def read_folder(folder: Path, title: str | None, names: Sequence[str] | None) -> Splits:
    """The splits of a folder."""
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
    reading = _Reading(files)
    order = [split for split in (*_SPLITS, "all") if split in files]
    return Splits(name, {split: reading.dataset(name, split, known, places[split]) for split in order})


class _Reading:
    """All images of a folder, read at once so that size and colours are the same for all."""

    def __init__(self, files: dict[str, list[tuple[Path, int]]]) -> None:
        self.files = files
        self.images: dict[Path, NDArray[np.uint8] | str] = {}
        library = _pillow()
        for file, _ in (pair for pairs in files.values() for pair in pairs):
            self.images[file] = _read(library, file)
        if any(isinstance(found, np.ndarray) and len(found) == 3 for found in self.images.values()):
            self.images = {
                file: np.repeat(found, 3, axis=0) if isinstance(found, np.ndarray) and len(found) == 1 else found
                for file, found in self.images.items()
            }
        shapes = Counter(found.shape for found in self.images.values() if isinstance(found, np.ndarray))
        self.shape: tuple[int, ...] = max(shapes, key=lambda shape: shapes[shape]) if shapes else ()

    def dataset(self, name: str, split: str, labels: tuple[str, ...], place: Path) -> Dataset:
        examples, rejected = [], []
        for file, label in self.files[split]:
            found, key = self.images[file], file.relative_to(place).as_posix()
            if isinstance(found, str):
                rejected.append(Rejected(key, found))
            elif found.shape != self.shape:
                expected, size = (f"{shape[2]} x {shape[1]}" for shape in (self.shape, found.shape))
                rejected.append(Rejected(key, f"{file} is {size} pixels, and most images are {expected}: resize it"))
            else:
                examples.append(Example(key, {IMAGE: found}, label))
        if not examples:
            first = f"; the first: {rejected[0].reason}" if rejected else ""
            raise DataError(f"{place} holds no image that can be used{first}")
        return Dataset(name, split, ImageClassification(labels, (IMAGE,), self.shape), tuple(examples), tuple(rejected))


def _read(library: Any, file: Path) -> NDArray[np.uint8] | str:
    """An image [channels, height, width], or why it cannot be read."""
    try:
        with library.open(file) as image:
            grey = image.mode in ("1", "L", "I", "I;16", "F", "LA")
            if image.mode in ("I", "I;16"):  # Sixteen bits, which Pillow would cut off instead of scaling.
                return (np.asarray(image, dtype=np.float64)[None] / 257).round().clip(0, 255).astype(np.uint8)
            array = np.asarray(image.convert("L" if grey else "RGB"))
    except Exception as error:  # Decoders raise OSError, SyntaxError, ValueError, struct.error and their own types.
        return f"{file} cannot be read as an image: {str(error).strip() or type(error).__name__}"
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
