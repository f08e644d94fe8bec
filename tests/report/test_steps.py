"""What a reader is offered to run can be run."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import pytest

from isthmus.cli.command import quote_command
from isthmus.core.redaction import is_command
from isthmus.report.page import render
from isthmus.report.steps import commands, first_attack, next_steps
from isthmus.report.view import RunView, read_run
from isthmus.runs.folder import RunFolder


def offered(run: RunView) -> list[str]:
    return [command for command, _ in next_steps(run)]


def without_model(run_folder: RunFolder, **changes: Any) -> RunView:
    """The same results, of a model that lies elsewhere."""
    run_folder.model_path.rmdir()
    record = dataclasses.replace(run_folder.record(), training=None, defence=None, results=None, **changes)
    run_folder.write(record)
    return read_run(run_folder)


def with_command(run: RunView, command: str | None) -> RunView:
    views = tuple(dataclasses.replace(view, header={**view.header, "command": command}) for view in run.attacks)
    return dataclasses.replace(run, attacks=views)


def test_a_model_elsewhere_is_reached_by_the_command_that_was_given(run_folder: RunFolder) -> None:
    run = without_model(run_folder)
    given = quote_command(
        ["attack", "http://h/c?key=k", "--header", "X-Key: v", "--n", "200", "--protect-pattern", "a --n 3"]
    )
    assert offered(with_command(run, given)) == [given.replace("--n 200", "--n 1000", 1), "isthmus list"]
    assert offered(with_command(run, "isthmus attack m:f --data d")) == [
        "isthmus attack m:f --data d --n 1000",
        "isthmus list",
    ]
    assert offered(with_command(run, "isthmus attack m:f --n=7 --data d"))[0] == "isthmus attack m:f --n 1000 --data d"
    assert offered(with_command(run, None)) == ["isthmus list"]


def test_more_examples_are_offered_only_where_there_are_more(run_folder: RunFolder) -> None:
    run = without_model(run_folder)
    assert offered(with_command(run, "isthmus attack m:f --data d --n 0")) == ["isthmus list"]
    few = dataclasses.replace(
        run, attacks=tuple(dataclasses.replace(view, results=view.results[:2]) for view in run.attacks)
    )
    assert offered(with_command(few, "isthmus attack m:f --data d --n 2"))[0].endswith(" --n 100")


def test_nothing_is_offered_that_needs_a_model_the_folder_has_not(run_folder: RunFolder) -> None:
    run = dataclasses.replace(without_model(run_folder, command=None), attacks=())
    assert offered(run) == ["isthmus list"]
    assert first_attack(run) is None
    assert "Not attacked yet" in (page := render(run))
    assert "isthmus attack" not in page


def test_an_unfinished_training_is_finished_first(run_folder: RunFolder) -> None:
    run_folder.model_path.rmdir()
    run = read_run(run_folder)
    assert offered(run) == [run.record.command, "isthmus list"]


def test_rows_go_on_with_the_options_they_were_made_with(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = with_command(read_run(run_folder), "isthmus attack demo --attack pwws --seed 3 --n 200")
    assert offered(run)[0] == f"isthmus attack {run_folder.path} --attack deepwordbug,pwws --n 1000"
    monkeypatch.chdir(run_folder.path.parent)
    assert offered(run)[0] == "isthmus attack demo --attack pwws --seed 3 --n 1000"


def test_a_training_with_a_defence_names_the_columns(run_folder: RunFolder) -> None:
    record = run_folder.record()
    options = {"text": "the text", "label": "l"}
    run_folder.write(dataclasses.replace(record, data=dataclasses.replace(record.data, options=options)))
    (command,) = [command for command in offered(read_run(run_folder)) if "--defence" in command]
    assert "--text 'the text' --label l --backbone minilm" in command


HOSTILE = [
    "isthmus attack x; rm -rf .", "isthmus attack `id`", "isthmus attack $(id)", 'isthmus attack "$(id)"', "rm -rf .",
    'isthmus attack "`id`"', "isthmus attack x | sh", "isthmus attack x\nrm -rf .", "isthmus attack x > /etc/passwd",
    "isthmus attack x &", "isthmus attack 'x' 'y", "isthmus attack $HOME", "isthmus attack ~",
    'isthmus attack "${x:=y}"',
]  # fmt: skip


@pytest.mark.parametrize("command", HOSTILE)
def test_a_folder_cannot_offer_a_reader_any_other_command(run_folder: RunFolder, command: str) -> None:
    run = with_command(without_model(run_folder, command=command), command)
    assert commands(run) == []
    assert offered(run) == ["isthmus list"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["attack", "it's", 'a "b" $c `d` \\e', "ü", "", "a\nb", "x;y"],
        ["attack", "https://ann:pw@h/p?key=a b&k2=c'd", "--header", "A: b", "--data", "d$x"],
    ],
)
def test_what_we_record_is_such_a_command(arguments: list[str]) -> None:
    assert is_command(quote_command(arguments))
    assert len(shlex.split(quote_command(arguments))) == len(arguments) + 1
