"""Converts the contents of npm packages to arrays: an ``.npz`` file per split, with `images` (uint8) and `labels`.

The results are pinned by hash, so they must be the same bytes everywhere: stored without compression, without clocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import MissingExtra
from isthmus.core.npz import npz_bytes

MNIST_FILES = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
CIFAR10_FILES = (
    *(f"data_batch_{n}.png" for n in range(1, 6)),
    "test_batch.png",
    "train_lables.json",
    "test_lables.json",
)
_CIFAR10_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
)  # fmt: skip


def mnist(raw: Path, out: Path) -> None:
    """Write MNIST, from four idx files as published."""
    for split, name in (("train", "train"), ("test", "t10k")):
        images = _idx(raw / f"{name}-images-idx3", 3)
        write_npz(out / f"{split}.npz", {"images": images, "labels": _idx(raw / f"{name}-labels-idx1", 1)})
    _write_meta(out, [str(digit) for digit in range(10)], {"train": 60_000, "test": 10_000}, "Published split.")


def cifar10(raw: Path, out: Path) -> None:
    """Write CIFAR-10, from six PNG files with one image per row of pixels, and labels as lists."""
    for split, names in (("train", [f"data_batch_{n}.png" for n in range(1, 6)]), ("test", ["test_batch.png"])):
        images = np.concatenate([_strip(raw / name) for name in names])
        labels = np.array(json.loads((raw / f"{split}_lables.json").read_bytes()), dtype=np.uint8)
        write_npz(out / f"{split}.npz", {"images": images, "labels": labels})
    _write_meta(out, _CIFAR10_NAMES, {"train": 50_000, "test": 10_000}, "Published split.")


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an ``.npz`` file whose bytes depend on the arrays alone."""
    path.write_bytes(npz_bytes(arrays))


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    content = path.read_bytes()
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start], dtype=">u4").astype(int).tolist()
    return np.frombuffer(content[start:], dtype=np.uint8).reshape(shape)


def _strip(path: Path) -> NDArray[np.uint8]:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("pillow", "images", "fetching cifar10 (once; using it does not)") from error
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)


def _write_meta(out: Path, labels: Sequence[str], splits: Mapping[str, int], notes: str) -> None:
    meta = {"labels": list(labels), "splits": dict(splits), "notes": notes}
    (out / "meta.json").write_bytes((json.dumps(meta, indent=1) + "\n").encode())
