"""What a report says of a randomised model."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.report.page import render
from isthmus.report.randomised import section, sentence, stability, sweep, sweeps
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder


@pytest.fixture
def randomised(run_folder: RunFolder, add_attack: Callable[..., None], make_row: Callable[..., Any]) -> RunFolder:
    """Ten texts seem to fool the model and seven do; two make it decline."""
    outcomes = ["succeeded"] * 7 + ["failed"] * 11 + ["abstained"] * 2
    for number, draws in enumerate((1, 5, 10)):
        rows = [make_row(at, outcome, random.Random(at)) for at, outcome in enumerate(outcomes)]
        for at, row in enumerate(rows[:10]):
            row["fresh"] = {"draws": 20, "reached": 16 if at < 7 else 4, "abstained": 0, "low": 0.1, "high": 0.9}
        settings = {"attack": "leet", "goal": {"kind": "untargeted"}, "victim": {"draws": draws} if draws > 1 else {}}
        add_attack(run_folder, "leet" + (f"@{number:08x}" if number else ""), rows, settings=settings)
    return run_folder


def test_figures_of_fresh_draws_are_told(randomised: RunFolder) -> None:
    (view, *_) = [view for view in read_run(randomised).attacks if view.attack == "leet"]
    told = sentence(view)
    assert "of 10 texts that seemed to fool this randomised model 7 did" in told
    assert f"{(7 * 0.8 + 3 * 0.2) / 10:.2f}" in told
    assert "declined to answer 2 of 20" in told


def test_a_deterministic_model_has_no_such_section(run_folder: RunFolder) -> None:
    run = read_run(run_folder)
    assert section(run, str) is None
    assert not any(map(sentence, run.attacks))
    assert "A randomised model" not in render(run)


def test_attacks_that_differ_in_draws_alone_are_a_sweep(randomised: RunFolder) -> None:
    run = read_run(randomised)
    (line,) = sweeps(run.attacks).values()
    assert list(line) == [1, 5, 10]
    assert sweep(run.attacks).count("<svg") == 1
    assert stability(run.attacks).count("<svg") == 1
    page = render(run)
    assert "A randomised model" in page
    assert "averaged over so many draws" in page
