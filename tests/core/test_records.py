"""JSON files with a checksum: any change is noticed, another layout is none, and older files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.errors import RunError
from isthmus.core.records import read_record, write_record

RECORD = {"name": "‮naïve \ud800", "rate": 0.1, "n": 7, "none": None, "nan": float("nan"), "list": [1, {"a": True}]}


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_record(path, RECORD)
    assert list(json.loads(path.read_text(errors="surrogatepass")))[-1] == "check"
    found = read_record(path)
    assert repr(found) == repr(RECORD)
    write_record(path, {**found, "check": "of another time"})
    assert repr(read_record(path)) == repr(RECORD)


def test_another_layout_is_the_same_record(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    record: dict[Any, Any] = {"b": 1.5, "a": {"d": 2, "c": (3, 4)}, 5: "five"}
    write_record(path, record)
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found, sort_keys=True))
    assert read_record(path) == {"a": {"c": [3, 4], "d": 2}, "b": 1.5, "5": "five"}


def test_no_bit_changes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_record(path, {"racc": 0.4375, "n": 1200, "words": ["fine", "dull"]})
    whole, sound = path.read_bytes(), read_record(path)
    refused = 0
    for place in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            found = read_record(path)
        except RunError:
            refused += 1
            continue
        # The name of the checksum may be what changed: then all else is as it was.
        assert {key: part for key, part in found.items() if key in sound} == sound
        assert len(found) <= len(sound) + 1
    assert refused > 7 * len(whole)


def test_a_changed_record_is_refused_and_one_without_a_checksum_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_record(path, {"n": 5})
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "n": 6}))
    with pytest.raises(RunError, match=r'run\.json does not match its checksum.*delete the entry "check"'):
        read_record(path)
    path.write_text(json.dumps({"n": 6}))
    assert read_record(path) == {"n": 6}
    path.write_text("[]")
    with pytest.raises(RunError, match="should hold a JSON object, not list"):
        read_record(path)
