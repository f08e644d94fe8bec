"""The command line as it was given, so that a run can say how it was made."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from isthmus.core.redaction import Parts, Secret, is_url, secret_name, shell_word, url_parts

_HEADER = "--header"
_PATTERN = "--protect-pattern"
_OPTION = re.compile(r"(?s)((?:--)?[\w.-]+=)?(.*)")


def command_line() -> str | None:
    """``isthmus …`` to run the same again, with ``$NAME`` for secrets; None where isthmus was not started as a program.

    Secrets are the values of headers, and user, password and query of an address.
    """
    if not sys.argv or not sys.argv[0].endswith(("isthmus", "isthmus.exe", "__main__.py")):
        return None
    return shown(sys.argv[1:])


def shown(arguments: Sequence[str]) -> str:
    """A command of these arguments as a shell takes it."""
    before = ["", *arguments]
    return " ".join(
        ["isthmus", *(shell_word(_parts(option, each)) for option, each in zip(before, arguments, strict=False))]
    )


def _parts(before: str, argument: str) -> Parts:
    """The pieces of an argument that follows the argument `before`."""
    match = _OPTION.fullmatch(argument)
    assert match is not None
    option, value = match[1] or "", match[2]
    if before == _HEADER or option == f"{_HEADER}=":
        name, colon, _ = (argument if before == _HEADER else value).partition(":")
        return [option if before != _HEADER else "", f"{name}{colon} ", Secret(secret_name(name))]
    # A pattern looks like an address and is none.
    if before != _PATTERN and option != f"{_PATTERN}=" and is_url(value):
        return [option, *url_parts(value)]
    return [argument]
