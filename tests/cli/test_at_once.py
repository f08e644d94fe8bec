"""Two processes that begin at once in one folder, each with its own settings: each has a file of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CHILD = '''
"""The command line, stopped between choosing a name for its rows and opening the file."""
import sys, time
from pathlib import Path
from isthmus.verbs import rows_file
from isthmus.cli.app import run

name, *arguments = sys.argv[1:]
opening = rows_file.Journal

def waiting(path):
    rows_file.Journal = opening
    Path(f"ready-{name}").touch()
    while not Path(f"go-{name}").exists():
        time.sleep(0.005)
    return opening(path)

rows_file.Journal = waiting
sys.exit(run(arguments))
'''
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def children(place: Path) -> Iterator[Any]:
    (place / "child.py").write_text(CHILD)
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, "child.py", name, *map(str, arguments)]
        environment = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([*map(str, sys.path), "."])}
        started.append(
            subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(paths: Sequence[Path], processes: Sequence[subprocess.Popen[str]]) -> None:
    deadline = time.monotonic() + 120
    while not all(path.exists() for path in paths):
        ended = [process.communicate()[1] for process in processes if process.poll() is not None]
        assert not ended, ended
        assert time.monotonic() < deadline
        time.sleep(0.01)


def save_network(place: Path) -> None:
    import certify_toys as toys

    texts = [
        f"{a} {b} {c}" for a, b, c in itertools.product(["a", "one"], ["good", "bad"], ["x", "film", "y", "z", "w"])
    ]
    toys.network("cnn", 4, 0.6).save(place / "cnn")
    toys.table(most=3).write(place / "table.json")
    lines = [f"{text},{toys.TASK.labels[number % 2]}" for number, text in enumerate(texts)]
    (place / "data.csv").write_text("\n".join(["text,label", *lines]) + "\n")


COMMANDS = {
    "attack": (
        ("toy:classify", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 20),
        ("--budget", 1000),
        ("--budget", 1001),
    ),
    "evaluate": (
        ("toy:classify", "--on", "reviews.csv", "--labels", "negative,positive"),
        ("--seed", 1),
        ("--seed", 2),
    ),
    "certify": (
        ("cnn", "--data", "data.csv", "--certificate", "exact", "-P", "table=table.json", "--no-label-check"),
        ("-P", "limit=5000"),
        ("-P", "limit=5001"),
    ),
}
FOLDERS = {"attack": "attacks", "evaluate": "evaluations", "certify": "certificates"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_each_has_its_own_file(children: Any, place: Path, verb: str) -> None:
    if verb == "certify":
        save_network(place)
    shared, *own = COMMANDS[verb]
    one, two = (children(name, verb, *shared, *more, "--out", "run") for name, more in zip("ab", own, strict=True))
    wait_for([place / "ready-a", place / "ready-b"], [one, two])
    (place / "go-a").touch()
    assert one.wait(timeout=120) == 0, one.communicate()[1]
    (place / "go-b").touch()  # It opens the name it chose, which the first has written and left.
    assert two.wait(timeout=120) == 0, two.communicate()[1]
    files = sorted(path for path in (place / "run" / FOLDERS[verb]).glob("*.jsonl") if "challenges" not in path.name)
    assert len(files) == 2
    headers = [json.loads(path.with_suffix(".json").read_text()) for path in files]
    assert len({header["hash"] for header in headers}) == 2
    for path, header in zip(files, headers, strict=True):
        rows = [json.loads(line)["id"] for line in path.read_text().splitlines()]
        assert len(rows) == len(set(rows)) == (60 if verb == "evaluate" else 20)
        assert header["effort"]["examples"] == len(rows)
        assert path.stem == path.stem.split("@")[0] or path.stem.endswith(header["hash"])
