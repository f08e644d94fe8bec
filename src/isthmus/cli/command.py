"""The command line as it was given, so that a run can say how it was made."""

from __future__ import annotations

import shlex
import sys

from isthmus.runs.provenance import without_secrets


def command_line() -> str | None:
    """``isthmus …`` without keys in addresses; None where isthmus was not started as a program."""
    if not sys.argv or not sys.argv[0].endswith(("isthmus", "isthmus.exe", "__main__.py")):
        return None
    shown: list[str] = []
    for argument in sys.argv[1:]:
        is_header = argument.startswith("--header=") or (shown and shown[-1] == "--header")
        shown.append(argument.partition(":")[0] + ":…" if is_header else without_secrets(argument))
    return shlex.join(["isthmus", *shown])
