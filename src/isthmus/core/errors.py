"""Every error that isthmus raises on purpose.

    IsthmusError
    ├── UsageError                  the call cannot be right; nothing was done
    │   ├── UnknownName             no such method, data set, asset, column or label (suggests the nearest)
    │   └── MissingExtra            an optional library is not installed (says what to install)
    ├── DataError                   a data file or record cannot be used
    ├── AssetError                  an asset is not available, or its hash is wrong
    ├── ModelError                  a model folder cannot be read
    ├── VictimError                 a victim raised, hung, or answered with the wrong shape or with NaN
    │   ├── VictimTimeout           it did not answer in time
    │   └── VictimUnreachable       nobody answers at its address
    ├── TrainingError               training cannot go on (a loss became NaN, say)
    ├── RunError                    a run folder cannot be read or written
    │   └── NewerRun                it was written by a newer isthmus
    ├── BrokenCertificate           an attack succeeded inside a certificate: a bug, in one of the two
    └── SuspiciousLabels            clean accuracy is at or under chance: the label map is probably swapped

Every message names the thing, what was found, and what would work. The command line prints the message and no
traceback; ``exit_code`` is what it exits with (`ExitCode`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.core.types import Floats


class ExitCode(IntEnum):
    """Exit codes of the commands; docs/exit-codes.md has the same table for users."""

    PASSED = 0
    """The work was done; with a gate, every rate was judged and passed."""
    FAILED = 1
    """A rate failed the gate, or `doctor` or `assets` found something missing."""
    ERROR = 2
    """Usage error, or the work could not be done; nothing was judged."""
    INCONCLUSIVE = 3
    """The gate could not be judged either way."""
    BROKEN_CERTIFICATE = 4
    """An attack succeeded inside a certificate."""
    INTERRUPTED = 130
    """Ctrl-C; the same command again continues."""


class IsthmusError(Exception):
    """Root of every error isthmus raises on purpose.

    >>> from isthmus import IsthmusError, load_data
    >>> try:
    ...     load_data("reviews.csv")
    ... except IsthmusError as error:
    ...     print(error)
    no file or folder reviews.csv.
    """

    exit_code = ExitCode.ERROR


class UsageError(IsthmusError):
    """The call is invalid; nothing was done."""


class UnknownName(UsageError):
    """No such method, data set, asset, column or label; the message suggests the nearest known name."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        super().__init__(" ".join(part for part in (self._sentence(), hint) if part))

    def _sentence(self) -> str:
        near = difflib.get_close_matches(str(self.name).lower(), self.known, n=1, cutoff=0.6)
        if near:
            return f"no {self.kind} named {self.name!r}. Did you mean {near[0]!r}?"
        if not self.known:
            return f"no {self.kind} named {self.name!r}."
        shown = ", ".join(self.known[:20]) + (", …" if len(self.known) > 20 else "")
        return f"no {self.kind} named {self.name!r}. Known: {shown}."


class MissingExtra(UsageError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}: pip install 'isthmus[{extra}]'")


class IsthmusWarning(UserWarning):
    """A warning for the user; the command line shows it and hides those of libraries."""


class DataError(IsthmusError):
    """A data file or record cannot be used."""


class AssetError(IsthmusError):
    """An asset is not available, or its hash is wrong."""


class ModelError(IsthmusError):
    """A model folder cannot be read, or a model does not fit the request."""


class VictimError(IsthmusError):
    """A victim raised, hung, or answered with the wrong shape or with NaN."""


class VictimTimeout(VictimError):
    """A victim did not answer in time.

    Of a victim that is asked in several requests, `answered` has the rows of those that it did answer and NaN in the
    place of the others; None where there are none.
    """

    def __init__(self, message: str = "", answered: Floats | None = None) -> None:
        super().__init__(message)
        self.answered = answered


class VictimUnreachable(VictimError):
    """Nobody answers at a victim's address; other texts would fail as well."""


class TrainingError(IsthmusError):
    """Training cannot go on."""


class RunError(IsthmusError):
    """A run folder cannot be read or written."""


class NewerRun(RunError):
    """The run folder was written by a newer isthmus."""


class BrokenCertificate(IsthmusError):
    """An attack succeeded inside a certificate. One of the two is wrong, and no figure of either can be trusted."""

    exit_code = ExitCode.BROKEN_CERTIFICATE


class SuspiciousLabels(IsthmusError):
    """Clean accuracy is at or under chance: the label map is probably swapped."""
