"""A gate never passes on rows of another model, of other data, or of a model that is gone."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

GATE = ("--fail-under", "racc=0.0")
VERBS = {
    "attack": ("--data", "reviews.csv", "--attack", "deepwordbug", "--n", "20", *GATE),
    "evaluate": ("--on", "reviews.csv", "--labels", "negative,positive", "--fail-under", "accuracy=0.0"),
}
NOW = {"attack": ("attacked_now", "attacked"), "evaluate": ("asked_now", "evaluated")}


def command(isthmus: Any, verb: str, model: str, *more: object) -> Any:
    sys.modules.pop("toy", None)  # A new process would import it again.
    return isthmus(verb, model, *VERBS[verb], "--out", "run", "--json", *more)


def edit(file: Path, *changes: tuple[str, str]) -> None:
    content = file.read_text()
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    file.write_text(content)


def files() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}


def assert_refused(ended: Any, before: dict[str, bytes], *said: str) -> None:
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert all(part in ended.err for part in said), ended.err
    assert files() == before


def test_a_certificate_is_of_the_model_it_was_made_for(isthmus: Any, place: Path) -> None:
    (place / "table.json").write_text(json.dumps({"good": ["fine"], "bad": ["poor"]}))
    (place / "weight.txt").write_text("1.0")
    edit(place / "toy.py", ("+ 0.25", "+ 0.25 * float(open('weight.txt').read())"))
    given = ("--data", "reviews.csv", "--certificate", "exact", "-P", "table=table.json", "--n", "6", "--out", "run")

    def certify() -> Any:
        return isthmus("certify", "toy:classify", *given, "--fail-under", "certified=0.0", "--json")

    assert certify().json["certified_now"] == 6
    again = certify()
    assert (again.code, again.json["certified_now"], again.json["probe_queries"]) == (0, 0, 8)
    before = files()
    (place / "weight.txt").write_text("0.9")
    assert_refused(certify(), before, "probe texts have changed")
    (place / "weight.txt").unlink()
    assert_refused(certify(), before, "FileNotFoundError")


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_read_back_is_said_aloud(isthmus: Any, place: Path, verb: str) -> None:
    first = command(isthmus, verb, "toy:classify")
    assert first.code == 0, first.err
    n = first.json["n"]
    key, word = NOW[verb]
    assert f"{n} {word} now, 0 read back (16 queries to check that the model is unchanged)" in first.err
    again = command(isthmus, verb, "toy:classify")
    assert again.code == 0
    assert (again.json[key], again.json["probe_queries"]) == (0, 8)
    assert f"0 {word} now, {n} read back (8 queries" in again.err


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_that_was_retrained_is_refused(isthmus: Any, place: Path, verb: str) -> None:
    (place / "weight.txt").write_text("1.0")
    edit(place / "toy.py", ("+ 0.25", "+ float(open('weight.txt').read())"))
    assert command(isthmus, verb, "toy:classify").code == 0
    before = files()
    (place / "weight.txt").write_text("0.9")
    ended = command(isthmus, verb, "toy:classify")
    assert_refused(ended, before, "toy:classify", "of 8 probe texts have changed, by up to 0.0", "--out")
    fresh = command(isthmus, verb, "toy:classify", "--out", "fresh")
    assert fresh.json[NOW[verb][0]] == fresh.json["n"]
    (place / "weight.txt").write_text(repr(1.0 + 1e-7))
    assert command(isthmus, verb, "toy:classify").json[NOW[verb][0]] == 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_whose_source_was_edited_is_refused(isthmus: Any, place: Path, verb: str) -> None:
    command(isthmus, verb, "toy:classify")
    before = files()
    edit(place / "toy.py", ('"dull", "poor"', '"dull", "poor", "unheard-of"'))
    assert_refused(command(isthmus, verb, "toy:classify"), before, "the source of its module")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('gone')", "gone"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("return texts[:1]", "answered"),
    ],
)
def test_a_function_that_raises_is_an_error(isthmus: Any, place: Path, verb: str, body: str, said: str) -> None:
    command(isthmus, verb, "toy:classify")
    before = files()
    edit(place / "toy.py", ("def classify(texts):", f"def classify(texts):\n    {body}"))
    assert_refused(command(isthmus, verb, "toy:classify"), before, said)
    (place / "toy.py").unlink()
    shutil.rmtree(place / "__pycache__", ignore_errors=True)
    assert_refused(command(isthmus, verb, "toy:classify"), before, "cannot import 'toy'")


def test_the_old_rows_are_still_reported(isthmus: Any, place: Path) -> None:
    first = command(isthmus, "attack", "toy:classify")
    edit(place / "toy.py", ("def classify(texts):", "def classify(texts):\n    raise RuntimeError('gone')"))
    assert command(isthmus, "attack", "toy:classify").code == 2
    shown = isthmus("report", "run", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["attacks"]["deepwordbug"]["racc"] == first.json["racc"]


def test_nothing_is_left_by_a_model_that_never_answered(isthmus: Any, place: Path) -> None:
    edit(place / "toy.py", ("def classify(texts):", "def classify(texts):\n    raise RuntimeError('gone')"))
    assert command(isthmus, "attack", "toy:classify").code == 2
    assert not (place / "run").exists()


def test_a_random_function_needs_a_version(isthmus: Any, place: Path) -> None:
    edit(place / "toy.py", ("+ 0.25", "+ __import__('random').random()"))
    ended = command(isthmus, "attack", "toy:classify", "-V", "stochastic=true")
    assert ended.code == 2
    assert "-V version=1" in ended.err
    assert not (place / "run").exists()
    versions = [("-V", "stochastic=true", "-V", f"version={version}") for version in ("1.1", "1.10", "1.1")]
    counts = [command(isthmus, "attack", "toy:classify", *version).json["attacked_now"] for version in versions]
    assert counts == [20, 20, 0]
    assert len(list((place / "run/attacks").glob("*.jsonl"))) == 2
    assert command(isthmus, "attack", "toy:classify", "-V", "version=").code == 2


@pytest.mark.parametrize("verb", VERBS)
def test_a_pipeline_that_was_fitted_again_is_refused(isthmus: Any, place: Path, verb: str) -> None:
    pytest.importorskip("sklearn")
    edit(
        place / "toy.py",
        (
            "def entails",
            "import csv\n"
            "from sklearn.feature_extraction.text import CountVectorizer\n"
            "from sklearn.linear_model import LogisticRegression\n"
            "from sklearn.pipeline import make_pipeline\n"
            "rows = list(csv.DictReader(open('fitted_on.csv')))\n"
            "pipeline = make_pipeline(CountVectorizer(), LogisticRegression())\n"
            "pipeline.fit([row['text'] for row in rows], [row['label'] for row in rows])\n\n"
            "def entails",
        ),
    )
    content = (place / "reviews.csv").read_text()
    (place / "fitted_on.csv").write_text(content)
    assert command(isthmus, verb, "toy:pipeline").code == 0
    before = files()
    (place / "fitted_on.csv").write_text("\n".join(content.splitlines()[:-6]) + "\n")
    assert_refused(command(isthmus, verb, "toy:pipeline"), before, "probe texts have changed")


Classify = Callable[[Sequence[str]], Any]


@pytest.fixture
def service(place: Path) -> Iterator[tuple[ThreadingHTTPServer, dict[str, Any]]]:
    """A service whose scores and status can be changed while it runs."""
    import toy

    state: dict[str, Any] = {"shift": 0.0, "status": 200, "asked": 0}

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
            state["asked"] += len(texts)
            rows = [[a + state["shift"] * (b - a), b + state["shift"] * (a - b)] for a, b in toy.classify(texts)]
            body = json.dumps({"scores": rows, "labels": ["negative", "positive"]}).encode()
            self.send_response(state["status"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server, state
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_service_that_changed_or_is_down_is_refused(isthmus: Any, place: Path, service: Any, verb: str) -> None:
    server, state = service
    quick = ("-V", "retries=1", "-V", "backoff=0.01")
    address = f"http://127.0.0.1:{server.server_port}/classify?key=secret"
    assert command(isthmus, verb, address, *quick).code == 0
    before = files()
    asked = state["asked"]
    again = command(isthmus, verb, address, *quick)
    assert again.code == 0
    assert state["asked"] - asked == again.json["probe_queries"] + (verb == "attack")  # Its classes, once.
    state["shift"] = 0.02
    assert_refused(command(isthmus, verb, address, *quick), before, "probe texts have changed")
    state |= {"shift": 0.0, "status": 500}
    assert_refused(command(isthmus, verb, address, *quick), before, "answered 500")
    server.shutdown()
    server.server_close()
    ended = command(isthmus, verb, address, *quick)
    assert_refused(ended, before, "cannot be reached")
    assert "secret" not in ended.err + "".join(path.read_text() for path in (place / "run").rglob("*.json"))


@pytest.mark.parametrize("verb", VERBS)
def test_data_that_were_edited_in_place_are_other_data(isthmus: Any, place: Path, verb: str) -> None:
    first = command(isthmus, verb, "toy:classify")
    edit(place / "reviews.csv", ("number 7,positive", "number 7 and awful and dull and bad,positive"))
    ended = command(isthmus, verb, "toy:classify")
    assert ended.code == 0, ended.err
    assert ended.json[NOW[verb][0]] == ended.json["n"] == first.json["n"]
    edit(place / "reviews.csv", ("and awful and dull and bad", "and fine"))
    swapped = command(isthmus, verb, "toy:classify")
    assert swapped.json[NOW[verb][0]] == first.json["n"]
    assert len(list((place / "run" / {"attack": "attacks", "evaluate": "evaluations"}[verb]).glob("*.jsonl"))) == 3


def test_of_a_model_that_gives_labels_only_the_limit_is_said(isthmus: Any, place: Path) -> None:
    edit(
        place / "toy.py",
        ("def entails", "def hard(texts):\n    return [int(q > p) for p, q in classify(texts)]\n\n\ndef entails"),
    )
    options = ("--labels", "negative,positive")
    assert "returns labels only" in command(isthmus, "attack", "toy:hard", *options).err
    assert "labels only" not in command(isthmus, "attack", "toy:hard", *options, "-V", "version=1").err
    assert "labels only" not in command(isthmus, "attack", "toy:classify", *options, "--out", "other").err


def test_a_word_list_that_was_edited_is_another_attack(isthmus: Any, place: Path) -> None:
    words = place / "words.txt"
    for content in ("lovely\ngood\n", "awful\nbad\n"):
        words.write_text(content)
        options = ("--attack", "goodwords", "-P", "source=words.txt", "--from-label", "negative")
        ended = command(isthmus, "attack", "toy:classify", *options)
        assert ended.code == 0, ended.err
        assert ended.json["attacked_now"] == ended.json["n"]
    assert len(list((place / "run/attacks").glob("*.jsonl"))) == 2


def test_a_version_says_nothing_of_files(isthmus: Any, place: Path) -> None:
    (place / "folder").mkdir()
    (place / "folder/config.json").write_text("{}")
    ended = command(isthmus, "attack", "folder", "-V", "version=2")
    assert ended.code == 2
    assert "identified by the content of its files" in ended.err
