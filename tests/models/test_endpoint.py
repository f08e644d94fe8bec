"""A service: what reaches it, what must not reach anybody else, and what happens when it is slow."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from isthmus.attacks import DeepWordBug
from isthmus.core.errors import UsageError, VictimError, VictimTimeout
from isthmus.core.types import Example
from isthmus.models import HttpVictim
from isthmus.models.victims._side_by_side import Pace, side_by_side

LABELS = ("negative", "positive")
KEY = "sk-very-secret-0123456789"


def as_texts(texts: list[str]) -> list[dict[str, str]]:
    return [{"text": text} for text in texts]


def scored(texts: list[str]) -> bytes:
    """The longer a text, the more positive."""
    rows = [[1 - share, share] for share in (min(len(text), 99) / 100 for text in texts)]
    return json.dumps({"scores": rows}).encode()


class Service:
    """A server in this process that notes what it is sent."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler, list[Any]], None]) -> None:
        self.seen: list[tuple[str, dict[str, str], list[Any]]] = []
        self.at_once = self.most_at_once = 0
        lock, service = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["texts"]
                with lock:
                    service.seen.append((self.path, dict(self.headers), texts))
                    service.at_once += 1
                    service.most_at_once = max(service.at_once, service.most_at_once)
                with suppress(OSError):
                    answer(self, texts)
                with lock:
                    service.at_once -= 1

            def log_message(self, *arguments: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"


def reply(handler: BaseHTTPRequestHandler, content: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {**headers, "Content-Length": str(len(content))}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def running(answer: Callable[[BaseHTTPRequestHandler, list[Any]], None]) -> Iterator[Service]:
    service = Service(answer)
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()


# ---------------------------------------------------------------------- what must not leave


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_nothing_is_sent_to_another_origin(status: int) -> None:
    with running(lambda handler, texts: reply(handler, scored(texts))) as other:
        target = f"http://ann:hunter22@{other.host}/caught?api_key={KEY}"
        with running(lambda handler, texts: reply(handler, b"", status, Location=target)) as service:
            victim = HttpVictim(f"http://{service.host}/", LABELS, headers={"Authorization": f"Bearer {KEY}"})
            with pytest.raises(VictimError, match="redirects to") as raised:
                victim.scores(as_texts(["a"]))
            assert other.host in str(raised.value)
            assert KEY not in str(raised.value)
            assert "hunter22" not in str(raised.value)
        assert other.seen == []


def test_nothing_is_sent_under_another_name_of_the_host() -> None:
    def away(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        reply(handler, b"", 307, Location=f"http://localhost:{handler.server.server_port}/")  # type: ignore[attr-defined]

    with running(away) as service:
        with pytest.raises(VictimError, match="redirects to"):
            HttpVictim(f"http://{service.host}/", LABELS).scores(as_texts(["a"]))
        assert len(service.seen) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_within_the_origin_is_the_same_request_again(status: int) -> None:
    def moved(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        if handler.path == "/old":
            reply(handler, b"", status, Location="/new")
        else:
            reply(handler, scored(texts))

    with running(moved) as service:
        victim = HttpVictim(f"http://{service.host}/old", LABELS, headers={"X-Key": KEY})
        assert victim.scores(as_texts(["aaaaa"])).shape == (1, 2)
        assert [(path, headers["X-Key"], texts) for path, headers, texts in service.seen] == [
            ("/old", KEY, ["aaaaa"]),
            ("/new", KEY, ["aaaaa"]),
        ]


def test_keys_reach_the_service_and_no_message() -> None:
    def refuse(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        reply(handler, f"{handler.path}: {handler.headers['X-Token']} {handler.headers['Authorization']}".encode(), 401)

    with running(refuse) as service:
        address = f"http://ann:hunter22@{service.host}/classify?api_key={KEY}"
        victim = HttpVictim(address, LABELS, headers={"X-Token": "Token abcdefgh"})
        with pytest.raises(VictimError, match="answered 401") as raised:
            victim.scores(as_texts(["a"]))
        path, headers, _ = service.seen[0]
        assert path == f"/classify?api_key={KEY}"
        assert headers["X-Token"] == "Token abcdefgh"
        pair = headers["Authorization"].removeprefix("Basic ")
        assert base64.b64decode(pair) == b"ann:hunter22"
        for secret in (KEY, "hunter22", "abcdefgh", pair):
            assert secret not in str(raised.value)
            assert secret not in repr(victim)
        assert service.host in str(raised.value)


LONG = "eyJhbGciOiJIUzI1NiJ9." + "Zm9vYmFyMDEyMzQ1Njc4OQ" * 30
"""A token longer than what an error shows."""


def refusing(said: str, status: int = 401) -> Callable[[BaseHTTPRequestHandler, list[Any]], None]:
    """A service that repeats what it was sent: ``{token}``, ``{path}``, and both as JSON by PHP."""

    def answer(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        sent = {"token": handler.headers["Authorization"], "path": handler.path, "host": handler.headers["Host"]}
        if status == 307:
            reply(handler, b"", status, Location=said.format(**sent))
            return
        slashed = json.dumps(sent).replace("/", "\\/")
        reply(handler, said.replace("{php}", slashed).replace("{token}", sent["token"]).encode(), status)

    return answer


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("the token {token} has expired", 401),
        ("{php}", 401),
        ("<html>no such token: {token}</html>", 200),
        ('{"scores": [{"label": "{token}", "score": 1}]}', 200),
        ('{"scores": [{"label": "positive", "score": "{token}"}]}', 200),
        ('{"scores": [[{"label": 1}, "and {token}"]]}', 200),
        ('{"{token}": 1}', 200),
        ("http://127.0.0.2/{token}", 307),
    ],
)
def test_no_part_of_a_key_reaches_a_message_however_it_is_repeated(said: str, status: int) -> None:
    with running(refusing(said, status)) as service:
        address = f"http://{service.host}/classify?api_key=k%2Fe%20y{KEY}&{KEY}/2"
        victim = HttpVictim(address, LABELS, headers={"Authorization": f"Bearer {LONG}"}, retries=0)
        with pytest.raises(VictimError) as raised:
            victim.scores(as_texts(["a"]))
    for part in (LONG[:6], "Zm9v", KEY[:8], "k%2Fe", "k/e"):
        assert part not in str(raised.value)


def test_headers_are_a_mapping() -> None:
    with pytest.raises(UsageError, match="--header NAME:VALUE"):
        HttpVictim("http://127.0.0.1/", LABELS, headers="Authorization: abc")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("ftp://host/", "http://"),
        ("http://", "host"),
        ("http://:80/", "host"),
        ("http://host:port/", "port"),
        ("http://host:99999/", "port"),
        ("http://[::1/", "host"),
        ("http://a..b/", "host"),
        ("http://" + "a" * 70 + ".org/", "host"),
        ("http://host/a b", "%20"),
        ("http://host/\r\nX-Evil: 1", "control"),
        (f"http://ann:hunter22@host:x/?api_key={KEY}", "port"),
    ],
)
def test_a_bad_address_is_refused_by_what_is_wrong_with_it(address: str, named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        HttpVictim(address, LABELS)
    assert KEY not in str(raised.value)
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize("headers", [{"X-Key": f"{KEY}\r\nX-Evil: 1"}, {"X-Key": f"{KEY}✓"}, {"X Key": KEY}, {"": KEY}])
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="header") as raised:
        HttpVictim("http://host/", LABELS, headers=headers)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout", "abc"), ("timeout", float("nan")), ("timeout", -1), ("timeout", True), ("batch_size", 1.5),
        ("batch_size", 0), ("concurrency", 0), ("concurrency", "many"), ("requests_per_second", 0), ("retries", -1),
        ("retries", 1.5), ("backoff", -1), ("backoff", "x"), ("outputs", "foo"), ("stochastic", "maybe"),
        ("texts_key", 3),
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=option):
        HttpVictim("http://host/", LABELS, **{option: value})


def test_an_address_in_other_letters_is_sent_as_ascii() -> None:
    with running(lambda handler, texts: reply(handler, scored(texts))) as service:
        HttpVictim(f"http://{service.host}/größe?q=ä", LABELS).scores(as_texts(["a"]))
        assert service.seen[0][0] == "/gr%C3%B6%C3%9Fe?q=%C3%A4"


# ---------------------------------------------------------------------- slow services


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """A server that sends `head`, then a byte every few milliseconds for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(head)
            while not stop.wait(0.01):
                connection.sendall(b" ")

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=drip, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        stop.set()
        listener.close()


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n[[", b"HTTP/1.1 400 Bad\r\n\r\n"]
)
def test_a_drip_ends_with_the_deadline(head: bytes) -> None:
    with dripping(head) as address:
        victim = HttpVictim(address, LABELS, timeout=0.2, retries=0)
        began = time.monotonic()
        with pytest.raises(VictimTimeout, match=r"within 0\.2 s"):
            victim.scores(as_texts(["a"]))
        assert 0.15 < time.monotonic() - began < 2


def test_an_answer_cut_short_is_asked_for_again() -> None:
    sent: list[int] = []

    def cut(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        sent.append(1)
        if len(sent) > 1:
            return reply(handler, scored(texts))
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"[[0.5")
        return None

    with running(cut) as service:
        assert HttpVictim(f"http://{service.host}/", LABELS, backoff=0).scores(as_texts(["a"])).shape == (1, 2)
    assert len(sent) == 2


def test_a_service_that_speaks_something_else_cannot_be_reached() -> None:
    with dripping(b"220 smtp.example.org\r\n") as address, pytest.raises(VictimError, match="not speak HTTP"):
        HttpVictim(address, LABELS, retries=0, timeout=2).scores(as_texts(["a"]))


# ---------------------------------------------------------------------- side by side


def jittery(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
    """The first batches take longest, so that answers arrive in another order than they were asked for."""
    time.sleep(0.03 if int(texts[0].split()[0]) < 40 else 0.005)
    reply(handler, scored(texts))


def test_answers_are_the_same_whatever_is_sent_at_once() -> None:
    texts = as_texts([f"{number} " + "x" * (number % 37) for number in range(130)])
    answers, most = [], []
    for concurrency in (1, 8):
        with running(jittery) as service:
            victim = HttpVictim(f"http://{service.host}/", batch_size=10, concurrency=concurrency)
            answers.append(victim.scores(texts))
            most.append(service.most_at_once)
            assert sorted(len(sent) for *_, sent in service.seen) == [10] * 13
            assert victim.labels == ("LABEL_0", "LABEL_1")
    assert np.array_equal(*answers)
    assert most[0] == 1
    assert 2 <= most[1] <= 8


def test_an_attack_is_the_same_whatever_is_sent_at_once() -> None:
    examples = [Example(str(number), {"text": f"{number} words " + "of some length " * 4}, 1) for number in range(6)]
    ended: list[Any] = []
    for concurrency in (1, 8):
        with running(lambda handler, texts: reply(handler, scored(texts))) as service:
            victim = HttpVictim(f"http://{service.host}/", LABELS, batch_size=4, concurrency=concurrency)
            results = DeepWordBug()(victim, examples)
            ended.append([(each.outcome, each.perturbed, each.logical_queries) for each in results])
            asked = sorted(tuple(texts) for *_, texts in service.seen)
            ended[-1].append(asked)
    assert ended[0][:-1] == ended[1][:-1]
    assert {text for batch in ended[0][-1] for text in batch} == {text for batch in ended[1][-1] for text in batch}


def test_the_pace_is_kept_by_all_together() -> None:
    with running(lambda handler, texts: reply(handler, scored(texts))) as service:
        victim = HttpVictim(f"http://{service.host}/", LABELS, batch_size=1, concurrency=8, requests_per_second=50)
        began = time.monotonic()
        victim.scores(as_texts(["a"] * 11))
        assert time.monotonic() - began >= 10 / 50


def test_retry_after_holds_every_thread() -> None:
    times: list[float] = []
    lock = threading.Lock()

    def once(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        with lock:
            times.append(time.monotonic())
            first = len(times) == 1
        if first:
            reply(handler, b"", 429, Retry_After="0.3")
        else:
            reply(handler, scored(texts))

    with running(once) as service:
        victim = HttpVictim(f"http://{service.host}/", LABELS, batch_size=1, concurrency=2, requests_per_second=20)
        assert victim.scores(as_texts(["a"] * 6)).shape == (6, 2)
    # One more may have been under way when the service asked for a pause.
    assert sum(moment - times[0] < 0.25 for moment in times) <= 2


@pytest.mark.parametrize("said", ["nan", "inf", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_any_retry_after_is_survived(said: str) -> None:
    sent: list[int] = []

    def once(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        sent.append(1)
        if len(sent) == 1:
            reply(handler, b"", 503, Retry_After=said)
        else:
            reply(handler, scored(texts))

    with running(once) as service:
        HttpVictim(f"http://{service.host}/", LABELS, backoff=0.001).scores(as_texts(["a"]))
    assert len(sent) == 2


def test_the_first_failure_by_order_is_raised_and_nothing_else_begins() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 0:
            time.sleep(0.05)
            raise VictimError("first")
        if number == 1:
            raise VictimError("second")
        time.sleep(0.2)
        return number

    with pytest.raises(VictimError, match="first"):
        side_by_side(work, range(100), 2)
    time.sleep(0.25)
    assert len(begun) <= 4
    with pytest.raises(KeyboardInterrupt):
        side_by_side(lambda number: (_ for _ in ()).throw(KeyboardInterrupt()), range(3), 2)
    assert side_by_side(lambda number: number * 2, range(50), 7) == [number * 2 for number in range(50)]


def test_a_pace_of_nothing_does_not_wait() -> None:
    pace = Pace(0.0)
    began = time.monotonic()
    for _ in range(1000):
        pace.wait_for_turn()
    assert time.monotonic() - began < 0.5


def test_a_batch_that_times_out_loses_its_own_texts_only() -> None:
    def hang(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        if any("slow" in text for text in texts):
            time.sleep(1)
        reply(handler, scored(texts))

    found = []
    for concurrency in (1, 4):
        with running(hang) as service:
            victim = HttpVictim(
                f"http://{service.host}/", LABELS, batch_size=2, concurrency=concurrency, timeout=0.2, retries=0
            )
            with pytest.raises(VictimTimeout) as raised:
                victim.scores(as_texts(["a", "b", "slow", "c", "d"]))
            assert raised.value.answered is not None
            found.append(np.isnan(raised.value.answered).all(axis=1).tolist())
    assert found == [[False, False, True, True, False]] * 2


def test_of_an_attack_only_what_was_not_answered_is_lost() -> None:
    def hang(handler: BaseHTTPRequestHandler, texts: list[Any]) -> None:
        if any("slow" in text for text in texts):
            time.sleep(1)
        reply(handler, scored(texts))

    words = ["fine", "slow", "good", "dull"]
    examples = [Example(word, {"text": f"{word} film " + "x" * 60}, 1) for word in words]
    with running(hang) as service:
        victim = HttpVictim(f"http://{service.host}/", LABELS, batch_size=1, timeout=0.2, retries=0)
        outcomes = {result.id: result.outcome for result in DeepWordBug()(victim, examples)}
    assert outcomes["slow"] == "timed_out"
    assert {outcomes[word] for word in words if word != "slow"} <= {"failed", "succeeded"}
