"""Two folders, byte for byte, except for what tells when, for how long, and how fast.

These are the only exceptions, and all of them: moments, durations, and the effort that was spent (work in flight at a
kill is done twice, and counted twice).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isthmus.core.records import read_record

EXCEPTED: dict[str, tuple[str, ...]] = {
    "run.json": ("created", "results/wall_s"),
    "attacks/*.json": ("created", "effort"),
    "embeddings/*.json": ("created", "effort"),
    "evaluations/*.json": ("created", "effort", "speed"),
    "certificates/*.json": ("created", "effort"),
    "cache/toy/.verified.json": ("config.json", "weights.bin"),  # When the files were written that were checked.
}
"""By the file's place in a run folder: keys that may differ."""


def tree(folder: Path) -> dict[str, Any]:
    """What a folder holds: by name the bytes of each file, or its JSON without the exceptions; None for a folder."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else _content(path)
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def _content(path: Path) -> Any:
    keys = next((keys for pattern, keys in EXCEPTED.items() if path.match(pattern)), None)
    if keys is None:
        return path.read_bytes()
    value = read_record(path)  # Its checksum is compared with what it holds, not with that of another moment.
    for key in keys:
        outer, _, inner = key.partition("/")
        ((value.get(outer) or {}) if inner else value).pop(inner or outer, None)
    return value


def difference(expected: dict[str, Any], found: dict[str, Any]) -> str | None:
    """The first things in which two trees differ."""
    lost, more = sorted(expected.keys() - found), sorted(found.keys() - expected)
    changed = sorted(name for name in expected.keys() & found if expected[name] != found[name])
    if not (lost or more or changed):
        return None
    parts = [f"{what}: {', '.join(names[:4])}" for what, names in (("missing", lost), ("left over", more)) if names]
    parts += [f"{name}: {_apart(expected[name], found[name])}" for name in changed[:3]]
    return "; ".join(parts)


def _apart(one: Any, other: Any) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        return ", ".join(f"{key} {str(one.get(key))[:80]!r} -> {str(other.get(key))[:80]!r}" for key in keys[:3])
    if isinstance(one, bytes) and isinstance(other, bytes):
        place = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        around = slice(max(place - 30, 0), place + 40)
        return f"{len(one)} -> {len(other)} bytes, first at {place}: {one[around]!r} -> {other[around]!r}"
    return f"{type(one).__name__} -> {type(other).__name__}"
