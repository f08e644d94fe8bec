"""Another process moves at the worst moment: between two looks at a file, or between its new name and its new lock.

Each test stops one process at such a place and lets the other one act there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.core.files import read_whole
from isthmus.core.records import write_record
from isthmus.runs import journal as journals
from isthmus.runs.folder import SCHEMA, AttackFile, RunFolder
from isthmus.runs.journal import BusyError, Journal, is_being_written, read_rows
from isthmus.runs.settings import short_hash
from isthmus.verbs.rows_file import claim

ROW = {"id": "test:0", "outcome": "failed"}


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Let another process act around the first call of a function; the test fails where it is never called."""
    waiting: list[Callable[[], Any]] = []

    def install(place: Any, name: str, other: Callable[[], Any], when: str = "after") -> None:
        inner = getattr(place, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if when == "before" and waiting:
                waiting.pop()()
            try:
                return inner(*arguments, **named)
            finally:
                if waiting:
                    waiting.pop()()

        waiting.append(other)
        monkeypatch.setattr(place, name, call)

    yield install
    assert not waiting


def test_a_file_made_while_it_is_looked_for_is_a_file(tmp_path: Path, interrupt: Callable[..., None]) -> None:
    path = tmp_path / "rows.jsonl"
    interrupt(os, "stat", lambda: path.write_bytes(b""))
    assert read_rows(path) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe or a device"):
        read_whole(tmp_path / "pipe")
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "nothing")


@pytest.mark.parametrize("rewrite", [lambda j: j.finish(["test:0"]), lambda j: j.forget(["test:1"])])
@pytest.mark.parametrize("look", [Journal, is_being_written])
def test_a_journal_that_is_rewritten_is_never_free(
    tmp_path: Path, interrupt: Callable[..., None], look: Callable[[Path], Any], rewrite: Callable[[Journal], None]
) -> None:
    path, seen = tmp_path / "rows.jsonl", []

    def other() -> None:
        try:
            found = look(path)
            seen.append(found)  # Kept open, as by a process that goes on to work.
        except BusyError:
            seen.append(True)

    with Journal(path) as journal:
        journal.append(ROW)
        interrupt(os, "replace", other)
        rewrite(journal)
        journal.append({"id": "test:2"})
    assert seen == [True]
    assert [row["id"] for row in read_rows(path)] == ["test:0", "test:2"]
    assert not is_being_written(path)


def test_a_journal_replaced_while_it_is_opened_is_opened_again(tmp_path: Path, interrupt: Callable[..., None]) -> None:
    """Its writer ends between our opening and our locking: the lock would be on a file that is gone."""
    path, first = tmp_path / "rows.jsonl", Journal(tmp_path / "rows.jsonl")

    def other() -> None:
        first.append(ROW)
        first.finish([])
        first.close()

    interrupt(journals, "_lock", other, when="before")
    with Journal(path) as second:
        second.append({"id": "test:1"})
        assert is_being_written(path)
    assert [row["id"] for row in read_rows(path)] == ["test:0", "test:1"]


@pytest.mark.parametrize("ends", [False, True])
def test_a_journal_replaced_while_it_is_looked_at_is_looked_at_again(
    tmp_path: Path, interrupt: Callable[..., None], ends: bool
) -> None:
    """The lock of the old file is free, while the writer holds the one of the new file until it ends."""
    path, first = tmp_path / "rows.jsonl", Journal(tmp_path / "rows.jsonl")

    def other() -> None:
        first.append(ROW)
        first.finish([])
        if ends:
            first.close()

    interrupt(journals, "_lock", other, when="before")
    assert is_being_written(path) is not ends
    first.close()


def test_other_settings_are_not_told_to_wait_for_a_writer_that_ends_while_they_look(
    tmp_path: Path, interrupt: Callable[..., None]
) -> None:
    """A slow process looks for a name while a quick one writes all of its rows and puts them in order."""
    folder, mine, quick = RunFolder(tmp_path), {"seed": 2}, {"seed": 1}
    held: list[Journal] = []

    def take() -> None:
        file = folder.attack_file("pwws", quick)
        held.append(Journal(file.rows_path))
        write_record(file.header_path, {"schema": SCHEMA, "hash": short_hash(quick)})

    def finish() -> None:
        held[0].append(ROW)
        held[0].finish([])

    def choose() -> AttackFile:
        if held and not held[0].rows:  # The second look: there is a header already, and no row yet.
            interrupt(journals, "_lock", finish, when="before")
        found = folder.attack_file("pwws", mine)
        if not held:
            take()
        return found

    file, journal, known = claim(choose, mine)
    journal.close()
    held[0].close()
    assert file.key == f"pwws@{short_hash(mine)}"
    assert known == {}


def test_two_that_only_look_do_not_take_each_other_for_a_writer(tmp_path: Path, interrupt: Callable[..., None]) -> None:
    path, seen = tmp_path / "rows.jsonl", []
    path.touch()
    interrupt(journals, "_lock", lambda: seen.append(is_being_written(path)))
    seen.append(is_being_written(path))
    assert seen == [False, False]


@pytest.mark.parametrize("rows", [1, 0])
def test_the_same_settings_keep_the_name_that_was_taken_meanwhile(
    tmp_path: Path, interrupt: Callable[..., None], rows: int
) -> None:
    folder, settings = RunFolder(tmp_path), {"seed": 1}
    file = folder.attack_file("pwws", settings)
    held: list[Journal] = []

    def other() -> None:
        held.append(Journal(file.rows_path))
        write_record(file.header_path, {"schema": SCHEMA, "hash": short_hash(settings)})
        for _ in range(rows):
            held[0].append(ROW)

    # Behind the first look at the header, before the rows are read.
    interrupt(AttackFile, "rows", other, when="before")
    assert folder.attack_file("pwws", settings) == file
    assert folder.attack_file("pwws", {"seed": 2}) != file
    held[0].close()
