"""Models, word lists and data sets by name."""

from __future__ import annotations

import os
from pathlib import Path

from isthmus.core.errors import AssetError


def names(kind: str | None = None) -> tuple[str, ...]:
    """Names."""
    return ("rotten_tomatoes",)


def user_folder(name: str) -> Path | None:
    """The user's own."""
    root = os.environ.get("ISTHMUS_ASSETS")
    return Path(root) / name if root and (Path(root) / name).is_dir() else None


def path(name: str) -> Path:
    """Where."""
    raise AssetError(name)
