"""What a report says of a randomised model."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isthmus import load_data
from isthmus.report.attack.export import export
from isthmus.report.attack.randomised import describe_judgement, draw_sweep, section, stability, sweeps
from isthmus.report.attack.terminal import attack_table, footnotes
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder


@pytest.fixture
def randomised(run_folder: RunFolder, add_attack: Callable[..., None], make_row: Callable[..., Any]) -> RunFolder:
    """Ten texts seem to fool the model and seven do; two make it decline."""
    outcomes = ["succeeded"] * 7 + ["failed"] * 11 + ["abstained"] * 2
    for number, draws in enumerate((1, 5, 10)):
        rows = [make_row(at, outcome, random.Random(at)) for at, outcome in enumerate(outcomes)]
        for at, row in enumerate(rows):
            row["clean"] = {"draws": 20, "right": 18 if at < 18 else 10, "abstained": 0, "low": 0.1, "high": 0.9}
        rows[-1]["prediction_before"] = 1 - rows[-1]["label"]  # declined as it was; the other after the attack
        rows[-2]["prediction_before"] = rows[-2]["label"]
        for at, row in enumerate(rows[:10]):
            row["fresh"] = {"draws": 20, "reached": 16 if at < 7 else 4, "abstained": 0, "low": 0.1, "high": 0.9}
        settings = {"attack": "leet", "goal": {"kind": "untargeted"}, "victim": {"draws": draws} if draws > 1 else {}}
        add_attack(run_folder, "leet" + (f"@{number:08x}" if number else ""), rows, settings=settings)
    return run_folder


def shown(content: Any) -> str:
    stream = io.StringIO()
    Console(file=stream, width=80).print(content)
    return stream.getvalue()


def test_figures_of_fresh_draws_are_told(randomised: RunFolder) -> None:
    (view, *_) = [view for view in read_run(randomised).attacks if view.attack == "leet"]
    told = describe_judgement(view)
    assert "of 10 examples that seemed to fool this randomised model, 7 did" in told
    assert f"{(7 * 0.8 + 3 * 0.2) / 10:.2f}" in told
    assert "it abstained on 2 of 20, 1 clean and 1 after the attack" in told
    assert f"is correct on {100 * (18 * 0.9 + 2 * 0.5) / 20:.1f} %" in told


def test_abstentions_have_a_column_where_there_are_any(randomised: RunFolder) -> None:
    run = read_run(randomised)
    text = shown(attack_table(run))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    first, second = (next(line for line in text.splitlines() if each in line) for each in ("1 clean", "1 after"))
    assert first.startswith("leet")
    assert second.startswith("n 20")
    assert "on which the model abstained, clean (so not attacked)" in " ".join(shown(footnotes(run)).split())
    page = render(run)
    assert "abstained</th>" in page
    assert "1 clean<br>1 after</span></td>" in page


def test_how_the_model_was_asked_stands_with_the_attack(randomised: RunFolder) -> None:
    run = read_run(randomised)
    told = " ".join(shown(footnotes(run)).split())
    assert told.count("inference options") == 2
    assert "leet@00000001: another draw for every query, 2 restarts, inference options draws=5" in told
    page = render(run)
    assert "20 examples, another draw for every query, 2 restarts, inference options draws=5" in page
    assert "2 restarts, inference options draws=10" in page


def test_no_column_where_nothing_was_abstained(run_folder: RunFolder) -> None:
    run = read_run(run_folder)
    assert "stained" not in shown(attack_table(run))
    assert "bstained" not in shown(footnotes(run))
    assert "abstained" not in render(run)


def test_both_sides_are_drawn_in_one_picture(randomised: RunFolder) -> None:
    run = read_run(randomised)
    drawn = stability(run.attacks)
    assert "clean, 20" in drawn
    assert "adversarial, 10" in drawn
    assert "leet: clean mean 0.86 of 20 examples, adversarial mean 0.38 of 10 examples" in drawn
    page = render(run)
    assert "clean texts (outline)" in page


def test_where_nothing_seemed_to_fool_it_the_clean_side_is_still_told(
    run_folder: RunFolder, add_attack: Callable[..., None], make_row: Callable[..., Any]
) -> None:
    rows = [make_row(at, "failed", random.Random(at)) for at in range(8)]
    for row in rows:
        row["clean"] = {"draws": 20, "right": 20, "abstained": 0, "low": 0.83, "high": 1.0}
    add_attack(run_folder, "leet", rows)
    (view,) = [view for view in read_run(run_folder).attacks if view.attack == "leet"]
    assert "no example seemed to fool this randomised model" in describe_judgement(view)
    assert "adversarial" not in stability([view])
    assert "clean, 8" in stability([view])


def test_both_probabilities_are_exported(randomised: RunFolder, tmp_path: Path) -> None:
    (view, *_) = [view for view in read_run(randomised).attacks if view.attack == "leet"]
    assert export([view], tmp_path / "rows.csv", "textattack-csv") == 20
    with (tmp_path / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert (rows[0]["success_probability"], rows[0]["clean_probability"]) == ("0.8", "0.9")
    assert (rows[0]["success_low"], rows[0]["clean_high"]) == ("0.1", "0.9")
    assert (rows[15]["success_probability"], rows[15]["clean_probability"]) == ("", "0.9")
    export([view], tmp_path / "adversarial.jsonl", "jsonl")
    first = json.loads((tmp_path / "adversarial.jsonl").read_text().splitlines()[0])
    assert (first["success_probability"], first["clean_probability"]) == (0.8, 0.9)
    # They are still read back as data.
    data = load_data(tmp_path / "adversarial.jsonl").evaluation()
    assert data.fields == ("text",)
    assert len(data) == 7


def test_a_deterministic_model_has_no_such_section(run_folder: RunFolder) -> None:
    run = read_run(run_folder)
    assert section(run, str) is None
    assert not any(map(describe_judgement, run.attacks))
    assert "Randomised model" not in render(run)


def test_attacks_that_differ_in_draws_alone_are_a_sweep(randomised: RunFolder) -> None:
    run = read_run(randomised)
    (line,) = sweeps(run.attacks).values()
    assert list(line) == [1, 5, 10]
    assert draw_sweep(run.attacks).count("<svg") == 1
    assert stability(run.attacks).count("<svg") == 1
    page = render(run)
    assert "Randomised model" in page
    assert "averaged over N draws" in page
