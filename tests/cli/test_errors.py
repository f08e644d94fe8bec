from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isthmus.core import catalog


def test_a_known_error_is_one_message_without_traceback(isthmus: Any, tmp_path: Path) -> None:
    ended = isthmus("report", tmp_path / "absent")
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("error: no run folder")
    assert len(ended.err.splitlines()) == 1


def test_a_fault_of_ours_is_one_line_and_a_file(isthmus: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ZeroDivisionError("division by \x1b[31mzero\nand more")

    monkeypatch.setattr(catalog, "search", broken)
    ended = isthmus("show", "pwws")
    assert ended.code == 2
    assert "error: ZeroDivisionError: division by ␛[31mzero" in ended.err
    assert "Traceback" not in ended.err
    log = Path(ended.err.rsplit(" ", 1)[1].strip())
    assert "Traceback" in log.read_text()
    log.unlink()
    shown = isthmus("show", "pwws", "--debug")
    assert "Traceback" in shown.err


def test_debug_shows_where_a_known_error_comes_from(isthmus: Any, tmp_path: Path) -> None:
    ended = isthmus("report", tmp_path / "absent", "--debug")
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1].startswith("error: no run folder")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("atack",), "attack"),
        (("attack",), "Missing argument"),
        (("attack", "m", "--n", "many"), "--n"),
        (("show", "textfoler"), "no method named 'textfoler'"),
        (("list", "atacks"), "Did you mean 'attacks'?"),
        (("assets", "fetch"), "no asset named"),
        (("assets", "fetch", "minilmm"), "Did you mean 'minilm'?"),
        (("train",), "--data"),
        (("train", "--data", "x.csv", "--pair", "a"), "two columns"),
        (("train", "--data", "x.csv", "-P", "rate"), "KEY=VALUE"),
        (("train", "--data", "x.csv", "-S", "epoch=3"), "Did you mean 'epochs'?"),
        (("train", "--data", "x.csv", "-S", "epochs=three"), "a whole number"),
        (("train", "--data", "x.csv", "--precision", "fp16"), "bf16"),
        (("train", "--data", "x.csv", "--defence", "standart"), "Did you mean 'standard'?"),
        (("train", "--data", "absent.csv"), "absent.csv"),
        (("attack", "m", "--attack", "pwss", "--data", "x.csv"), "Did you mean 'pwws'?"),
        (("attack", "m", "--fail-under", "rac=0.4"), "Did you mean 'racc'?"),
        (("attack", "m", "--fail-under", "racc=high"), "racc=0.40"),
        (("attack", "m", "--fail-under", "racc=40"), "between 0 and 1"),
        (("attack", "m", "--threshold", "0.5"), "--from-label"),
        (("attack", "m", "--from-label", "a", "--threshold", "0.5", "--at-fpr", "0.1"), "give one of them"),
        (("attack", "m", "--from-label", "a", "--threshold", "7"), "(0, 1]"),
        (("attack", "m", "--text", "review"), "--data"),
        (("attack", "m"), "--data"),
        (("attack", "m", "--n", "-3"), "--n"),
    ],
)
def test_wrong_usage_says_what_would_work(
    isthmus: Any, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("text,label\na good film,1\na bad film,0\n")
    ended = isthmus(*arguments)
    assert ended.code == 2
    assert message in " ".join(ended.err.replace("│", " ").split())
    assert "Traceback" not in ended.err
    assert not (tmp_path / "runs").exists()
