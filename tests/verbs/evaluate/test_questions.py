"""Questions evaluated through the verb: figures, variants, predictions, and a run that was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import question_toys as toys

from isthmus.core.answer_scores import score
from isthmus.core.errors import UnknownName, UsageError
from isthmus.inference.question_answering import answer
from isthmus.report.evaluation.questions import question_lines
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.verbs.evaluate import EvaluateRequest, SetRequest, evaluate
from isthmus.verbs.evaluate.questions import predictions


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers questions, and questions with a variant each and one without an answer."""
    folder = tmp_path_factory.mktemp("questions")
    toys.answerer().save(folder / "model")
    lines: list[dict[str, Any]] = []
    for example in toys.dataset("dev", 20):
        row = {
            "id": example.id,
            **example.fields,
            "answers": [{"text": each.text, "answer_start": each.start} for each in example.label],  # type: ignore[union-attr]
        }
        lines += [row, {**row, "id": f"{example.id}-high", "context": f"{row['context']} the film was very dull"}]
    lines.append({"id": "none", "question": "film", "context": "a film", "answers": [{"text": "z", "answer_start": 0}]})
    (folder / "addsent.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def request(place: Path, out: str, **more: Any) -> EvaluateRequest:
    sets = SetRequest(on=(str(place / "addsent.jsonl"),))
    return EvaluateRequest(str(place / "model"), sets, task="qa", out=place / out, device="cpu", **more)


def test_the_figures_are_those_of_the_answers(place: Path) -> None:
    (outcome,) = evaluate(request(place, "a")).outcomes
    summary = outcome.header["summary"]
    assert (summary["n"], summary["answered"], summary["errors"]) == (41, 40, 1)
    examples = list(toys.dataset("dev", 20))
    found = [
        score(each.text, [true.text for true in example.label])  # type: ignore[union-attr]
        for each, example in zip(answer(toys.answerer(), examples), examples, strict=True)
    ]
    assert summary["questions"]["original"]["n"] == 20
    assert summary["questions"]["original"]["f1"]["estimate"] == pytest.approx(sum(f.f1 for f in found) / 20, abs=1e-5)
    assert summary["questions"]["worst"]["n"] == 20
    assert summary["questions"]["overall"]["n"] == 40
    written = predictions(outcome.results)
    assert len(written) == 40
    assert set(written) == {result.id for result in outcome.results} - {"all:40"}
    assert "does not occur" in summary["reasons"][0]["reason"]


def test_an_interrupted_group_ends_with_the_same_rows(place: Path) -> None:
    (whole,) = evaluate(request(place, "whole")).outcomes
    content = whole.file.rows_path.read_bytes()
    evaluate(request(place, "torn"))
    torn = place / "torn/evaluations/addsent.jsonl"
    torn.write_bytes(b"".join(content.splitlines(keepends=True)[:17]) + b'{"id": "torn')
    (again,) = evaluate(request(place, "torn")).outcomes
    assert again.made == 41 - 17
    assert torn.read_bytes() == content
    (read,) = evaluate(request(place, "torn")).outcomes
    assert (read.made, read.header["summary"]) == (0, whole.header["summary"])


def test_variants_are_shown_and_judged_by_the_worst(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from isthmus.cli.gate import FAILED, PrintedGate

    report = evaluate(request(place, "shown"))
    view = EvaluationView("addsent", report.outcomes[0].header)
    assert [line.name for line in question_lines(view)] == ["addsent", "original questions", "worst variant of each"]
    assert view.rates["f1"].estimate == view.header["summary"]["questions"]["worst"]["f1"]["estimate"]
    assert PrintedGate({"f1": 0.99}).print_evaluations(Console(quiet=True), [view]) == FAILED
    with pytest.raises(UnknownName, match="rate of addsent"):
        PrintedGate({"accuracy": 0.5}).print_evaluations(Console(quiet=True), [view])
    page = render(read_run(report.folder))
    assert "worst variant of each" in page
    assert "1 of 41 questions could not be used" in page
    assert "Reliability" not in page


def test_models_and_tasks_must_fit(place: Path) -> None:
    import training_toys

    training_toys.classifier().save(place / "classifier")
    sets = SetRequest(on=(str(place / "addsent.jsonl"),))
    with pytest.raises(UsageError, match="does not answer questions"):
        evaluate(EvaluateRequest(str(place / "classifier"), sets, task="qa", out=place / "b", device="cpu"))
    with pytest.raises(UsageError, match="fp32"):
        evaluate(request(place, "c", precision="bf16"))


def test_the_command_line(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from isthmus.cli.app import run

    monkeypatch.chdir(place)
    command: Callable[..., int] = lambda *more: run(["evaluate", "model", "--out", "cli", "--device", "cpu", *more])  # noqa: E731
    assert command("--task", "qa", "--on", "addsent.jsonl", "--predictions", "answers.json", "--json", "-q") == 0
    figures = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert figures["f1"] == figures["questions"]["overall"]["f1"]["estimate"]
    assert len(json.loads((place / "answers.json").read_text())) == 40
    assert command("--task", "qa", "--on", "addsent.jsonl", "--fail-under", "accuracy=0.5") == 2
    assert "no rate of addsent" in capsys.readouterr().err
    assert command("--task", "images", "--on", "addsent.jsonl") == 2
