from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import UnknownName, UsageError
from isthmus.data import load_data
from isthmus.data.adversarial import parse_printed, read_textattack
from isthmus.report.attack.export import (
    COLUMNS,
    _bracket,
    _print_fields,
    adversarial,
    export,
    format_of,
    textattack_row,
)
from isthmus.report.attack.view import AttackView
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder

MakeRow = Callable[..., dict[str, Any]]

PAIR: dict[str, Any] = {
    "id": "test:0", "outcome": "succeeded", "label": 1, "prediction_before": 1, "prediction_after": 0,
    "original": {"premise": "the premise 0\nnew line", "hypothesis": "a good film"},
    "perturbed": {"premise": "the premise 0\nnew line", "hypothesis": "a Wgood film"},
    "score_before": [0.2, 0.8], "score_after": [0.9, 0.1], "logical_queries": 11,
    "edits": [{"field": "hypothesis", "start": 2, "end": 6, "new_start": 2, "new_end": 7}],
}  # fmt: skip


READ = AttackResult.from_row(PAIR)


def test_a_row_reads_as_textattack_writes_it() -> None:
    # Taken from the file TextAttack 0.3.11 wrote for this pair.
    expected = (
        "[[[[Premise]]]]: the premise 0<SPLIT>new line<SPLIT>[[[[Hypothesis]]]]: a [[good]] film",
        "[[[[Premise]]]]: the premise 0<SPLIT>new line<SPLIT>[[[[Hypothesis]]]]: a [[Wgood]] film",
        0.2, 0.9, 1, 0, 1, 11, "Successful",
    )  # fmt: skip
    found = textattack_row(AttackView("deepwordbug", {"labels": ["no", "yes"]}, [READ]), READ)
    assert tuple(found) == COLUMNS
    assert tuple(found.values()) == tuple(
        pytest.approx(value) if isinstance(value, float) else value for value in expected
    )


def test_the_score_is_that_of_the_goal() -> None:
    goal = {"settings": {"goal": {"kind": "targeted", "target": "no"}}, "labels": ["no", "yes"]}
    found = textattack_row(AttackView("pwws", goal, [READ]), READ)
    assert (found["original_score"], found["perturbed_score"]) == (0.2, 0.9)


def test_insertions_and_deletions_are_marked_where_they_are(make_row: MakeRow) -> None:
    row = {
        **PAIR, "original": {"text": "a very good film"}, "perturbed": {"text": "a good big film"},
        "edits": [
            {"field": "text", "kind": "delete", "start": 2, "end": 6, "new_start": 2, "new_end": 2},
            {"field": "text", "kind": "insert", "start": 12, "end": 12, "new_start": 7, "new_end": 10},
        ],
    }  # fmt: skip
    read = AttackResult.from_row(row)
    found = textattack_row(AttackView("clare", {}, [read]), read)
    assert found["original_text"] == "a [[very]] good film"
    assert found["perturbed_text"] == "a good [[big]] film"


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+49 30 1234", "-lol", "@someone", "\t=1", "＝1", "'=1", "[[x]] y", "[[[[Text]]]]: =1", "=a\nb", "plain"],
)
def test_no_cell_is_a_formula_and_every_text_is_read_back(text: str, tmp_path: Path) -> None:
    row = {**PAIR, "original": {"review": text}, "perturbed": {"review": text + " x"}, "edits": []}
    view = AttackView("deepwordbug", {"labels": ["no", "yes"]}, [AttackResult.from_row(row)])
    export([view], tmp_path / "r.csv", "textattack-csv")
    with (tmp_path / "r.csv").open(newline="") as stream:
        cells = next(csv.DictReader(stream))
    assert tuple(cells) == COLUMNS
    for cell in (cells["original_text"], cells["perturbed_text"]):
        assert cell[0] not in "=+-@\t\r＝＋－＠"
    if "[[" not in text:  # TextAttack has no way to tell its own brackets from those of a text.
        read = read_textattack(tmp_path / "r.csv", ["Successful"])
        assert list(read.originals.values()) == [{"text": text}]
        assert [example.texts for example in read.data] == [{"text": text + " x"}]


