"""Evaluations in the terminal and on the page, from headers that are made up."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from rich.console import Console

from isthmus.core.files import write_json
from isthmus.report.evaluation.figure import group_panels, reliability
from isthmus.report.evaluation.speed import speed_lines
from isthmus.report.evaluation.terminal import evaluation_notes, evaluation_table, speed_table
from isthmus.report.evaluation.view import EvaluationView, read_evaluations
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.evaluated import Evaluated
from isthmus.runs.folder import SCHEMA, RunFolder
from isthmus.summaries import evaluation as figures

LABELS = ["negative", "positive"]


def summarise(rows: list[dict[str, Any]], *more: Any) -> dict[str, Any]:
    results = [Evaluated.from_row({"outcome": "right", **row}) for row in rows]
    return figures.summarise_texts(results, *more).to_json()


def rows(n: int, ways: tuple[str, ...], seed: int, original: bool = False) -> list[dict[str, Any]]:
    rng, found = random.Random(seed), []
    for number in range(n):

        def scores() -> dict[str, list[float]]:
            p = {way: round(rng.uniform(0.2, 0.99), 4) for way in ways}
            return {way: [1 - value, value] for way, value in p.items()}

        row: dict[str, Any] = {"id": f"test:{number}", "label": 1, "scores": scores()}
        found.append({**row, "original": {"scores": scores()}} if original else row)
    return found


def header(
    ways: tuple[str, ...] = ("model",),
    *,
    original: bool = False,
    kind: str = "data",
    errors: int = 0,
    headline: str = "",
    **more: Any,
) -> dict[str, Any]:
    first = headline or ways[0]
    made = rows(60, ways, 1, original) + [{"id": str(n), "label": 1, "reason": "too long"} for n in range(errors)]
    about = {"name": "set", "kind": kind, "attack": "pwws", "attacked_model": "first", "rows": "successes"}
    return {
        "schema": SCHEMA, "hash": "0" * 8, "labels": LABELS, "ways": list(ways), "headline": first, "draws": 12,
        "set": about, "summary": summarise(made, LABELS, ways, first), "command": "isthmus evaluate runs/demo",
        **more,
    }  # fmt: skip


def shown(views: list[EvaluationView], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(evaluation_table(views))
    console.print(evaluation_notes(views))
    return console.file.getvalue()  # type: ignore[attr-defined]


THREE = ("mean", "sample", "average")


def test_a_stochastic_model_is_shown_in_all_three_ways() -> None:
    view = EvaluationView("reviews-test", header(THREE))
    assert [line.name for line in view.lines()] == ["reviews-test", "one draw", "average of 12"]
    assert view.lines()[0].note == "n 60, mean code"
    text = shown([view])
    assert all(name in text for name in ("mean code", "one draw", "average of 12"))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert [name for name, _ in view.panels()] == ["mean code", "one draw", "average of 12"]


def test_the_way_of_the_saved_model_comes_first() -> None:
    view = EvaluationView("a", header(("mean", "sample"), headline="sample"))
    assert view.ways == ("sample", "mean")


def test_an_adversarial_set_stands_beside_its_originals() -> None:
    view = EvaluationView("first-pwws", header(original=True, kind="attack"))
    assert [line.name for line in view.lines()] == ["first-pwws", "the originals"]
    (sentence,) = view.differences()
    assert "compared with the same 60 originals" in sentence
    assert "McNemar p" in sentence
    assert view.origin == "first-pwws: successes of pwws on first."
    assert [name for name, _ in view.panels()] == ["adversarial", "the originals"]
    assert "first-pwws: successes of pwws on first" in shown([view])


def test_what_had_no_answer_is_said() -> None:
    view = EvaluationView("a", header(errors=3))
    assert view.errors == 3
    assert view.lines()[0].note == "n 60"
    assert (
        view.warnings()[0]
        == "a: 3 of 63 examples had no answer and are excluded from all figures. Most frequent: too long"
    )


def test_an_evaluation_under_way_has_no_line() -> None:
    view = EvaluationView("a", {key: value for key, value in header().items() if key != "summary"})
    assert view.warnings() == ["a is not finished: run the same command to resume."]
    assert "not finished" in shown([view])


def test_many_classes_are_cut_short() -> None:
    labels = [f"class {n}" for n in range(20)]
    made = [{"id": str(n), "label": n, "scores": {"model": [float(n == m) for m in range(20)]}} for n in range(20)]
    summary = summarise(made, labels, ["model"], "model")
    view = EvaluationView("a", {**header(), "labels": labels, "summary": summary})
    assert view.classes().endswith("and 12 more classes")


@pytest.fixture
def evaluated(run_folder: RunFolder) -> RunFolder:
    run_folder.evaluations_path.mkdir()
    for key, value in {
        "reviews-test": header(kind="own"),
        "other": header(),
        "first-pwws": header(original=True, kind="attack"),
        "drawn": header(THREE),
    }.items():
        write_json(run_folder.evaluations_path / f"{key}.json", value)
    return run_folder


def test_the_page_shows_every_set_and_its_diagram(evaluated: RunFolder) -> None:
    run = read_run(evaluated)
    assert run.evaluations[0].key == "reviews-test"
    page = render(run)
    assert (
        page.count("Reliability diagrams.") == 4
    )  # the two plain sets share a figure, and the attacked texts have one
    for words in ("Evaluations", "the originals", "one draw", "average of 12", "McNemar", "isthmus evaluate runs/demo"):
        assert words in page
    assert render(read_run(evaluated)) == page


def test_plain_sets_share_a_figure(evaluated: RunFolder) -> None:
    groups = group_panels(read_evaluations(evaluated))
    assert [[view.key for view in group] for group in groups] == [["reviews-test", "other"], ["drawn"], ["first-pwws"]]
    svg = reliability(groups[0])
    assert "reviews-test" in svg
    assert "ECE" in svg
    assert svg.startswith("<svg")


def test_a_run_without_evaluations_has_no_such_section(run_folder: RunFolder) -> None:
    assert "Evaluations" not in render(read_run(run_folder))


def test_a_nasty_name_is_harmless(evaluated: RunFolder, nasty: str) -> None:
    value = header(kind="attack", original=True, suspicion=nasty)
    value["set"] = {"kind": "attack", "attack": nasty, "attacked_model": nasty}
    value["labels"] = [nasty, "positive"]
    value["summary"] = summarise(rows(20, ("model",), 1, True), value["labels"], ["model"], "model")
    write_json(evaluated.evaluations_path / "nasty.json", value)
    page = render(read_run(evaluated))
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "\x1b" not in shown([EvaluationView("a", value)])


SPEED = {
    "p50_s": {"estimate": 0.0123, "low": 0.0119, "high": 0.0131},
    "p95_s": {"estimate": 0.031, "low": 0.02, "high": None},
    "single_texts": 50,
    "texts_per_second": {"estimate": 250.0, "low": 240.0, "high": 261.0},
    "batch_texts": 256,
    "passes_per_text": 22.6,
    "second_step": {"estimate": 0.3, "low": 0.25, "high": 0.36},
}


def test_speed_stands_in_a_table_of_its_own(run_folder: RunFolder) -> None:
    timed = EvaluationView("reviews-test", header(speed=SPEED, price_per_hour=3.6))
    console = Console(file=io.StringIO(), width=80, no_color=True)
    console.print(speed_table([timed, EvaluationView("other", header())]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "other" not in text
    for part in ("12.3 ms", "11.9–13.1, n 50", "31.0 ms", "over 20.0", "250", "240–261", "22.6", "30.0 %", "25.0–36.0"):
        assert part in text
    # 3.6 an hour are 0.001 a second, in which 250 texts are read.
    assert timed.speed is not None
    assert timed.cost_per_1000 == pytest.approx(0.004)
    assert "0.004" in text
    write_json(run_folder.path / "evaluations/reviews-test.json", header(speed=SPEED, price_per_hour=3.6))
    page = render(read_run(run_folder))
    assert 'id="speed"' in page
    assert "cost of<br>1,000" in page
    assert "at the given price per hour" in page


def test_what_is_not_known_has_no_column(run_folder: RunFolder) -> None:
    bare = {**SPEED, "passes_per_text": None, "second_step": None}
    assert speed_lines([EvaluationView("a", header(speed=bare))]).headings == ("p50", "p95", "examples\nper s")
    assert not speed_lines([EvaluationView("a", header())]).lines
    write_json(run_folder.path / "evaluations/reviews-test.json", header())
    assert 'id="speed"' not in render(read_run(run_folder))
