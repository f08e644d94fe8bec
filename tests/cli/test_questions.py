"""Question answering from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import question_toys

from isthmus.data import load_data
from isthmus.models import load_model
from isthmus.summaries.questions import evaluate_answers

Command = Callable[..., Any]
QUICK = ("--epochs", 2, "--batch-size", 8, "--lr", "1e-2", "--precision", "fp32", "--device", "cpu", "--quiet")


def write_questions(path: Path, n: int) -> Path:
    rows: list[dict[str, Any]] = []
    for example in question_toys.dataset("all", n):
        answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.label]  # type: ignore[union-attr]
        rows.append({"id": example.id, **example.fields, "answers": answers})
    rows.append({"id": "lost", "question": "who", "context": "nobody", "answers": [], "is_impossible": True})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def backbone(place: Path) -> Path:
    question_toys.answerer().save(place / "backbone")
    return place / "backbone"


def test_a_run_that_answers_questions(isthmus: Command, place: Path, backbone: Path) -> None:
    data = write_questions(place / "questions.jsonl", 40)
    command = ("train", "--task", "qa", "--data", data, "--backbone", backbone, *QUICK, "--out", "run")
    windows = ("-S", "max_tokens=16", "-S", "stride=4")
    ended = isthmus(*command, *windows, "--json")
    assert ended.code == 0, ended.err
    assert ended.json["rejected"] == 1
    assert 0 <= ended.json["dev_exact_match"] <= ended.json["dev_f1"] <= 1
    record = json.loads((place / "run" / "run.json").read_text())
    assert record["data"]["options"] == {"task": "qa"}
    assert record["data"]["sizes"] == {"train": 32, "dev": 4, "test": 4}
    assert record["training"]["warmup"] == 0.0
    model = load_model(place / "run")
    assert (model.max_tokens, model.task.stride) == (16, 4)  # type: ignore[union-attr]
    found = evaluate_answers(model, load_data(data, "all", task="qa"))
    assert found.overall.n == 40
    assert found.rejected == 1
    again = isthmus(*(part for part in command if part != "--quiet"), *windows)
    assert again.code == 0
    assert "nothing was trained" in again.err
    assert "1 row of the data could not be used" in again.err
    assert "impossible to answer" in again.err
    assert "development F1" in again.out
    assert "isthmus evaluate" in again.out
    page = isthmus("report", "run")
    assert page.code == 0
    assert "development F1" in (place / "run" / "report.html").read_text()
    attacked = isthmus("attack", "run", "--attack", "deepwordbug", "--n", 4)
    assert attacked.code == 2
    assert "answers questions, and attacks are for classifiers" in attacked.err
    assert not (place / "run" / "attacks").exists()
    foreign = isthmus("attack", "run/model", "--data", "reviews.csv", "--attack", "deepwordbug", "--n", 4)
    assert foreign.code == 2
    assert "this model answers questions" in foreign.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--task", "qa", "--data", "reviews.csv"), "it has the columns text, label", id="labels-as-qa"),
        pytest.param(("--data", "questions.jsonl"), "--task qa", id="qa-as-labels"),
        pytest.param(("--task", "vision", "--data", "reviews.csv"), "no task named 'vision'", id="unknown-task"),
        pytest.param(
            ("--task", "qa", "--data", "questions.jsonl", "--backbone", "lstm"), "cannot answer questions", id="lstm"
        ),
        pytest.param(("--task", "qa", "--data", "questions.jsonl", "--labels", "a,b"), "no labels", id="labels"),
        pytest.param(
            ("--task", "qa", "--data", "questions.jsonl", "--defence", "vib"), "one vector per text", id="vib"
        ),
    ],
)
def test_what_does_not_fit_is_said(
    isthmus: Command, place: Path, backbone: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_questions(place / "questions.jsonl", 20)
    default = () if "--backbone" in arguments else ("--backbone", backbone)
    ended = isthmus("train", *arguments, *default, *QUICK, "--out", "run")
    assert ended.code == 2
    assert said in ended.err
    assert not (place / "run").exists(), "the corrected command may take the same folder"
