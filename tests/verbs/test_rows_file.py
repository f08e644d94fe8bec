"""The one loop of every verb that writes rows: claimed by one process, continued after a kill, the same at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from rows_job_child import Squares, ready

from isthmus.core.errors import RunError
from isthmus.runs.folder import RunFolder
from isthmus.runs.journal import Journal

ROUNDS = 6
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))}


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).parents[1] / "support" / "rows_job_child.py"), *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def raced(place: Path, seeds: tuple[int, int]) -> list[tuple[Any, Any]]:
    """What two processes that began every round together say of each."""
    both = [start(place, name, seed, ROUNDS) for name, seed in zip("ab", seeds, strict=True)]
    ended = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    first, second = (json.loads(out) for out, _ in ended)
    return list(zip(first, second, strict=True))


def values(path: Path) -> list[Any]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"test:{number}" for number in range(30)]
    return [row.get("value") for row in rows]


def squares(seed: int) -> list[int | None]:
    return [None if number == 3 else seed + number**2 for number in range(30)]


def test_of_two_processes_with_the_same_settings_one_makes_the_rows(tmp_path: Path) -> None:
    for number, said in enumerate(raced(tmp_path, (5, 5))):
        assert sorted(map(str, said)) in (["30", "busy"], ["0", "30"])
        (file,) = (tmp_path / str(number) / "attacks").glob("*.jsonl")
        assert values(file) == squares(5)


def test_two_processes_with_other_settings_have_a_file_each(tmp_path: Path) -> None:
    for number, said in enumerate(raced(tmp_path, (5, 6))):
        assert said == (30, 30)
        files = RunFolder(tmp_path / str(number)).attack_files()
        assert sorted(file.header()["settings"]["seed"] for file in files) == [5, 6]
        for file in files:
            assert values(file.rows_path) == squares(file.header()["settings"]["seed"])


def test_a_killed_process_is_continued_to_the_same_bytes(tmp_path: Path) -> None:
    code = f"import sys; sys.path[:0] = {sys.path!r}; from rows_job_child import *; from pathlib import Path; "
    code += f"Squares(ready(), RunFolder(Path({str(tmp_path / 'killed')!r})), 5, pause=0.05).run()"
    process = subprocess.Popen([sys.executable, "-c", code])
    rows = tmp_path / "killed/attacks/squares.jsonl"
    deadline = time.monotonic() + 60
    while not rows.exists() or rows.read_bytes().count(b"\n") < 4:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = rows.read_bytes().count(b"\n")
    rows.write_bytes(rows.read_bytes() + b'{"id": "test:1", "outc')  # Torn in the middle of a write.
    done = Squares(ready(), RunFolder(tmp_path / "killed"), 5).run()
    whole = Squares(ready(), RunFolder(tmp_path / "whole"), 5).run()
    assert (done.made, whole.made) == (30 - kept, 30)
    assert done.file.rows_path.read_bytes() == whole.file.rows_path.read_bytes()
    assert done.results == whole.results
    assert done.header["summary"] == whole.header["summary"] == {"sum": sum(filter(None, squares(5)))}


def test_what_is_there_is_read_and_what_is_asked_for_again_is_made_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        Squares(ready(), folder, 5, n=10, last=6).run()
    header = folder.attack_files()[0].header()
    assert "summary" not in header
    assert len(folder.attack_files()[0].rows()) == 4  # 9, 8 and 7, and what holds no example.
    first = Squares(ready(), folder, 5, n=10).run()
    assert (first.made, first.total, first.header["effort"]["made"]) == (6, 10, 6)
    before = first.file.header_path.read_bytes()
    again = Squares(ready(), folder, 5, n=10).run()
    assert (again.made, again.results, again.file.header_path.read_bytes()) == (0, first.results, before)
    more = Squares(ready(), folder, 5, n=12).run()
    assert (more.made, more.total, more.header["effort"]) == (2, 12, {**more.header["effort"], "examples": 8 + 0})
    fewer = Squares(ready(), folder, 5, n=4).run()
    assert (fewer.made, len(fewer.results), fewer.total, fewer.header["n"]) == (0, 4, 12, 12)
    retried = Squares(ready(retry_errors=True), folder, 5, n=12).run()
    assert (retried.made, retried.results) == (1, more.results)


def test_a_header_that_cannot_be_read_leaves_the_file_free(tmp_path: Path) -> None:
    file = Squares(ready(), RunFolder(tmp_path), 5, n=4).run().file
    file.header_path.write_text("[]")
    with pytest.raises(RunError, match="JSON object"):
        Squares(ready(), RunFolder(tmp_path), 5, n=4).run()
    Journal(file.rows_path).close()
