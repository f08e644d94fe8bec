"""Who may work in a folder at the same time: real processes, and file systems without locks."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isthmus.core import lock
from isthmus.core.errors import RunError
from isthmus.core.lock import FILE, FolderInUse, hold, serialise, sweep

HOLDER = textwrap.dedent(
    """
    import sys, time
    from isthmus.core import lock
    if sys.argv[4] == "without":
        lock._flock = lambda handle, exclusive: None
    with lock.hold(sys.argv[1], sys.argv[2], exclusive=sys.argv[3] == "alone"):
        print("held", flush=True)
        sys.stdin.readline()
    """
)


@contextmanager
def another(folder: Path, verb: str, how: str, locks: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), verb, how, locks],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        if process.poll() is None:
            process.communicate("\n")
        process.stdin.close()
        process.stdout.close()


@pytest.fixture(params=["with", "without"])
def locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the file system has locks."""
    if request.param == "without":
        monkeypatch.setattr(lock, "_flock", lambda handle, exclusive: None)
    monkeypatch.setattr(lock, "_GRACE_S", 0.05)
    return str(request.param)


def test_who_holds_the_folder_is_named_and_a_dead_one_is_not_in_the_way(tmp_path: Path, locks: str) -> None:
    folder = tmp_path / "run"
    with another(folder, "train", "alone", locks) as process:
        for exclusive in (True, False):
            with (
                pytest.raises(FolderInUse, match=rf"isthmus train` \(process {process.pid} on .*, since 20") as raised,
                hold(folder, "attack", exclusive=exclusive),
            ):
                pass
            assert f"delete {folder / FILE}" in str(raised.value)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (folder / FILE).exists()
        with hold(folder, "train", exclusive=True):
            pass
    assert not folder.exists() or not list(folder.iterdir())


def test_verbs_that_share_work_side_by_side_and_keep_a_training_out(tmp_path: Path, locks: str) -> None:
    folder = tmp_path / "run"
    with another(folder, "attack", "shared", locks):
        with hold(folder, "evaluate"):
            pass
        assert (folder / FILE).exists()  # The other one still holds it.
        with pytest.raises(FolderInUse, match="isthmus attack"), hold(folder, "train", exclusive=True):
            pass
    with hold(folder, "train", exclusive=True):
        pass


def test_a_verb_within_a_verb_holds_the_same_lock(tmp_path: Path, locks: str) -> None:
    with hold(tmp_path, "train", exclusive=True), hold(tmp_path, "train", exclusive=True), hold(tmp_path, "report"):
        assert (tmp_path / FILE).exists()
    assert not list(tmp_path.iterdir())


def test_a_folder_made_for_nothing_is_removed(tmp_path: Path) -> None:
    with hold(tmp_path / "one", "attack"):
        pass
    with hold(tmp_path / "two", "attack"):
        (tmp_path / "two" / "run.json").write_text("{}")
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_where_every_process_has_the_same_number_a_dead_one_is_not_taken_for_this_one(
    tmp_path: Path, locks: str
) -> None:
    line = f'{{"verb": "train", "pid": {os.getpid()}, "host": "{os.uname().nodename}", "since": "", '
    (tmp_path / FILE).write_text(line + '"exclusive": true, "token": "00"}\n')
    with hold(tmp_path, "train", exclusive=True):
        pass


def test_a_holder_on_another_machine_is_believed_where_nothing_else_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_flock", lambda handle, exclusive: None)
    monkeypatch.setattr(lock, "_GRACE_S", 0.05)
    line = '{"verb": "train", "pid": 1, "host": "elsewhere", "since": "", "exclusive": true, "token": "00"}\n'
    (tmp_path / FILE).write_text(line)
    with pytest.raises(FolderInUse, match="on elsewhere"), hold(tmp_path, "attack"):
        pass
    (tmp_path / FILE).unlink()  # As the message says.
    with hold(tmp_path, "attack"):
        pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(RunError), hold(tmp_path / "run", "train", exclusive=True):
        pass
    assert (tmp_path / "precious").read_text() == "content"


def test_locks_that_the_system_refuses_to_give_are_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold(tmp_path, "train", exclusive=True):
        assert "train" in (tmp_path / FILE).read_text()
    assert not list(tmp_path.iterdir())


COUNTER = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from isthmus.core.files import write_json
    from isthmus.core.lock import serialise
    path = Path(sys.argv[1])
    for _ in range(40):
        with serialise(path, "measure"):
            known = json.loads(path.read_text()) if path.exists() else {}
            write_json(path, {**known, f"{sys.argv[2]}-{len(known)}": 0})
    """
)


def test_what_two_processes_add_to_one_file_is_all_there(tmp_path: Path) -> None:
    path = tmp_path / "measures.json"
    processes = [subprocess.Popen([sys.executable, "-c", COUNTER, str(path), name]) for name in "ab"]
    assert [process.wait() for process in processes] == [0, 0]
    with serialise(path, "measure"):
        assert len(path.read_text().splitlines()) == 82
    assert [entry.name for entry in tmp_path.iterdir()] == ["measures.json"]


def test_a_full_disk_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with serialise(tmp_path / "measures.json", "measure"):
        monkeypatch.setattr(os, "write", full)  # Only leaving fails.
    assert not list(tmp_path.iterdir())
    with pytest.raises(RunError, match="disk is full"), hold(tmp_path, "attack"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_reader_sweeps_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    left = [tmp_path / FILE, tmp_path / f".measures.json{FILE}"]
    for file in left:
        file.write_text('{"verb": "measure", "pid": 1')
    sweep(tmp_path)
    assert not any(file.exists() for file in left)
    with another(tmp_path, "attack", "shared", "with"):
        sweep(tmp_path)
        assert (tmp_path / FILE).exists()
    assert not (tmp_path / FILE).exists()
