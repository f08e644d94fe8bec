"""The verdict follows the interval, is withheld where nothing could be attacked, and is the same in both places."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from isthmus.attacks.result import AttackResult
from isthmus.cli.printing import print_run
from isthmus.core.statistics import wilson
from isthmus.report.attack.terminal import verdict
from isthmus.report.attack.verdict import Severity, judge, severity, withstood
from isthmus.report.page import render
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder
from isthmus.summaries.attack import summarise

AddAttack = Callable[..., None]
MakeRow = Callable[..., dict[str, Any]]


def results(**counts: int) -> list[AttackResult]:
    """Examples of two classes that were all classified correctly, with these outcomes."""
    outcomes = [outcome for outcome, count in counts.items() for _ in range(count)]
    return [
        AttackResult(
            str(number), outcome, number % 2, {}, {}, candidates=5, prediction_before=number % 2, words=3,
            words_changed=0.3, logical_queries=4,
        )
        for number, outcome in enumerate(outcomes)
    ]  # fmt: skip


def name_of(**counts: int) -> str:
    found = severity(summarise(results(**counts)))
    assert found is not None
    return found.name


def test_two_examples_decide_nothing() -> None:
    # Wilson's interval of 2 in 2 is 2 / (2 + z^2) = 0.342 to 1.
    assert withstood(summarise(results(failed=2))).low == pytest.approx(2 / (2 + 1.959964**2), abs=1e-5)
    assert name_of(failed=2) == name_of(succeeded=1, failed=1) == "undecided"
    # Of 0 in 2 it is 0 to 0.658, just under two thirds: too few to be called weak all the same.
    assert withstood(summarise(results(succeeded=2))).high == pytest.approx(1.959964**2 / (2 + 1.959964**2), abs=1e-5)
    assert name_of(succeeded=2) == name_of(succeeded=9) == "undecided"
    assert name_of(succeeded=10) == "severe"


def test_eight_percent_of_two_hundred_is_severe() -> None:
    assert wilson(16, 200).high == pytest.approx(0.12599, abs=1e-5)
    assert name_of(failed=16, succeeded=184) == "severe"


def test_eighty_of_eighty_holds() -> None:
    # n / (n + z^2) = 80 / 83.84
    assert withstood(summarise(results(failed=80))).low == pytest.approx(0.9542, abs=1e-4)
    assert name_of(failed=80) == "holds"


@pytest.mark.parametrize(
    ("kept", "name"),
    [(0, "severe"), (53, "severe"), (54, "weak"), (120, "weak"), (121, "undecided"), (146, "undecided"),
     (147, "holds"), (200, "holds")],
)  # fmt: skip
def test_the_verdict_changes_where_an_end_of_the_interval_crosses_a_limit(kept: int, name: str) -> None:
    interval = wilson(kept, 200)
    expected = "severe" if interval.high < 1 / 3 else "weak" if interval.high < 2 / 3 else "undecided"
    assert name == ("holds" if interval.low > 2 / 3 else expected)
    assert name_of(failed=kept, succeeded=200 - kept) == name


def test_what_has_no_result_supports_no_verdict() -> None:
    assert name_of(failed=80, timed_out=60) == "undecided"  # If all of them withstand, it holds; if none, it does not.
    assert name_of(succeeded=80, timed_out=60) == "weak"
    untried = [*results(failed=40), *(result for result in results(failed=80) if setattr_candidates(result))]
    assert severity(summarise(untried)) == Severity(
        "undecided", "too few examples to tell; between 25.5 % and 100.0 % of the correct predictions withstand"
    )


def setattr_candidates(result: AttackResult) -> bool:
    """Make the attack one that found no candidate."""
    object.__setattr__(result, "candidates", 0)
    return True


def test_wrong_predictions_are_left_out() -> None:
    """Nine of ten correct predictions withstand: that the model is wrong on half of the texts is another matter."""
    rows = results(failed=180, succeeded=20, skipped=200)
    for row in rows[200:]:
        object.__setattr__(row, "prediction_before", 1 - (row.label or 0))
    summary = summarise(rows)
    assert summary.racc.estimate == pytest.approx(0.45)
    assert severity(summary) == Severity(
        "holds", "more than two thirds of the correct predictions withstand the attacks tried"
    )


def test_nothing_correct_has_no_severity() -> None:
    rows = results(skipped=9)
    for row in rows:
        object.__setattr__(row, "prediction_before", 1 - (row.label or 0))
    assert severity(summarise(rows)) is None
    assert severity(summarise([])) is None


def one_attack(folder: RunFolder, add_attack: AddAttack, rows: list[dict[str, Any]], **header: Any) -> Severity | None:
    for path in folder.attacks_path.iterdir():
        path.unlink()
    add_attack(folder, "pwws", rows, **header)
    return judge(read_run(folder))


def test_a_constant_model_gets_no_verdict(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> None:
    rows = [make_row(number, "failed", random.Random(0)) for number in range(80)]
    found = one_attack(run_folder, add_attack, rows)
    assert found is not None
    assert found.name == "holds"
    for row in rows:
        row |= {"prediction_before": 0, "outcome": "failed" if row["label"] == 0 else "skipped"}
    found = one_attack(run_folder, add_attack, rows)
    assert str(found) == "No verdict: a model that always gives the same answer would do as well."
    # Two classes, 40 right of 80: no better than chance, though both classes are predicted.
    for number, row in enumerate(rows):
        row |= {"prediction_before": number % 4 // 2, "outcome": "failed" if number % 4 in (0, 3) else "skipped"}
    found = one_attack(run_folder, add_attack, rows)
    assert found is not None
    assert found.name == "none"


def test_a_detector_that_flags_everything_gets_no_verdict(
    run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow
) -> None:
    rows = [make_row(2 * number + 1, "failed", random.Random(0)) for number in range(80)]
    every = {"estimate": 1.0, "low": 0.95, "high": 1.0}
    found: dict[str, Any] = {"label": 1, "threshold": None, "negatives": 80, "tpr_before": every, "tpr_after": every}
    settings = {"goal": {"kind": "untargeted", "from_label": "positive"}, "parameters": {}}
    for fpr, name in ((1.0, "none"), (0.02, "holds")):
        rate = {"estimate": fpr, "low": 0.0, "high": 1.0}
        judged = one_attack(run_folder, add_attack, rows, settings=settings, detection={**found, "fpr": rate})
        assert judged is not None
        assert judged.name == name
    # As many of its own class as of the others: flags at random.
    some = {"estimate": 0.5, "low": 0.4, "high": 0.6}
    detection = {**found, "fpr": some, "tpr_before": some}
    judged = one_attack(run_folder, add_attack, rows, settings=settings, detection=detection)
    assert judged is not None
    assert judged.name == "none"
    assert "is flagged no more often than other classes (50.0 % and 50.0 %)" in render(read_run(run_folder))


def test_a_run_of_errors_shows_no_accuracy(run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow) -> None:
    rows = [make_row(number, "error", random.Random(0)) for number in range(20)]
    found = one_attack(run_folder, add_attack, rows, command="isthmus attack runs/demo --attack pwws --n 20")
    assert str(found) == "No verdict: no example has a result."
    run = read_run(run_folder)
    text = " ".join(re.sub(r"<[^>]*>", " ", render(run).partition("<body>")[2]).split())
    assert "0.0 %" not in text
    assert "All 20 examples ended in an error or a time-out." in text
    assert "not above" not in text  # Errors are no wrong predictions.
    stream = io.StringIO()
    print_run(Console(file=stream, width=80), run, after="report")
    assert "0.0 %" not in stream.getvalue()
    assert "isthmus attack runs/demo --attack pwws --n 20 --retry-errors" in stream.getvalue()


def test_page_and_terminal_say_the_same(run_folder: RunFolder, rich_run: RunFolder) -> None:
    for folder in (run_folder, rich_run):
        run = read_run(folder)
        found = judge(run)
        assert found is not None
        page = " ".join(re.sub(r"<[^>]*>", " ", render(run)).split())
        for line in verdict(run).plain.splitlines():
            assert line in page
        assert str(found) == verdict(run).plain.splitlines()[0]
        assert f'class="severity {found.name}"' in render(run)


@pytest.mark.parametrize("name", ["severe", "weak", "holds", "undecided", "none"])
def test_every_verdict_has_a_word_beside_its_colour(name: str) -> None:
    assert re.match("(Severe|Weak|Holds|Undecided|No verdict): why[.]", str(Severity(name, "why")))


def test_the_strongest_attack_is_judged_on_the_examples_of_the_union(
    run_folder: RunFolder, add_attack: AddAttack, make_row: MakeRow
) -> None:
    """On examples that no other attack saw, an attack may look stronger than all attacks together."""
    add_attack(run_folder, "deepwordbug", [make_row(number, "failed", random.Random(0)) for number in range(20)])
    rows = [make_row(number, "failed" if number < 18 else "succeeded", random.Random(0)) for number in range(90)]
    add_attack(run_folder, "pwws", rows)
    text = verdict(read_run(run_folder)).plain
    assert "classifies 20 of 20 examples correctly. Of these, 18 withstood every attack tried; 2 were fooled." in text
    assert text.endswith("The strongest attack alone, pwws, leaves 90.0 % (69.9–97.2).")
