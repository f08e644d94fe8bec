from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.doctor import examine
from isthmus.cli.show import reflow
from isthmus.core import catalog

FAMILIES = ("attacks", "defences", "measures", "certificates", "explanations")


def test_list_names_everything(isthmus: Any) -> None:
    ended = isthmus("list")
    for name in (*catalog.names("attacks"), *catalog.names("defences"), "rotten_tomatoes", "minilm", "lstm", "wordnet"):
        assert name in ended.out.split()
    assert isthmus("list", "attacks", "--json").json == {"attacks": list(catalog.names("attacks"))}


@pytest.mark.parametrize("name", [name for family in FAMILIES for name in catalog.names(family)])
def test_show_gives_summary_parameters_and_sources(isthmus: Any, name: str) -> None:
    ended = isthmus("show", name)
    (entry, *_) = catalog.search(name)
    assert ended.code == 0
    assert entry.class_name in ended.out
    for parameter in entry.parameters:
        assert parameter.name in ended.out
    assert "=None" not in ended.out.splitlines()[-2]  # the command at the end can be typed
    assert isthmus("show", name, "--json").json["methods"][0]["summary"] == entry.summary


def test_equations_are_not_filled_and_prose_is() -> None:
    text = "One\nsentence.\n\n    a = b\n    c   = d\n\nReferences:\n    A long\n    line.\n"
    assert list(reflow(text, 80)) == [
        "One sentence.", "", "    a = b", "    c   = d", "", "References:", "    A long line.", "",
    ]  # fmt: skip


def test_assets_are_listed_where_there_are_none(isthmus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    ended = isthmus("assets")
    assert ended.code == 0
    assert "rotten_tomatoes" in ended.out
    assert max(map(len, ended.out.splitlines()[:-2])) <= 80
    states = {each["state"] for each in isthmus("assets", "--json").json["assets"]}
    assert states == {"missing"}


def test_a_damaged_asset_is_found(isthmus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus import assets

    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path))
    for name in assets.find("rotten_tomatoes").files:
        (tmp_path / "rotten_tomatoes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rotten_tomatoes" / name).write_text("not the data")
    ended = isthmus("assets", "verify")
    assert ended.code == 1
    assert "damaged" in ended.out
    assert "rotten_tomatoes" in ended.out
    assert "minilm" not in ended.out


def test_doctor_says_what_is_there_and_how_to_get_the_rest(
    isthmus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    ended = isthmus("doctor")
    assert ended.code == 0
    for word in ("torch", "cpu", "bfloat16", "isthmus assets fetch minilm", str(tmp_path)[:20]):
        assert word in ended.out
    found = isthmus("doctor", "--json").json
    assert found["ok"] is True


def test_stand_ins_are_named(isthmus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path))
    monkeypatch.delenv("ISTHMUS_ASSETS", raising=False)
    monkeypatch.delenv("NLTK_DATA", raising=False)
    found = {finding.name: finding for finding in examine()}
    assert "stand-in" in found["word vectors"].detail
    assert "built when first used" in found["word vectors"].detail
    assert "stand-in for BERT-base" in found["masked LM"].detail
    assert "substitute" in found["sememes"].detail
    assert "stand-in" in isthmus("assets", "list").out
    (tmp_path / "counter-fitted-vectors.txt").write_text("good 1 0\n")
    found = {finding.name: finding for finding in examine()}
    assert found["word vectors"].state == "ok"
    assert "published" in found["word vectors"].detail


def test_doctor_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from isthmus.runs import provenance

    real = provenance.library_version
    hidden = {"jinja2", "torch"}
    monkeypatch.setattr(provenance, "library_version", lambda name: None if name in hidden else real(name))
    findings = {finding.name: finding for finding in examine()}
    assert findings["report"].remedy == "pip install 'isthmus[report]'"
    assert findings["torch"].state == "bad"


def test_a_pickle_is_converted_by_the_command_that_the_message_names(place: Path, isthmus: Any) -> None:
    import torch

    (place / "old").mkdir()
    (place / "old" / "config.json").write_text('{"model_type": "bert"}')
    torch.save({"weight": torch.ones(2, 3)}, place / "old" / "pytorch_model.bin")
    done = isthmus("convert", "old", "--out", "new", "--json")
    assert done.code == 0
    assert (done.json["tensors"], done.json["bytes"]) == (1, 24)
    assert sorted(path.name for path in (place / "new").iterdir()) == ["config.json", "model.safetensors"]
    again = isthmus("convert", "old", "--out", "new")
    assert (again.code, "there already" in again.err) == (2, True)
