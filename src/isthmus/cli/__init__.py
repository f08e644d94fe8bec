"""The command line: one file per verb.

Only what `--help` needs is imported here; a verb imports its own needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with one of `isthmus.core.errors.ExitCode`."""
    from isthmus.cli.app import run

    sys.exit(run([*(sys.argv[1:] if arguments is None else arguments)]))
