"""The service of docs/victims.md runs as it stands there, and its tables give the options there are."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.cli.app import run
from isthmus.models.victims import CallableVictim, HttpVictim

PAGE = (Path(__file__).parents[2] / "docs" / "victims.md").read_text(encoding="utf-8")


@contextlib.contextmanager
def service() -> Iterator[str]:
    """The page's own service, in a process of its own; its address."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", code.replace("8000", str(port))], stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            assert process.poll() is None
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/classify"
    finally:
        process.kill()
        process.wait()


def test_the_service_is_attacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"a {'good' if n % 2 else 'dull'} film {n},{'positive' if n % 2 else 'negative'}" for n in range(40)]
    (tmp_path / "reviews.csv").write_text("\n".join(["review,stars", *rows]))
    given = ["--data", "reviews.csv", "--text", "review", "--label", "stars", "--attack", "deepwordbug"]
    with service() as address:
        results = []
        for concurrency in (1, 4):
            options = ["-V", f"concurrency={concurrency}", "--out", f"runs/{concurrency}", "--n", "0", "--quiet"]
            assert run(["attack", address, *given, *options, "--json"]) == 0
            results.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert results[0]["labels"] == ["negative", "positive"]  # by the service's own names
    assert results[0]["sacc"] == 1
    assert results[0]["asr"] == 0.5  # A misspelt "good" is gone, a "dull" film stays one.
    files = [(tmp_path / f"runs/{number}/attacks/deepwordbug.jsonl").read_bytes() for number in (1, 4)]
    assert files[0] == files[1]


@pytest.mark.parametrize(("heading", "kind"), [("A service", HttpVictim), ("A Python object", CallableVictim)])
def test_the_tables_give_the_options_and_their_defaults(heading: str, kind: Callable[..., Any]) -> None:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    known = inspect.signature(kind).parameters
    listed: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`-V [^|]*) \| ([^|]*) \|", section, re.MULTILINE):
        values = default.replace("`", "").split(", ")
        named = re.findall(r"-V (\w+)", names)
        listed |= dict(zip(named, values, strict=True))
    assert set(listed) == {name for name in known if known[name].kind is inspect.Parameter.KEYWORD_ONLY} - {
        "headers",
        "name",
    }
    for name, shown in listed.items():
        default = known[name].default
        expected = "no limit" if default is None else str(default).lower()
        assert shown == expected.removesuffix(".0"), name
