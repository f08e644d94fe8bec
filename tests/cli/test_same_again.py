"""The command that a page offers as "the same again" runs in a shell, and gives the same rows."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.slow

SECRETS = {"API_KEY": "k 1&$x", "X_KEY": 'it\'s "v"', "API_KEY_2": "other"}


@pytest.fixture
def service(place: Path) -> Iterator[str]:
    """A classifier behind two keys and a header."""
    import urllib.parse

    import toy

    wanted = urllib.parse.quote(SECRETS["API_KEY"], safe="")

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            allowed = f"api_key={wanted}&api_key=other" in self.path and self.headers["X-Key"] == SECRETS["X_KEY"]
            body = json.dumps({"scores": toy.classify(texts)}).encode()
            self.send_response(200 if allowed else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/classify?api_key={wanted}&api_key=other"
    server.shutdown()
    server.server_close()


def environment(place: Path) -> dict[str, str]:
    """Where `isthmus` is a command."""
    script = place / "bin/isthmus"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m isthmus "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{script.parent}:{os.environ['PATH']}", "COLUMNS": "400"}


def rows(place: Path) -> bytes:
    return (place / "run/attacks/deepwordbug.jsonl").read_bytes()


def test_a_page_with_secrets(place: Path, service: str) -> None:
    import urllib.parse

    here = environment(place)
    given = [
        "attack", service, "--header", f"X-Key: {SECRETS['X_KEY']}", "--data", "reviews.csv", "--attack", "deepwordbug",
        "--n", "6", "--protect-pattern", r"https?://\S+|\bnumber\b", "--out", "run",
    ]  # fmt: skip
    ran = subprocess.run(["isthmus", *given], env=here, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    first = rows(place)
    told = subprocess.run(["isthmus", "report", "run"], env=here, capture_output=True, text=True)
    page = html.unescape((place / "run/report.html").read_text())
    assert not any(secret in page + told.stdout for secret in ("k%201", "it's", "other&", "=other"))
    (block,) = re.findall(r"<h2[^>]*>Commands to reproduce</h2>\s*<pre>(.*?)\n</pre>", page, re.DOTALL)
    (command,) = block.splitlines()
    secrets = {**SECRETS, "API_KEY": urllib.parse.quote(SECRETS["API_KEY"], safe="")}
    shutil.rmtree(place / "run")
    again = subprocess.run(["sh", "-c", command], env={**here, **secrets}, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert rows(place) == first
    # What the terminal offers next goes on with these rows.
    (more,) = [line.strip() for line in told.stdout.splitlines() if line.strip().startswith("isthmus attack")]
    more = more.split("  ")[0]
    assert more == command.replace("--n 6", "--n 60")
    grown = subprocess.run(["sh", "-c", f"{more} --json"], env={**here, **secrets}, capture_output=True, text=True)
    assert grown.returncode == 0, grown.stderr
    assert json.loads(grown.stdout)["attacked_now"] == 54
    assert rows(place).startswith(first)
    unset = subprocess.run(["sh", "-c", command], env=here, capture_output=True, text=True)
    assert unset.returncode == 2
    assert "401" in unset.stderr
