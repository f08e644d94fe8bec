"""The output of a model that a gradient method explains."""

from __future__ import annotations

from typing import Literal, get_args

from isthmus.core.errors import UsageError

OutputKind = Literal["logit", "probability"]


def check_output(output: str) -> None:
    """Refuse an unknown kind of output."""
    if output not in get_args(OutputKind):
        raise UsageError(f"output is 'logit' or 'probability', not {output!r}")
