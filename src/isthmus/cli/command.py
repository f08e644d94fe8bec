"""The command line as it was typed, recorded in the run."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence

from isthmus.core.redaction import Parts, Secret, is_url, secret_name, shell_word, url_parts

_HEADER = "--header"
_PATTERN = "--protect-pattern"
_OPTION = re.compile(r"(?s)((?:--)?[\w.-]+=)?(.*)")


def command_line() -> str | None:
    """``isthmus …`` to run the same again, with ``$NAME`` for secrets; None if isthmus was not started as a program.

    Secrets are the values of headers, and user, password and query of an address.
    """
    if not sys.argv or not sys.argv[0].endswith(("isthmus", "isthmus.exe", "__main__.py")):
        return None
    return quote_command(sys.argv[1:])


def quote_command(arguments: Sequence[str]) -> str:
    """A command with these arguments, quoted for a shell."""
    before = ["", *arguments]
    words = [_split_argument(option, each) for option, each in zip(before, arguments, strict=False)]
    return " ".join(["isthmus", *map(shell_word, _distinguish_secrets(words))])


def _distinguish_secrets(words: Sequence[Parts]) -> Iterator[Parts]:
    """The words with a unique name for every secret: two keys of one name may differ."""
    taken: set[str] = set()
    for parts in words:
        own: list[str | Secret] = []
        for part in parts:
            if isinstance(part, Secret):
                names = (part.name if number == 1 else f"{part.name}_{number}" for number in itertools.count(1))
                part = Secret(next(name for name in names if name not in taken))
                taken.add(part.name)
            own.append(part)
        yield own


def _split_argument(before: str, argument: str) -> Parts:
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
