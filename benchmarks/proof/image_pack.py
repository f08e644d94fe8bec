"""Images in few bytes: what neighbours predict is taken off, and the rest gets short codes; nothing is lost.

    predicted = left + up - left-up (mod 256);  of colours the second and third channel less the first before that

    pack(images, labels) -> bytes         unpack(bytes) -> (images, labels)

What is left of a photograph is noise without repetitions, so that Huffman's code alone does as well as a search for
matches, in a hundredth of the time.
"""

from __future__ import annotations

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from isthmus.core.files import write_atomic

Bytes = NDArray[np.uint8]
SUFFIX = ".images.z"


def pack(images: Bytes, labels: NDArray[Any]) -> bytes:
    """Images [rows, height, width] or [rows, height, width, channels] of uint8, and labels below 256."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) != len(labels):
        raise DataError(f"images are uint8 [rows, height, width(, channels)] with a label each, not {images.shape}")
    left = images.copy()
    if images.ndim == 4 and images.shape[3] == 3:
        left[..., 1:] -= images[..., :1]
    for axis in (1, 2):
        left = np.concatenate([left.take([0], axis), np.diff(left, axis=axis)], axis=axis)
    planes = np.moveaxis(left, 3, 0) if left.ndim == 4 else left  # Bytes of one kind together compress better.
    head = json.dumps({"shape": images.shape}).encode() + b"\n"
    body = head + labels.astype(np.uint8).tobytes() + np.ascontiguousarray(planes).tobytes()
    coder = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    return coder.compress(body) + coder.flush()


def unpack(data: bytes) -> tuple[Bytes, Bytes]:
    """Read what `pack` wrote."""
    try:
        stream = io.BytesIO(zlib.decompress(data))
        shape = tuple(json.loads(stream.readline())["shape"])
        labels = np.frombuffer(stream.read(shape[0]), np.uint8).copy()
        flat = np.frombuffer(stream.read(), np.uint8)
        colours = len(shape) == 4
        left = flat.reshape((shape[3], *shape[:3]) if colours else shape)
    except (zlib.error, ValueError, KeyError) as error:
        raise DataError(f"these are no packed images: {error}") from error
    left = np.moveaxis(left, 0, 3) if colours else left
    for axis in (2, 1):
        left = np.cumsum(left, axis=axis, dtype=np.uint8)
    images = left.copy()
    if colours and shape[3] == 3:
        images[..., 1:] += images[..., :1]
    return images, labels


def pack_folder(source: Path, out: Path, sizes: dict[str, int]) -> list[Path]:
    """Write the first images of every class, as many as `sizes` says for each split, and meta.json."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for split, size in sizes.items():
        with np.load(source / f"{split}.npz") as arrays:
            images, labels = arrays["images"], arrays["labels"]
        rows = first_of_each(labels, size)
        path = out / f"{split}{SUFFIX}"
        write_atomic(path, pack(images[rows], labels[rows]))
        written.append(path)
    write_atomic(out / "meta.json", (source / "meta.json").read_bytes())
    return [*written, out / "meta.json"]


def first_of_each(labels: NDArray[Any], size: int) -> NDArray[np.int64]:
    """Rows in their order, the same number of every class."""
    classes = np.unique(labels)
    each = -(-size // len(classes))
    rows = np.concatenate([np.flatnonzero(labels == label)[:each] for label in classes])
    return np.sort(rows)[:size]


def unpacked(folder: Path, into: Path) -> Path:
    """A folder of ``.npz`` files: `folder` itself, or what is unpacked of it into `into`, once."""
    packed = sorted(folder.glob(f"*{SUFFIX}"))
    if not packed:
        return folder
    into.mkdir(parents=True, exist_ok=True)
    for path in packed:
        target = into / f"{path.name.removesuffix(SUFFIX)}.npz"
        if not target.is_file():
            images, labels = unpack(path.read_bytes())
            stream = io.BytesIO()
            np.savez(stream, images=images, labels=labels)
            write_atomic(target, stream.getvalue())
    if not (into / "meta.json").is_file():
        write_atomic(into / "meta.json", (folder / "meta.json").read_bytes())
    return into
