"""``isthmus attack --processes N``: one journal, the rows of one process, whoever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ATTACK = ("attack", "toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", "30", "--no-label-check")
SLOW = """
import time
from toy import classify

def slowly(texts):
    time.sleep(0.01 * len(texts))
    return classify(texts)
"""


def rows(folder: Path) -> bytes:
    (found,) = [path for path in (folder / "attacks").glob("*.jsonl") if ".trace" not in path.name]
    return found.read_bytes()


def trace(folder: Path) -> bytes:
    (found,) = (folder / "attacks").glob("*.trace.jsonl")
    return found.read_bytes()


def test_the_rows_do_not_depend_on_the_number_of_processes(place: Path, isthmus: Any) -> None:
    assert isthmus(*ATTACK, "--out", "alone", "--trace", "-q").code == 0
    ended = isthmus(*ATTACK, "--out", "two", "--trace", "--processes", "2", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["attacked_now"] == 30
    assert rows(place / "two") == rows(place / "alone")
    assert trace(place / "two") == trace(place / "alone")
    # The number of processes is no setting of the result: the same folder goes on with another.
    again = isthmus(*ATTACK, "--out", "two", "--n", "34", "--processes", "1", "--json")
    assert again.json["attacked_now"] == 4
    assert isthmus(*ATTACK, "--out", "two", "--n", "34", "--json").json["attacked_now"] == 0


def test_an_error_of_a_single_example_is_its_row(place: Path, isthmus: Any) -> None:
    with (place / "reviews.csv").open("a") as stream:
        stream.write("a boom of a good film,positive\n")
    asked = ("--n", "0", "-q", "--label-check")
    alone, two = (
        isthmus(*ATTACK, *asked, "--out", name, *more) for name, more in (("a", ()), ("b", ("--processes", 2)))
    )
    assert alone.code == two.code
    assert rows(place / "a") == rows(place / "b")
    assert b'"error"' in rows(place / "b")


def test_what_cannot_be_asked_for(place: Path, isthmus: Any) -> None:
    none = isthmus(*ATTACK, "--processes", "0")
    assert none.code == 2
    assert "at least 1, not 0" in none.err
    service = isthmus("attack", "http://localhost:1/x", "--data", "reviews.csv", "--processes", "2")
    assert service.code == 2
    assert "models that run on this machine" in " ".join(service.err.split())


def test_a_model_that_only_this_process_can_load(place: Path, isthmus: Any) -> None:
    """An error of another process ends the command as its own would, and names the process."""
    (place / "once.py").write_text(
        "import os\nfrom toy import classify as inner\n"
        f"if os.getpid() != {os.getpid()}:\n    raise RuntimeError('no licence for a second process')\n"
        "def classify(texts):\n    return inner(texts)\n"
    )
    sys.modules.pop("once", None)
    ended = isthmus("attack", "once:classify", *ATTACK[2:], "--out", "once", "--processes", "1")
    said = " ".join(ended.err.split())
    assert ended.code == 2
    assert "process 1 of 1:" in said
    assert "no licence" in said


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 240
    while not (found := ready()):
        assert time.monotonic() < deadline, "it never got as far"
        time.sleep(0.02)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes under /proc")
@pytest.mark.parametrize("who", ["child", "parent"])
def test_killed_and_continued(who: str, place: Path, isthmus: Any) -> None:
    (place / "slow.py").write_text(SLOW)
    sys.modules.pop("slow", None)
    arguments = ("attack", "slow:slowly", *ATTACK[2:], "--out", "killed", "--processes", "2")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *sys.path])}
    command = subprocess.Popen(
        [sys.executable, "-m", "isthmus", *arguments], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    path = place / "killed" / "attacks"
    until(lambda: [file for file in path.glob("*.jsonl") if file.stat().st_size])
    workers = until(lambda: len(found := children(command.pid)) == 2 and found)
    if who == "child":
        os.kill(workers[0], signal.SIGKILL)
        _, said = command.communicate(timeout=240)
        assert command.returncode == 0, said
    else:
        command.kill()
        command.communicate()
        until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in workers))
        assert 0 < rows(place / "killed").count(b"\n") < 30
        assert isthmus(*arguments, "-q").code == 0
    assert isthmus("attack", "slow:slowly", *ATTACK[2:], "--out", "alone", "-q").code == 0
    assert rows(place / "killed") == rows(place / "alone")
