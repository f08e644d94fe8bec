from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import RunError
from isthmus.verbs.attack.trace import Trace, is_traced


def write(trace: Trace, ids: dict[int, str], keys: list[int], keep: list[str]) -> None:
    with trace:
        trace.begin(ids, keep)
        for number, key in enumerate(keys):
            trace.note(key, {"text": f"text {number}"}, np.array([0.25, 0.75], np.float32))


def lines(path: Path) -> list[tuple[str, int, str]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["id"], row["query"], row["texts"]["text"]) for row in rows]


def test_queries_are_numbered_per_example_in_the_order_they_came(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "attacks/pwws.trace.jsonl")
    write(trace, {7: "a", 9: "b"}, [7, 9, 9, 7, 9], [])
    assert lines(trace.path) == [
        ("a", 1, "text 0"), ("b", 1, "text 1"), ("b", 2, "text 2"), ("a", 2, "text 3"), ("b", 3, "text 4"),
    ]  # fmt: skip
    assert json.loads(trace.path.read_text().splitlines()[0])["scores"] == [0.25, 0.75]
    assert trace.counts() == {"a": 2, "b": 3}


def test_what_has_no_row_is_dropped_and_the_end_does_not_depend_on_interruptions(tmp_path: Path) -> None:
    whole, cut = Trace(tmp_path / "whole.jsonl"), Trace(tmp_path / "cut.jsonl")
    ids = {1: "a", 2: "b", 3: "c"}
    write(whole, ids, [1, 2, 3, 1, 2, 3], [])
    whole.order(["c", "a", "b"])
    assert [key for key, _, _ in lines(whole.path)] == ["c", "c", "a", "a", "b", "b"]
    # The first session finished "b" only, was killed in the middle of a line, and left one that is no JSON.
    write(cut, ids, [1, 2, 2], [])
    with cut.path.open("ab") as stream:
        stream.write(b'{"id": "c", "que\n{"id": "a", "query"')
    with cut:
        cut.begin(ids, ["b"])
        assert cut.counts() == {"b": 2}
        for key in (1, 3, 3, 1):
            cut.note(key, {"text": ""}, [0.5])
    cut.order(["c", "a", "b"])
    assert [(key, query) for key, query, _ in lines(cut.path)] == [(key, query) for key, query, _ in lines(whole.path)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.jsonl", "whole.jsonl"]


def test_a_file_in_order_is_left_as_it_is(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace.jsonl")
    write(trace, {1: "a"}, [1, 1], [])
    before = trace.path.stat().st_ino
    trace.order(["a"])
    assert trace.path.stat().st_ino == before
    Trace(tmp_path / "absent.jsonl").order(["a"])
    assert not (tmp_path / "absent.jsonl").exists()


def test_a_row_is_traced_when_each_of_its_queries_is_there() -> None:
    assert is_traced(AttackResult("a", "failed", 1, {}, {}, logical_queries=3), 3)
    assert not is_traced(AttackResult("a", "failed", 1, {}, {}, logical_queries=3), 0)
    assert is_traced(AttackResult("a", "error", 1, {}, {}, logical_queries=3), 1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write"):
        Trace(tmp_path / "file/trace.jsonl").begin({}, [])
