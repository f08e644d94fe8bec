"""What a method by gradients explains."""

from __future__ import annotations

from typing import Literal, get_args

from isthmus.core.errors import UsageError

OutputKind = Literal["logit", "probability"]


def check_output(output: str) -> None:
    """Refuse what is neither."""
    if output not in get_args(OutputKind):
        raise UsageError(f"output is 'logit' or 'probability', not {output!r}")
