"""Files of lines that are appended to: wherever a kill tore them, the whole lines are read and nothing else."""

from __future__ import annotations

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.lines import seal_row, whole_lines

ROWS = [{"id": f"test:{number}", "text": "naïve \u2028 line\r\nbreak" * (number % 3)} for number in range(5)]
FILE = b"".join(map(seal_row, ROWS))


@given(st.integers(0, len(FILE)))
def test_the_whole_lines_of_a_torn_file_are_read(end: int) -> None:
    torn = FILE[:end]
    lines = list(whole_lines(io.BytesIO(torn)))
    assert [line.row for line in lines] == ROWS[: torn.count(b"\n")]
    assert b"".join(torn[line.start : line.end] for line in lines) == torn[: torn.rfind(b"\n") + 1]
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(line.raw + b"\n" == torn[line.start : line.end] and line.is_sealed for line in lines)


def test_a_damaged_line_is_told_from_a_sound_one() -> None:
    changed = FILE.replace(b"test:1", b"test:7")
    assert [line.is_damaged for line in whole_lines(io.BytesIO(changed))] == [False, True, False, False, False]
    plain = [json.dumps(row).encode() + b"\n" for row in ROWS]
    assert [(line.row, line.is_sealed) for line in whole_lines(plain)] == [(row, False) for row in ROWS]
    assert [line.row for line in whole_lines([b"\n", b"[1]\n", b"{}\n"])] == [None, None, {}]
