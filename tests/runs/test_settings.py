from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isthmus.runs.provenance import fingerprint, machine, versions
from isthmus.runs.settings import differences, plain, short_hash

settings = st.dictionaries(
    st.text(max_size=4), st.integers() | st.text(max_size=4) | st.lists(st.integers(), max_size=2)
)


@dataclass(frozen=True)
class Method:
    rate: float = 0.5
    names: tuple[str, ...] = ("a", "b")
    pattern: re.Pattern[str] | None = None


@given(settings)
def test_the_hash_does_not_depend_on_the_order_of_keys(value: dict[str, object]) -> None:
    assert short_hash(value) == short_hash(dict(reversed(value.items())))
    assert re.fullmatch("[0-9a-f]{8}", short_hash(value))


def test_every_field_of_a_method_counts() -> None:
    hashes = {
        short_hash({"m": m})
        for m in (Method(), Method(rate=0.4), Method(names=("a",)), Method(pattern=re.compile("x")))
    }
    assert len(hashes) == 4


def test_plain_values_are_json() -> None:
    value = {"m": Method(pattern=re.compile("x+")), "p": Path("a/b"), "n": np.float32(0.5), "i": np.arange(2), "f": len}
    assert plain(value) == {
        "m": {"rate": 0.5, "names": ["a", "b"], "pattern": "x+"},
        "p": "a/b",
        "n": 0.5,
        "i": [0, 1],
        "f": "len",
    }


def test_differences_are_named_by_path() -> None:
    assert differences({"a": {"b": 1, "c": (1,)}}, {"a": {"b": 2, "c": [1]}, "d": None}) == ["a.b: 1 -> 2"]


def test_a_model_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    first = fingerprint(tmp_path)
    (tmp_path / "notes.md").write_text("not a model file")
    assert fingerprint(tmp_path) == first
    (tmp_path / "model.safetensors").write_bytes(b"1235")
    assert fingerprint(tmp_path) != first
    assert fingerprint(tmp_path / "absent") is None


def test_provenance_names_what_computed_and_nobody() -> None:
    import getpass
    import platform

    assert {"isthmus", "python", "torch", "transformers"} <= set(versions())
    shown = str(machine("cpu"))
    assert "cpu" in shown
    assert platform.node() not in shown or not platform.node()
    assert f"/{getpass.getuser()}" not in shown
