"""`isthmus.train` with some settings changed, as the command line changes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import isthmus
from isthmus.cli.app import run as command
from isthmus.core.errors import UnknownName


def test_a_mapping_changes_the_usual_settings(trained: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("text,label\n" + "a lovely film,good\na dull plot,bad\n" * 8)
    given = ["--epochs", "1", "-S", "batch_size=8", "--backbone", str(trained.parent / "backbone")]
    assert command(["train", "--data", "rows.csv", *given, "--out", "typed", "--quiet", "--device", "cpu"]) == 0
    capsys.readouterr()
    changed = {"epochs": 1, "batch_size": 8}
    isthmus.train("rows.csv", trained.parent / "backbone", settings=changed, folder="called", device="cpu")
    records = [json.loads(Path(folder, "run.json").read_text()) for folder in ("typed", "called")]
    assert records[0]["training"] == records[1]["training"]
    assert isthmus.open_run("called").record.settings == isthmus.open_run("typed").record.settings
    with pytest.raises(UnknownName, match="epoch"):
        isthmus.train("rows.csv", settings={"epoch": 1})
