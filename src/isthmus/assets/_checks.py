"""Shared by all sources of assets: their error, the hash of a file, the size of a download."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from isthmus.assets.types import Pin
from isthmus.core.errors import AssetError

_BLOCK = 1 << 20


class SourceFailed(AssetError):
    """One source could not give the asset; another may."""


def digest_of(path: Path, advanced: Callable[[int], None] = lambda _: None) -> str:
    """sha256 of a file; `advanced` is called with the size of every block read."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            advanced(len(block))
    return digest.hexdigest()


def check_pin(path: Path, pin: Pin, name: str) -> None:
    """Refuse a file that is not the pinned one, with both hashes in the message."""
    found = digest_of(path)
    if found != pin.sha256:
        raise SourceFailed(f"{name} has sha256 {found}, expected {pin.sha256}")


def size_under(folder: Path) -> int:
    """Bytes of all files in a folder, some of which may just be moved."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).stat().st_size
            except OSError:  # pip moved it in between
                continue
    return total
