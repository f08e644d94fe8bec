"""`isthmus.evaluate`: sets, splits, draws, latency and questions, by name and at hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import question_toys

import isthmus
from isthmus.cli.app import run as command
from isthmus.core.errors import UnknownName, UsageError

ROWS = [("a dull plot", "bad"), ("a fine film", "good"), ("a stale joke", "bad"), ("a warm scene", "good")]
LABELS = ("bad", "good")
evaluate: Any = isthmus.evaluate  # Texts and questions have results of their own: each test knows which it asks for.


def classify(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts]


def write_csv(path: str, rows=ROWS) -> str:
    Path(path).write_text("".join(["text,label\n", *(f"{text},{label}\n" for text, label in rows)]))
    return path


def test_several_sets_go_into_the_run_as_the_command_line_writes_them(run: str, capsys) -> None:
    shutil.copytree(run, "twin")
    one, two = write_csv("one.csv"), write_csv("two.csv", ROWS[:2])
    typed = ["--on", one, "--on", two, "--draws", "3", "--n", "3", "--latency", "0", "--quiet", "--device", "cpu"]
    assert command(["evaluate", run, *typed, "--no-label-check"]) == 0
    capsys.readouterr()
    found = evaluate("twin", [one, two], draws=3, n=3, device="cpu", label_check=False)
    assert list(found.sets) == ["one", "two"]
    assert len(found) == 3 + 2
    assert found.summary().n == 5
    assert [row["set"] for row in found.rows()] == ["one"] * 3 + ["two"] * 2
    for name in ("one", "two"):
        files = [Path(folder, "evaluations", f"{name}.jsonl").read_bytes() for folder in (run, "twin")]
        assert files[0] == files[1]
        headers = [json.loads(Path(folder, "evaluations", f"{name}.json").read_text()) for folder in (run, "twin")]
        assert headers[0]["hash"] == headers[1]["hash"]
        figures = headers[1]["summary"]
        assert found.sets[name].summary().to_json() == figures
    assert isthmus.open_run("twin").evaluations.keys() == {"one", "two"}


def test_splits_one_several_or_all(run: str) -> None:
    one = evaluate(run, split="dev", device="cpu")
    assert len(one) == 8
    several = evaluate(run, split=["dev", "test"], device="cpu")
    assert [len(part) for part in several.sets.values()] == [8, 8]
    assert several.sets.keys() == evaluate(run, split="dev,test", device="cpu").sets.keys()
    # A split that is named twice counts once: twice as many texts would only seem to narrow the interval.
    assert len(evaluate(run, split=["dev", "test", "dev"], device="cpu")) == len(several)
    every = evaluate(run, split="all", device="cpu")
    assert len(every.sets) == 3
    # The same of data at hand.
    data = isthmus.load_data({"train": ROWS, "dev": ROWS[:2], "test": ROWS[2:]})
    at_hand = evaluate(classify, data, split=["dev", "test"], labels=LABELS)
    assert [len(part) for part in at_hand.sets.values()] == [2, 2]
    assert len(evaluate(classify, data, labels=LABELS)) == 2
    with pytest.raises(UnknownName, match="devel"):
        evaluate(classify, data, split="devel", labels=LABELS)


def test_latency_and_cost_are_found_where_they_are_asked_for(run: str) -> None:
    assert evaluate(run, device="cpu").speed is None
    for found in (
        evaluate(run, device="cpu", latency=4, price_per_hour=2.0),
        evaluate(classify, ROWS, labels=LABELS, latency=4, price_per_hour=2.0),
    ):
        assert found.speed is not None
        assert found.speed.single == 4
        assert found.speed.p50.estimate > 0
        assert found.cost_per_1000 == pytest.approx(2 / 3.6 / found.speed.texts_per_second.estimate)
    # Nobody is asked again and again only to be timed.
    assert evaluate(classify, ROWS, labels=LABELS, latency=None).speed is None


def test_a_stochastic_model_is_averaged_over_draws() -> None:
    asked = []

    def moody(texts):
        asked.append(len(texts))
        right = np.random.default_rng(len(asked)).uniform(0.3, 0.9, len(texts))
        return np.stack([right, 1 - right], axis=1)

    found = evaluate(moody, ROWS, labels=LABELS, draws=4, victim={"stochastic": True})
    assert isinstance(found, isthmus.EvaluationResults)
    assert len(asked) >= 4
    assert set(found[0].scores) == {"sample", "average"}
    assert found.headline == "sample"
    right = [np.argmax(each.scores["average"]) == each.label for each in found]
    assert found.summary("average").accuracy.estimate == pytest.approx(np.mean(right))
    with pytest.raises(UnknownName, match="median"):
        found.summary("median")


def test_the_texts_of_an_attack_are_a_set(run: str) -> None:
    attacked = isthmus.attack(run, "deepwordbug", n=8, device="cpu", label_check=False)
    won = [each for each in attacked if each.outcome == "succeeded"]
    assert won
    rows = f"{run}/attacks/deepwordbug.jsonl"
    for model in (run, isthmus.open_run(run).load_model("cpu"), classify):
        found = evaluate(model, rows, device="cpu", label_check=False, labels=LABELS)
        assert [each.id for each in found] == [each.id for each in won]
        assert found[0].original is not None
        assert found.summary().original is not None
        assert found.summary().original.n == len(won)
        assert found.summary().difference
    everything = evaluate(classify, rows, rows="all", labels=LABELS)
    assert len(everything) == sum(each.outcome in ("succeeded", "failed") for each in attacked)


def test_a_function_and_a_run_give_the_same_answers(run: str) -> None:
    data = isthmus.open_run(run).load_data()
    written = evaluate(run, device="cpu", label_check=False)
    beside = evaluate(isthmus.open_run(run).load_model("cpu"), data, device="cpu")
    assert {each.id: each.scores for each in beside} == {each.id: each.scores for each in written}
    assert beside.summary() == written.summary()
    with pytest.raises(UsageError, match="data that have names"):
        evaluate(run, ROWS, out="elsewhere")


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    question_toys.answerer().save("model")
    lines = []
    for example in question_toys.dataset("dev", 12):
        assert not isinstance(example.label, int)
        answers = [{"text": each.text, "answer_start": each.start} for each in example.label]
        lines.append({"id": example.id, **example.fields, "answers": answers})
    Path("toy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_questions_have_exact_match_and_f1(questions: Path, capsys) -> None:
    found = evaluate("model", "toy.jsonl", task="qa", out="answers", device="cpu")
    assert type(found).__name__ == "QuestionResults"
    assert len(found) == 12
    figures = found.summary()
    assert figures.overall is not None
    assert figures.overall.f1.low <= figures.overall.f1.estimate <= figures.overall.f1.high
    assert figures.overall.exact_match.estimate == pytest.approx(
        sum(float(each.exact_match) for each in found) / 12, abs=1e-5
    )
    # The command line finds every row there, and the run has them.
    typed = ["--on", "toy.jsonl", "--task", "qa", "--out", "answers", "--latency", "0", "--quiet", "--device", "cpu"]
    assert command(["evaluate", "model", *typed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])
    opened = isthmus.open_run("answers").evaluations["toy"]
    assert opened.summary() == figures
    assert list(opened) == list(found)
    # The same at hand.
    model = question_toys.answerer()
    for beside in (
        evaluate(model, "toy.jsonl", device="cpu"),
        evaluate(model, isthmus.load_data("toy.jsonl", task="qa"), device="cpu"),
    ):
        assert beside.predictions == found.predictions
        assert beside.summary().to_json() == figures.to_json()
    assert found[0].question in found.to_html()
    assert "F1" in repr(found)
    assert list(found.to_dataframe()["prediction"]) == list(found.predictions.values())
    with pytest.raises(UsageError, match="a part of a set"):
        found[:3].summary()
    both = evaluate(model, ["toy.jsonl", "toy.jsonl"], device="cpu")
    assert list(both.sets) == ["toy", "toy-2"]
    with pytest.raises(UsageError, match="each of `sets`"):
        both.summary()
    with pytest.raises(UsageError, match="does not answer questions"):
        evaluate(classify, isthmus.load_data("toy.jsonl", task="qa"))
