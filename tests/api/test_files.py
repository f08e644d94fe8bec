"""What Python writes for others is what the command line writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import isthmus
from isthmus.cli.app import run as command
from isthmus.core.errors import UnknownName, UsageError


@pytest.mark.parametrize("name", ["rows.csv", "texts.jsonl"])
def test_exports_are_the_command_lines(run: str, name: str, capsys) -> None:
    found = isthmus.attack(run, ["deepwordbug", "badchars"], n=8, label_check=False, device="cpu")
    assert command(["export", run, f"typed-{name}", "--attack", "badchars", "--quiet"]) == 0
    assert command(["export", run, f"whole-{name}", "--quiet"]) == 0
    capsys.readouterr()
    written = isthmus.export(run, name, "badchars")
    assert Path(name).read_bytes() == Path(f"typed-{name}").read_bytes()
    assert written == isthmus.export(found.attacks["badchars"], name)
    assert Path(name).read_bytes() == Path(f"typed-{name}").read_bytes()
    isthmus.export(isthmus.open_run(run), name)
    assert Path(name).read_bytes() == Path(f"whole-{name}").read_bytes()
    assert isthmus.export(found, name, form="jsonl") == sum(
        each.outcome == "succeeded" for part in found.attacks.values() for each in part
    )


def test_wrong_exports_say_what_would_work(run: str) -> None:
    with pytest.raises(UsageError, match="no attack results yet"):
        isthmus.export(run, "rows.csv")
    found = isthmus.attack(run, "deepwordbug", n=4, label_check=False, device="cpu")
    with pytest.raises(UnknownName, match="pwws"):
        isthmus.export(run, "rows.csv", ["pwws"])
    with pytest.raises(UsageError, match="names attacks of a run"):
        isthmus.export(found, "rows.csv", "deepwordbug")
    with pytest.raises(UsageError, match="extension"):
        isthmus.export(found, "rows.xlsx")
    with pytest.raises(UsageError, match="takes a run or results of attack"):
        isthmus.export(3, "rows.csv")


def test_the_report_is_written_where_the_command_line_writes_it(run: str) -> None:
    page = isthmus.write_report(isthmus.open_run(run))
    assert page == Path(run, "report.html")
    assert "<html" in page.read_text()


def test_assets_are_listed_fetched_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_CACHE", str(tmp_path / "cache"))
    own = tmp_path / "own/rotten_tomatoes"
    own.mkdir(parents=True)
    monkeypatch.setenv("ISTHMUS_ASSETS", str(tmp_path / "own"))
    assert [each.name for each in isthmus.list_assets("default")] == ["minilm", "rotten_tomatoes", "wordnet"]
    assert len(isthmus.list_assets()) > 5
    # What lies in a folder of one's own is not fetched.
    assert isthmus.fetch_assets("rotten_tomatoes") == {"rotten_tomatoes": own}
    assert [each.name for each in isthmus.verify_assets("wordnet", "wordnet")] == ["wordnet"]
    with pytest.raises(UsageError, match="no asset named"):
        isthmus.fetch_assets()
    with pytest.raises(UnknownName, match="wordnt"):
        isthmus.list_assets("wordnt")
