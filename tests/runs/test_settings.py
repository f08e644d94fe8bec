from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.runs.provenance import fingerprint, machine, versions
from isthmus.runs.settings import differences, short_hash, to_plain

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
    assert to_plain(value) == {
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


def test_of_a_folder_weights_tokenizer_and_configuration_count(tmp_path: Path) -> None:
    parts = (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
        "spiece.model",
        "source.spm",
        "bpe.codes",
    )
    for name in parts:
        (tmp_path / name).write_bytes(b"1")
    first = fingerprint(tmp_path)
    for name in parts:
        (tmp_path / name).write_bytes(b"2")
        assert fingerprint(tmp_path) != first, name
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "runs/x").mkdir(parents=True)
    (tmp_path / "runs/x/run.json").write_text("{}")  # What is attacked from within its own folder stays what it is.
    assert fingerprint(tmp_path) == first


@pytest.mark.parametrize("above", [False, True])
def test_of_an_onnx_file_what_it_reads_counts(tmp_path: Path, above: bool) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    folder = tmp_path / "deep" / "model"
    folder.mkdir(parents=True)
    beside = folder.parent if above else folder
    parts = [beside / "tokenizer.json", beside / "config.json", beside / "vocab.txt"]
    for part in parts:
        part.write_text("{}")
    tensors = [numpy_helper.from_array(np.full(600, float(place), np.float32), f"t{place}") for place in range(3)]
    put = helper.make_tensor_value_info("x", TensorProto.FLOAT, [600])
    node = helper.make_node("Sum", ["x", "t0", "t1", "t2"], ["y"])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [600])
    model = helper.make_model(helper.make_graph([node], "g", [put], [out], tensors))
    long = "w" * 150 + ".bin"  # Its length takes two bytes.
    onnx.external_data_helper.convert_model_to_external_data(model, all_tensors_to_one_file=False, size_threshold=0)
    for place, tensor in enumerate(model.graph.initializer):
        onnx.external_data_helper.set_external_data(tensor, ("one.data", "one.data", long)[place])
    onnx.save(model, folder / "model.onnx")
    parts += [folder / "model.onnx", folder / "one.data", folder / long]
    assert parts[-1].stat().st_size == 2400
    first = fingerprint(folder / "model.onnx")
    for other in (folder / "notes.json", folder / "reviews.txt"):
        other.write_text("not read")
    assert fingerprint(folder / "model.onnx") == first
    for part in parts:
        content = part.read_bytes()
        part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert fingerprint(folder / "model.onnx") != first, part.name
        part.write_bytes(content)
    assert fingerprint(folder / "model.onnx") == first
    (folder / "model.onnx").write_bytes(b"\x0a\x08location\x12\xff\xff\xff\xff\xff")  # no file can break it
    assert fingerprint(folder / "model.onnx") not in (None, first)


def test_provenance_names_what_computed_and_nobody() -> None:
    import getpass
    import platform

    assert {"isthmus", "python", "torch", "transformers"} <= set(versions())
    shown = str(machine("cpu"))
    assert "cpu" in shown
    assert platform.node() not in shown or not platform.node()
    assert f"/{getpass.getuser()}" not in shown
