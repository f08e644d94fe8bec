"""What a run says about how it was made: a command that can be pasted, without its secrets."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from isthmus.cli.command import command_line, quote_command


@pytest.mark.parametrize(
    "arguments",
    [
        ["attack", "toy:classify", "--protect-pattern", r"https?://\S+", "--n", "5"],
        ["attack", "m", r"--protect-pattern=https://\S+\?id=\d+"],
        ["attack", "m", "--protect-pattern", "https://host/a?b=c"],
        ["attack", "http://localhost:8000/classify", "--data", "it's $HOME/a file.csv", "-V", "timeout=5"],
        ["train", "--data", "C:\\texts\\a.csv", "-P", "pattern=a://b?c"],
    ],
)
def test_without_secrets_it_is_what_was_given(arguments):
    assert shlex.split(quote_command(arguments)) == ["isthmus", *arguments]


def test_secrets_are_variables_that_a_shell_fills_in():
    given = ["attack", "https://ann:pw@host/a?api_key=k1", "--header", "Authorization: Bearer t", "--header=X-Key:k2"]
    given += ["--data", "https://host/d.csv?sig=s", "-V", "url=http://host/?q=v", "--n", "3"]
    command = quote_command(given)
    assert not {"ann", "pw", "k1", "Bearer", "k2", "sig=s", "q=v"} & set(command.replace(":", " ").split())
    assert "$API_KEY" in command
    values = {"USER_NAME": "ann", "PASSWORD": "pw", "API_KEY": "k1", "AUTHORIZATION": "Bearer t", "X_KEY": "k2"}
    script = command.replace("isthmus", "printf '%s\\n'", 1)
    ran = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, **values, "SIG": "s", "Q": "v"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == [*given[:4], "--header=X-Key: k2", *given[5:]]


def test_every_secret_has_a_name_of_its_own():
    given = ["attack", "http://h/c?key=1", "--data", "https://d/x.csv?key=2&key_2=3", "--header", "Key: 4"]
    command = quote_command(given)
    assert re.findall(r"\$\w+", command) == ["$KEY", "$KEY_2", "$KEY_2_2", "$KEY_3"]


def test_only_of_a_program(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest", "x"])
    assert command_line() is None
    monkeypatch.setattr(sys, "argv", ["/usr/bin/isthmus", "list", "a b"])
    assert command_line() == "isthmus list 'a b'"