def test_errors_and_time_outs_are_no_failed_attacks(run_folder: RunFolder, tmp_path: Path) -> None:
    views = read_run(run_folder).attacks
    assert export(views[:1], tmp_path / "rows.csv", "textattack-csv") == 200
    with (tmp_path / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream, quoting=csv.QUOTE_NONNUMERIC))
    summary = views[0].summary
    kinds = [row["result_type"] for row in rows]
    counts = {kind: kinds.count(kind) for kind in ("Successful", "Failed", "Skipped", "Error")}
    assert list(counts.values()) == [summary.succeeded, summary.failed, summary.skipped, summary.errors]
    assert counts["Error"] > 0
    assert set(rows[0]) == set(COLUMNS)


def test_several_attacks_in_one_file_are_told_apart(run_folder: RunFolder, tmp_path: Path) -> None:
    assert export(read_run(run_folder).attacks, tmp_path / "rows.csv", "textattack-csv") == 400
    with (tmp_path / "rows.csv").open(newline="") as stream:
        assert {row["attack"] for row in csv.DictReader(stream)} == {"deepwordbug", "pwws"}


def test_adversarial_texts_are_read_back_as_data(run_folder: RunFolder, tmp_path: Path) -> None:
    view = read_run(run_folder).attacks[0]
    assert export([view], tmp_path / "adversarial.jsonl", "jsonl") == view.summary.succeeded
    data = load_data(tmp_path / "adversarial.jsonl").evaluation()
    assert data.labels == ("negative", "positive")
    assert [example.texts["text"] for example in data] == [each.perturbed["text"] for each in view.successes]
    assert [example.label for example in data] == [each.label for each in view.successes]
    first = json.loads((tmp_path / "adversarial.jsonl").read_text().splitlines()[0])
    assert first["original_text"] == view.successes[0].original["text"]
    assert (first["id"], first["attack"]) == (view.successes[0].id, "deepwordbug")


def test_adversarial_pairs_are_read_back_as_pairs(tmp_path: Path) -> None:
    view = AttackView("pwws", {"labels": ["no", "yes"]}, [READ])
    (row,) = adversarial(view)
    assert row["original_hypothesis"] == "a good film"
    export([view], tmp_path / "pairs.jsonl", "jsonl")
    data = load_data(tmp_path / "pairs.jsonl").evaluation()
    assert data.fields == ("premise", "hypothesis")
    assert data[0].texts == PAIR["perturbed"]


def test_the_format_comes_from_the_name_or_is_asked_for() -> None:
    assert format_of("a/b.CSV") == "textattack-csv"
    assert format_of("b.jsonl") == "jsonl"
    assert format_of("results", "jsonl") == "jsonl"
    with pytest.raises(UsageError, match=r"\.csv or \.jsonl"):
        format_of("results.xlsx")
    with pytest.raises(UnknownName, match="textattack-csv"):
        format_of("b.csv", "textattack_csv")


words = st.text(st.sampled_from("abc é!'.,"), min_size=1, max_size=6).filter(lambda word: not word.isspace())


@given(st.lists(words, min_size=1, max_size=6), st.data())
def test_marks_come_off_again(parts: list[str], data: st.DataObject) -> None:
    text, changed = " ".join(parts), data.draw(st.integers(0, len(parts) - 1))
    start = len(" ".join(parts[:changed])) + (changed > 0)
    marked = _bracket(text, [(start, start + len(parts[changed]))])
    assert parse_printed(_print_fields({"text": marked})) == {"text": text}
    pair = {"premise": marked, "hypothesis": text}
    assert parse_printed(_print_fields(pair)) == {"premise": text, "hypothesis": text}


def test_line_breaks_come_back() -> None:
    assert parse_printed(_print_fields({"text": "one\ntwo"})) == {"text": "one\ntwo"}
    assert parse_printed(_print_fields({"a": "one\ntwo", "b": "three"})) == {"a": "one\ntwo", "b": "three"}
