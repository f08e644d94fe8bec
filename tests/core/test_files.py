import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from isthmus.core.errors import RunError
from isthmus.core.files import (
    guard_links,
    make_folder,
    read_json,
    remove_file,
    remove_tree,
    replacing,
    replacing_folder,
    write_atomic,
    write_json,
    writing,
)


def test_round_trip_keeps_order_and_every_character(tmp_path):
    value = {"z": 1, "a": ["é", "שלום", "\ud800", None, 0.1]}
    write_json(tmp_path / "deep" / "x.json", value)
    assert read_json(tmp_path / "deep" / "x.json") == value
    assert list(read_json(tmp_path / "deep" / "x.json")) == ["z", "a"]


def test_bytes_and_text(tmp_path):
    write_atomic(tmp_path / "a", b"\x00\xff")
    write_atomic(tmp_path / "a", b"\x01")
    assert (tmp_path / "a").read_bytes() == b"\x01"
    write_atomic(tmp_path / "b", "line\nné")
    assert (tmp_path / "b").read_bytes() == "line\nné".encode()


def test_failure_keeps_the_old_file_and_leaves_no_rubbish(tmp_path, monkeypatch):
    target = tmp_path / "a"
    write_atomic(target, "old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*a: the disk is full"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EACCES, "permission denied"), (errno.EROFS, "read-only"), (errno.EDQUOT, "quota")],
)
def test_refusals_name_the_remedy(tmp_path, monkeypatch, number, words):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("isthmus.core.files.tempfile.mkstemp", refuse)
    with pytest.raises(RunError, match=words):
        write_atomic(tmp_path / "a", "x")


def test_folder_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match="choose another folder"):
        make_folder(tmp_path / "file" / "sub")
    with pytest.raises(RunError, match="cannot write"):
        make_folder(tmp_path / "file")
    with pytest.raises(RunError, match="cannot write"):
        write_atomic(tmp_path / "file" / "a", "x")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(RunError, match="may write"):
        make_folder(folder)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_truly_full_device():
    handle = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(RunError, match="disk is full"), writing("/dev/full"):
            os.write(handle, b"x")
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b'{\n"a": }', "line 2"), (b"", "not valid JSON"), (b"\xff\xfe", "not valid JSON"), (b"[" * 100_000, "not valid")],
)
def test_broken_json(tmp_path, content, words):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(RunError, match=words):
        read_json(tmp_path / "x.json")


def test_missing_json(tmp_path):
    with pytest.raises(RunError, match="no file"):
        read_json(tmp_path / "x.json")
    with pytest.raises(RunError, match="cannot read"):
        read_json(tmp_path)


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from isthmus.core import files
    real, os.getpid = os.getpid(), lambda: int(sys.argv[2])
    kind = files.replacing_folder if sys.argv[1].endswith("model") else files.replacing
    with kind(sys.argv[1]):
        os.kill(real, signal.SIGKILL)
    """
)


def killed_while_writing(target, pid):
    """A process of that number is killed while it writes the target."""
    ended = subprocess.run([sys.executable, "-c", KILLED, str(target), str(pid)])
    assert ended.returncode == -9


@pytest.mark.parametrize("name", ["a.json", "model"])
def test_what_a_killed_process_left_is_removed_also_where_every_process_has_the_same_number(tmp_path, name):
    target = tmp_path / name
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (os.getpid(), gone.pid):
        killed_while_writing(target, pid)
        assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
        write(target)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        remove_tree(target) if name == "model" else remove_file(target)


def write(target):
    if target.name == "model":
        with replacing_folder(target) as folder:
            (folder / "x").write_text("new")
    else:
        write_atomic(target, "new")


@pytest.mark.parametrize("name", ["a.json", "model"])
def test_what_is_being_written_is_left_alone(tmp_path, name):
    target = tmp_path / name
    with (replacing_folder if name == "model" else replacing)(target):
        (unfinished,) = tmp_path.iterdir()
        write(target)
        assert unfinished.exists()
        others = [".a.json.1.aa.part", f".b.json.{os.getpid()}.aa.part", ".a.json.notes.part", ".a.json.x.7.part"]
        for other in others:  # A process that runs, another file, and what is not ours.
            (tmp_path / other).touch()
        write(target)
    assert set(others) <= {path.name for path in tmp_path.iterdir()}
    assert target.exists()


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    target = tmp_path / "model"
    write(target)
    (target / "old").touch()
    with pytest.raises(ZeroDivisionError), replacing_folder(target) as folder:
        (folder / "x").write_text(str(1 / 0))
    assert sorted(path.name for path in target.iterdir()) == ["old", "x"]
    write(target)
    assert [path.name for path in target.iterdir()] == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def linked(tmp_path):
    """A folder whose links lead out of it, and what they lead to."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.jsonl").write_text("content\n")
    for folder in ("attacks", "real"):
        (run / folder).mkdir(parents=True)
    (run / "attacks" / "x.jsonl").symlink_to(outside / "precious.jsonl")
    (run / "away").symlink_to(outside)
    (run / "within").symlink_to(run / "real")
    return run


def test_nothing_is_written_or_deleted_through_a_link_that_leads_out(linked):
    outside = linked.parent / "outside"
    actions = [
        lambda: write_atomic(linked / "attacks" / "x.jsonl", ""),
        lambda: write_atomic(linked / "away" / "new", ""),
        lambda: make_folder(linked / "away" / "deep"),
        lambda: remove_file(linked / "away" / "precious.jsonl"),
        lambda: remove_tree(linked / "away"),
        lambda: write(linked / "away" / "model"),
        lambda: write_atomic(linked / "attacks" / ".." / "away" / "new", ""),
    ]
    with guard_links(linked):
        for action in actions:
            with pytest.raises(RunError, match=r"leads out of .* by a link"):
                action()
        assert [path.name for path in outside.iterdir()] == ["precious.jsonl"]
        assert (outside / "precious.jsonl").read_text() == "content\n"
        write_atomic(linked / "within" / "a", "inside")
    assert (linked / "real" / "a").read_text() == "inside"
    write_atomic(linked / "away" / "new", "")  # Outside of a run it is the user's own link.


def test_a_folder_that_is_itself_a_link_is_the_users_choice(linked, tmp_path):
    (tmp_path / "chosen").symlink_to(linked)
    with guard_links(tmp_path / "chosen"):
        write_atomic(tmp_path / "chosen" / "real" / "a", "x")
        write_atomic(linked / "real" / "b", "x")
        with pytest.raises(RunError, match="by a link"):
            write_atomic(tmp_path / "chosen" / "away" / "a", "x")
        with pytest.raises(RunError, match="by a link"):
            write_atomic(linked / "away" / "a", "x")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomic(pipe, "all of it")
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
    assert pipe.is_fifo()
    with guard_links(tmp_path):  # In a run folder nobody reads from it: writing would wait for ever.
        write_atomic(pipe, "a file")
    assert pipe.read_text() == "a file"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no open files by number")
def test_an_open_file_by_number_is_written_to_and_its_link_stays(tmp_path):
    with (tmp_path / "out").open("wb") as stream:
        link = tmp_path / "stdout"  # as /dev/stdout is
        link.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        write_atomic(link, "figures")
        assert link.is_symlink()
    assert (tmp_path / "out").read_bytes() == b"figures"


def test_a_device_that_takes_nothing_is_an_error(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    if not link.is_char_device():
        pytest.skip("no /dev/full")
    with pytest.raises(RunError, match="the disk is full"):
        write_atomic(link, "figures")
    assert link.is_symlink()
    assert link.is_char_device()
