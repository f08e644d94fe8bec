"""JSON files of a run folder, with a checksum, so that damage is noticed.

    {"schema": 1, …, "check": "1c291ca3"}

The last key is the CRC-32 of the rest as JSON with sorted keys and no spaces, so that another layout changes nothing.
Who reads a record gets it without the key. Files written before there were checksums, and those whose key somebody
deleted after changing them by hand, are read as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isthmus.core.errors import RunError
from isthmus.core.files import read_json, write_json

CHECK = "check"


def write_record(path: Path | str, record: Mapping[str, Any]) -> None:
    """Write an object with its checksum; the file is complete or absent."""
    rest = {key: part for key, part in record.items() if key != CHECK}
    write_json(path, {**rest, CHECK: checksum(rest)})


def read_record(path: Path | str) -> dict[str, Any]:
    """Read an object; one that was changed is a `RunError`."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RunError(f"{path} should hold a JSON object, not {type(value).__name__}")
    if CHECK in value and value.pop(CHECK) != checksum(value):
        raise RunError(
            f"{path} does not match its checksum: the file was damaged, or changed by hand. Restore it from a copy; if "
            f'you changed it and want it read as it is, delete the entry "{CHECK}" at its end'
        )
    return value


def checksum(record: Mapping[str, Any]) -> str:
    """Eight hex digits over what an object holds."""
    # As a reader will see it: keys are texts, tuples are lists.
    canonical = json.dumps(json.loads(json.dumps(record)), sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(canonical.encode()):08x}"


def part_of(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key of a record; empty if there is none."""
    part = record.get(key)
    return part if isinstance(part, Mapping) else {}
