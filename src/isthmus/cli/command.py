"""The command line as it was given, so that a run can say how it was made."""

from __future__ import annotations

import shlex
import sys

from isthmus.runs.provenance import without_secrets


def command_line() -> str | None:
    """``isthmus …`` without keys in addresses; None where isthmus was not started as a program."""
    if not sys.argv or not sys.argv[0].endswith(("isthmus", "isthmus.exe", "__main__.py")):
        return None
    return shlex.join(["isthmus", *(without_secrets(argument) for argument in sys.argv[1:])])
