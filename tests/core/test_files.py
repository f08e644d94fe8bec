import errno
import os

import pytest

from isthmus.core.errors import RunError
from isthmus.core.files import make_folder, read_json, write_atomic, write_json, writing


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
