from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from isthmus.cli.printing import print_run
from isthmus.report.attack.sentences import coverage, warnings
from isthmus.report.attack.terminal import attack_table, attack_tables, footnotes, print_examples, print_steps
from isthmus.report.steps import next_steps
from isthmus.report.view import read_run
from isthmus.runs.folder import RunFolder


def shown(act: Callable[[Console], Any], **options: Any) -> str:
    stream = io.StringIO()
    act(Console(file=stream, width=80, **options))
    return stream.getvalue()


def test_the_table_fits_eighty_columns_and_cuts_nothing(run_folder: RunFolder) -> None:
    run = read_run(run_folder)
    text = shown(lambda console: console.print(attack_table(run)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for view in run.attacks:
        assert view.key in text
        assert f"{100 * view.summary.racc.low:.1f}–{100 * view.summary.racc.high:.1f}" in text
    assert "all together" in text
    assert "2 errors" in shown(lambda console: console.print(footnotes(run)))


def test_attacks_on_a_detector_have_a_table_of_their_own() -> None:
    older = RunFolder(Path(__file__).parents[2] / "fixtures" / "runs" / "function")
    run = read_run(older)
    first, second = attack_tables(run)
    predictions = shown(lambda console: console.print(first))
    detector = shown(lambda console: console.print(second))
    assert predictions.split()[:4] == ["clean", "robust", "attack", "no"]
    assert "all together" in predictions
    assert "leet" not in predictions
    assert detector.split()[:4] == ["caught", "caught", "attack", "no"]
    assert "leet" in detector
    assert "all together" not in detector
    text = shown(lambda console: print_run(console, run, after="report"))
    assert "…" not in text.replace("…)", "")
    long = [
        line for line in text.splitlines() if len(line) > 80 and not line.strip().startswith(("isthmus ", "Report:"))
    ]
    assert long == []
    assert "Caught before, after: flagged before and after the attack" in " ".join(text.split())


def test_one_attack_alone_has_no_sum(run_folder: RunFolder) -> None:
    run = read_run(run_folder)
    text = shown(lambda console: console.print(attack_table(run, keys=["pwws"])))
    assert "all together" not in text
    assert "deepwordbug" not in text


def test_changed_words_are_bracketed_without_colour_and_coloured_with(run_folder: RunFolder) -> None:
    view = read_run(run_folder).attacks[0]
    edit = view.successes[0].edits[0]
    plain = shown(lambda console: print_examples(console, view, 1))
    assert f"[{edit.original}]" in plain
    assert f"[{edit.replacement}]" in plain
    coloured = shown(lambda console: print_examples(console, view, 1), force_terminal=True, color_system="standard")
    assert f"[{edit.original}]" not in coloured
    assert "\x1b[1;4;31m" in coloured


def test_texts_are_neither_markup_nor_control(
    run_folder: RunFolder, nasty: str, add_attack: Callable[..., None], make_row: Callable[..., dict[str, Any]]
) -> None:
    row = make_row(0, "succeeded", random.Random(0), text=f"[bold]hi[/bold] [/] {nasty}")
    add_attack(run_folder, "pwws", [row])
    view = read_run(run_folder).attacks[1]
    text = shown(lambda console: print_examples(console, view, 1))
    assert "[/" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_next_steps_can_be_copied(run_folder: RunFolder) -> None:
    text = shown(lambda console: print_steps(console, next_steps(read_run(run_folder))))
    commands = [line.strip() for line in text.splitlines() if line.strip().startswith("isthmus ")]
    assert commands[0] == f"isthmus attack {run_folder.path} --attack deepwordbug,pwws --n 1000"
    assert any("--defence label_smoothing" in command for command in commands)


def test_what_was_not_tried_and_what_was_used_stand_beside_the_table(rich_run: RunFolder) -> None:
    run = read_run(rich_run)
    view = next(view for view in run.attacks if view.key == "textfooler")
    text = shown(lambda console: console.print(attack_table(run)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    line = next(line for line in text.splitlines() if line.startswith("textfooler"))
    assert line.split()[7] == str(view.summary.no_candidates)
    assert view.summary.no_candidates > 10
    assert f"{view.summary.similarity.estimate:.2f}" in line
    notes = " ".join(shown(lambda console: console.print(footnotes(run))).split())
    assert "word vectors: GloVe (stand-in: not the published vectors), used by textfooler" in notes
    assert "hotflip was left out: it needs gradients" in notes
    assert "All together: deepwordbug, pwws, textfooler." in notes
    (warning,) = [warning for warning in warnings(run) if "no candidates" in warning]
    assert f"{view.summary.no_candidates} of {view.summary.attacked} attacked texts had no candidates" in warning
    assert f"{100 * view.summary.proven.estimate:.1f} %" in warning
    words = sum(result.outcome == "failed" and result.words == 0 for result in view.results)
    assert f"{words} texts: no word may be edited" in warning


def test_attacks_on_another_question_are_not_part_of_the_union(
    run_folder: RunFolder, add_attack: Callable[..., None], make_row: Callable[..., dict[str, Any]]
) -> None:
    rows = [make_row(number, "failed", random.Random(0)) for number in range(5)]
    # The first by name: the union must not turn on the order of the names.
    add_attack(run_folder, "badchars", rows, settings={"goal": {"kind": "targeted", "target": 1}})
    run = read_run(run_folder)
    assert [view.key for view in run.alike] == ["deepwordbug", "pwws"]
    assert run.together is not None
    assert run.together.n == 200
    assert coverage(run) == "All together: deepwordbug, pwws; without badchars, which has another goal, model or data."
