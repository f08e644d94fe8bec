"""Files of adversarial texts beside their originals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isthmus.core.errors import DataError
from isthmus.data.adversarial import is_textattack, open_paired, parse_printed, read_textattack


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_fields_without_an_original_were_left_as_they_are(tmp_path: Path) -> None:
    """AdvGLUE's shape: only what was changed has its original beside it."""
    file = write(
        tmp_path / "dev_mnli.jsonl",
        [
            {"premise": "so golden space", "hypothesis": "plenty .", "label": 2, "original_premise": "so little space"},
            {"premise": "boats lie", "hypothesis": "pragmatic", "label": 1, "original_hypothesis": "interesting"},
            {"premise": "written by hand", "hypothesis": "nobody changed this", "label": 0},
        ],
    )
    read = open_paired(file).read("all")
    assert [dict(texts) for texts in read.originals.values()] == [
        {"premise": "so little space", "hypothesis": "plenty ."},
        {"premise": "boats lie", "hypothesis": "interesting"},
    ]
    assert [example.id for example in read.data][:2] == list(read.originals)
    assert len(read.data) == 3


def test_the_columns_of_an_export_are_known_whatever_they_are_called(tmp_path: Path) -> None:
    row = {"claim": "a", "evidence": "b", "label": "yes", "original_claim": "c", "original_evidence": "b"}
    file = write(tmp_path / "adv.jsonl", [{**row, "id": "test:0", "attack": "pwws"}])
    read = open_paired(file).read("all")
    assert read.data.fields == ("claim", "evidence")
    assert dict(read.originals["all:0"]) == {"claim": "c", "evidence": "b"}


def test_a_file_without_originals_has_none(tmp_path: Path) -> None:
    file = write(tmp_path / "plain.jsonl", [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}])
    assert open_paired(file).read("all").originals == {}


def test_a_bracket_of_the_text_itself_stays() -> None:
    assert parse_printed("see [1] and [[a]]], the [[end]]") == {"text": "see [1] and a], the end"}


HEADER = "original_text,perturbed_text,original_score,original_output,ground_truth_output,num_queries,result_type\n"


def test_a_csv_as_textattack_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text(
        HEADER + "a [[good]] film,a [[gud]] film,0.1,1.0,1.0,5,Successful\n"
        "dull,dull,0.9,1.0,0.0,1,Skipped\nfine,fine,0.2,1,1,9,Failed\nx,y,0.2,1,,9,Successful\n"
    )
    assert is_textattack(file)
    won = read_textattack(file, ["Successful"])
    assert [(example.texts, example.label) for example in won.data] == [({"text": "a gud film"}, 1)]
    assert dict(won.originals[won.data[0].id]) == {"text": "a good film"}
    assert [row.reason for row in won.data.rejected] == [
        f"{file}, line 5: ground_truth_output is '', not a class number"
    ]
    assert len(read_textattack(file, ["Successful", "Failed"]).data) == 2


def test_rows_of_two_attacks_on_other_fields_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mixed.csv"
    file.write_text(
        HEADER
        + "a,b,0,0,0,1,Successful\n[[[[A]]]]: x<SPLIT>[[[[B]]]]: y,[[[[A]]]]: x<SPLIT>[[[[B]]]]: z,0,0,0,1,Successful\n"
    )
    with pytest.raises(DataError, match="some rows have the fields"):
        read_textattack(file, ["Successful"])


def test_other_files_are_none_of_textattacks(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{"text": "a", "label": 1}])
    assert not is_textattack(file)
    assert not is_textattack(tmp_path / "missing.csv")
    assert not is_textattack("some/name")
