"""The wheel that is installed: the same file from every build, and all that it needs inside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def built(place: Path, mask: int) -> Path:
    """A wheel of a copy of the sources, made under another path, other times and another file mask."""
    place.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        (place / name).write_bytes((ROOT / name).read_bytes())
    shutil.copytree(
        ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
    )
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"]
    subprocess.run(build, cwd=place, check=True, capture_output=True, preexec_fn=lambda: os.umask(mask))
    (wheel,) = (place / "out").iterdir()
    return wheel


@pytest.mark.skipif(os.name == "nt", reason="file masks are POSIX's")
def test_two_builds_make_the_same_wheel(tmp_path: Path) -> None:
    first, second = built(tmp_path / "first", 0o022), built(tmp_path / "a longer name", 0o077)
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    names = set(zipfile.ZipFile(first).namelist())
    shipped = {f"isthmus/{path.relative_to(ROOT / 'src/isthmus').as_posix()}" for path in tracked("src/isthmus")}
    assert shipped <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


def tracked(folder: str) -> list[Path]:
    """Files of a folder that are no by-products."""
    return [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
