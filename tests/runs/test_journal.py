from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.errors import RunError
from isthmus.core.lines import encode, read_line, seal_row
from isthmus.runs.journal import Journal, read_rows

any_text = st.text(st.characters())  # lone surrogates included
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(any_text, values, max_size=4))
def test_a_row_survives_as_one_line_of_valid_utf8(row: dict[str, Any]) -> None:
    line = encode(row)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line.decode("utf-8")) == row


@given(st.dictionaries(any_text, values, max_size=4))
def test_a_checksum_is_the_last_key_of_a_valid_line_and_is_not_part_of_the_row(row: dict[str, Any]) -> None:
    line = seal_row(row)
    assert line.count(b"\n") == 1
    assert list(json.loads(line.decode("utf-8")))[-1] == "check" or "check" in row
    read = read_line(line)
    assert (read.row, read.is_sealed, read.is_damaged) == (row, True, False)


def test_nan_becomes_null() -> None:
    assert json.loads(encode({"id": "a", "scores": [float("nan"), 1.0], "deep": {"x": float("inf")}})) == {
        "id": "a",
        "scores": [None, 1.0],
        "deep": {"x": None},
    }


@given(st.lists(st.integers(0, 30), unique=True, max_size=8), st.data())
def test_cut_anywhere_it_keeps_exactly_the_whole_rows(
    tmp_path_factory: Any, ids: list[int], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "rows.jsonl"
    with Journal(path) as journal:
        for key in ids:
            journal.append({"id": str(key), "text": "é" * key})
    content = path.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    assert [row["id"] for row in read_rows(path)] == [str(key) for key in ids[:whole]]
    with Journal(path) as journal:
        assert list(journal.rows) == [str(key) for key in ids[:whole]]
        for key in ids[whole:]:
            journal.append({"id": str(key), "text": "é" * key})
    assert path.read_bytes() == content


def test_finish_makes_the_file_independent_of_the_order_of_work(tmp_path: Path) -> None:
    order = [f"test:{i}" for i in range(6)]
    contents = []
    for name, sequence in {"a": order, "b": order[::-1], "c": order[3:] + order[:3]}.items():
        with Journal(tmp_path / name) as journal:
            for key in sequence:
                journal.append({"id": key})
            journal.finish(order)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1] == contents[2]


def test_a_finished_journal_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal:
        journal.append({"id": "b"})
        journal.finish(["a", "b"])
        journal.append({"id": "a"})
        journal.finish(["a", "b"])
    assert [row["id"] for row in read_rows(path)] == ["a", "b"]


def test_forgotten_rows_are_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal:
        for key in "abc":
            journal.append({"id": key})
        journal.forget(["b", "z"])
    assert [row["id"] for row in read_rows(path)] == ["a", "c"]


def test_a_broken_line_in_the_middle_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a"}\n{"id": \n{"id": "c"}\n')
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"line 2"):
        Journal(path)
    assert path.read_bytes() == before


def test_a_second_writer_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path) as journal:
        with pytest.raises(RunError, match="another process"):
            Journal(path)
        journal.append({"id": "a"})
        journal.finish(["a"])
        with pytest.raises(RunError, match="another process"):
            Journal(path)
    with Journal(path) as journal:
        assert list(journal.rows) == ["a"]


def test_a_full_disk_keeps_the_rows_written_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    real_write = os.write

    def half_then_full(handle: int, data: bytes) -> int:
        if b'"b"' in data:
            real_write(handle, data[:4])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_write(handle, data)

    with Journal(path) as journal:
        journal.append({"id": "a"})
        monkeypatch.setattr(os, "write", half_then_full)
        with pytest.raises(RunError, match="disk is full"):
            journal.append({"id": "b"})
    assert path.read_text() == '{"id": "a", "check": "af678071"}\n'


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        Journal(tmp_path / "file" / "rows.jsonl")


def test_rows_appended_before_a_kill_are_all_there(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, itertools
        from pathlib import Path
        from isthmus.runs.journal import Journal
        journal = Journal(Path(sys.argv[1]))
        for number in itertools.count():
            journal.append({"id": str(number), "text": "x" * 5000})
            print(number, flush=True)
        """
    )
    path = tmp_path / "rows.jsonl"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 50:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Journal(path) as journal:
        assert [int(key) for key in journal.rows] == list(range(len(journal)))
        assert len(journal) >= 51


ROWS: list[dict[str, Any]] = [{"id": "a", "text": "né", "scores": [0.25, 0.75]}, {"id": "b", "text": ""}, {"id": "c"}]


def write_journal(path: Path, rows: list[dict[str, Any]] = ROWS) -> bytes:
    with Journal(path) as journal:
        for row in rows:
            journal.append(row)
    return path.read_bytes()


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[2:]])
def test_no_flipped_bit_is_accepted(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "rows.jsonl"
    content = write_journal(path, rows)
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        if place // 8 == len(content) - 1:  # Without its line break the last row is torn, and made again.
            assert read_rows(path) == rows[:-1]
            continue
        with pytest.raises(RunError, match=rf"line {1 + content[: place // 8].count(10)} .*Delete that line"):
            read_rows(path)


def test_a_damaged_row_is_made_again_once_its_line_is_deleted_as_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "it's.jsonl"
    content = write_journal(path)
    path.write_bytes(content.replace(b'"text": ""', b'"text": "x"'))
    with pytest.raises(RunError, match=r"line 2 does not match its checksum") as raised:
        Journal(path)
    command = str(raised.value).partition("(")[2].partition(")")[0]
    subprocess.run(command, shell=True, check=True)
    with Journal(path) as journal:
        assert list(journal.rows) == ["a", "c"]
        journal.append(ROWS[1])
        journal.finish(["a", "b", "c"])
    assert path.read_bytes() == content


def test_a_row_that_is_there_twice_counts_once_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    content = write_journal(path)
    lines = content.splitlines(keepends=True)
    path.write_bytes(content + lines[1] + seal_row({**ROWS[0], "text": "another"}))
    assert read_rows(path) == ROWS
    with Journal(path) as journal:
        assert list(journal.rows.values()) == ROWS
        journal.finish(["a", "b", "c"])
    assert path.read_bytes() == content


def test_rows_without_ids_are_all_there_and_equal_lines_are_one(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"step": 1, "loss": 0.5}, {"step": 1, "dev_accuracy": 0.5}, {"step": 2, "loss": 0.5}]
    path.write_bytes(b"".join(seal_row(row) for row in [*rows, rows[0]]))
    assert read_rows(path) == rows


def test_a_journal_without_checksums_is_read_and_gets_them_with_its_next_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    content = write_journal(path)
    plain = b"".join(encode(row) for row in ROWS[:2])
    path.write_bytes(plain)
    assert read_rows(path) == ROWS[:2]
    with Journal(path) as journal:
        assert path.read_bytes() == plain
        journal.append(ROWS[2])
    assert path.read_bytes() == content
    path.write_bytes(content + encode({"id": "d"}))
    with pytest.raises(RunError, match="line 4 has no checksum"):
        read_rows(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    os.mkfifo(tmp_path / "header.json")
    program = f"""
        import pathlib
        from isthmus.core.errors import RunError
        from isthmus.core.files import read_json
        from isthmus.runs.journal import Journal, read_rows

        place = pathlib.Path({str(tmp_path)!r})
        for read, name in ((read_rows, "rows.jsonl"), (Journal, "rows.jsonl"), (read_json, "header.json")):
            try:
                read(place / name)
            except RunError as error:
                assert "a pipe or a device" in str(error), error
            else:
                raise SystemExit(f"{{name}} was read")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=20, check=True)
