"""Every command on every page can be parsed: its verb, its options and the names it gives exist.

Pages of docs/ and its guides are also run (test_commands.py); those of docs/results took hours on other machines.
Scripts of benchmarks/ read theirs with their own parsers.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import documented
import pytest
from documented import ROOT
from typer.main import get_command

from isthmus.cli.app import app

PROGRAM: Any = get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def parse(command: str) -> None:
    """Let the program read a command line, and stop before it does anything."""
    words = shlex.split(command)[1:]
    if words[0].startswith("--"):
        assert words[0] in {option for parameter in PROGRAM.params for option in parameter.opts}, command
        return
    verb = PROGRAM.commands[words[0]]
    verb.make_context(words[0], [word for word in words[1:] if word != "--debug"])


@pytest.mark.parametrize("page", documented.EVERY)
def test_isthmus(page: str) -> None:
    for command in documented.commands(read(page), "isthmus"):
        parse(command)


def test_what_does_not_parse_is_seen() -> None:
    (command,) = documented.commands("    isthmus attack runs/demo --atack pwws\n", "isthmus")
    with pytest.raises(Exception, match="--atack"):
        parse(command)
    with pytest.raises(KeyError):
        parse("isthmus atack runs/demo")


@pytest.mark.parametrize("page", documented.EVERY)
def test_make(page: str) -> None:
    for command in documented.commands(read(page), "make"):
        for word in command.split()[1:]:
            name, equals, _ = word.partition("=")
            assert re.search(rf"^{name} *\?=" if equals else rf"^{name}:", MAKEFILE, re.M), command


class Parsed(Exception):
    """The options of a script were read."""


def parse_script(command: str) -> None:
    """Let a script of benchmarks/ read its command line, and stop before it does anything."""
    words = shlex.split(command)[1:]
    read_options = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser, *given: Any, **named: Any) -> None:
        read_options(parser, *given, **named)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", words)
        with pytest.raises(Parsed):
            importlib.import_module(Path(words[0]).stem).main()


SCRIPTS = dict.fromkeys(
    command
    for page in documented.EVERY
    for command in documented.commands(read(page), "python")
    if command.split()[1].startswith("benchmarks/")
)


@pytest.mark.parametrize("command", SCRIPTS)
def test_benchmarks(command: str) -> None:
    parse_script(command)


def test_an_option_that_a_script_does_not_know_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_script("python benchmarks/tables.py wright")
    with pytest.raises(SystemExit):
        parse_script("python benchmarks/processes.py --model RUN --data SST2 --nn 5")
    assert "--nn" in capsys.readouterr().err


def test_there_are_commands_of_every_kind() -> None:
    text = "\n".join(read(page) for page in documented.EVERY)
    for program, least in {"isthmus": 80, "make": 4, "python": 20}.items():
        assert len(list(documented.commands(text, program))) >= least, program
