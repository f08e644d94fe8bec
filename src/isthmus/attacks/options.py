"""Options of an attack, each declared once: default, allowed values, and help.

`AttackSettings`, the request of a command, the command line and the functions of Python take them from here, so that a
new option is a new field and the place that uses it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from isthmus.core.errors import UsageError

FRESH_DRAWS, RESTARTS = 20, 2
LIMITS, AUXILIARY, RANDOMISED, OUTPUT, MACHINE = "Limits", "Auxiliary models", "Randomised models", "Output", "Machine"
"""Under which headings the command line shows them."""


def option(
    default: Any,
    help: str,  # noqa: A002 - as typer calls it
    heading: str,
    *,
    metavar: str | None = None,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    of_words: bool = False,
) -> Any:
    """A dataclass field with its help and the allowed numbers.

    `above` is the number that it must exceed and stay finite; an option that is None is not checked. `of_words`: it
    says nothing to attacks on tensors.
    """
    keys = {"help": help, "heading": heading, "metavar": metavar, "least": least, "most": most, "above": above}
    return field(default=default, metadata={**keys, "of_words": of_words})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of every search, from the command line or from Python."""

    budget: int | None = option(None, "Maximum queries per example.", LIMITS, least=1, of_words=True)
    """Maximum queries per example."""
    budget_per_word: int | None = option(None, "Maximum queries per word of the text.", LIMITS, least=1, of_words=True)
    """Maximum queries per word of the text."""
    fresh: int = option(FRESH_DRAWS, "Fresh random draws that confirm a success; 0: none.", RANDOMISED, least=0)
    """Fresh draws of a randomised victim, unseen by the attack, more than half of which must confirm a success; as many
    of the clean text say how often it is answered correctly. 0: none."""
    restarts: int = option(
        RESTARTS, "Restarts after an unconfirmed or failed search, with --search-draws 0.", RANDOMISED, least=0
    )
    """Restarts of an attack on a randomised victim after an unconfirmed or failed search, where it has no shared
    draws."""
    search_draws: int | None = option(
        None,
        "Search by the mean over K draws, the same for every query; 0: another draw for each. (default: 8)",
        RANDOMISED,
        metavar="K",
        least=0,
        most=1024,
    )
    """Draws of a randomised victim, the same for every query about an example, whose mean the search sees, each of them
    a query (`isthmus.attacks.parts.shared_draws`); 0 or 1: another draw for every query. None: the default of 8."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if "heading" not in one.metadata or value is None:
                continue
            least, most, above = (one.metadata[bound] for bound in ("least", "most", "above"))
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if (least, most, above) != (None, None, None) and not is_number:
                raise UsageError(f"{self.spell(one.name)} is a number, not {value!r:.80}")
            if str(one.type).startswith("int") and not isinstance(value, Integral):
                raise UsageError(f"{self.spell(one.name)} is a whole number, not {value!r:.80}")
            if str(one.type) == "bool" and not isinstance(value, bool):
                raise UsageError(f"{self.spell(one.name)} is True or False, not {value!r:.80}")
            if least is not None and not value >= least:
                raise UsageError(f"{self.spell(one.name)} must be at least {least:g}, not {value}")
            if most is not None and value > most:
                raise UsageError(f"{self.spell(one.name)} must be at most {most:g}, not {value}")
            if above is not None and not above < value < math.inf:
                raise UsageError(f"{self.spell(one.name)} must be a number over {above:g}, not {value}")

    def spell(self, name: str) -> str:
        """A field's name in an error."""
        return name

    def values(self, kind: type[SearchOptions]) -> dict[str, Any]:
        """The values of the options that `kind` declares, by name."""
        return {one.name: getattr(self, one.name) for one in fields(kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackOptions(SearchOptions):
    """Further options of a command's attacks: time, limits by name, auxiliary models, trace, processes.

    >>> from isthmus import AttackOptions, attack
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], "deepwordbug",
    ...                [("a dull plot", 0)], labels=("bad", "good"), options=AttackOptions(budget=1, time_limit=60))
    >>> found[0].budget_spent
    True
    """

    time_limit: float | None = option(None, "Maximum seconds per example.", LIMITS, above=0, of_words=True)
    preset: str | None = option(
        None, "Limits on every candidate: textdefender-2021, meaning or strict.", LIMITS, of_words=True
    )
    """Limits on every candidate, by name."""
    encoder: str | None = option(None, "Sentence encoder. (default: the attack's own)", AUXILIARY, of_words=True)
    """Sentence encoder of the attacks that compare sentences; of the others it measures the similarity."""
    masked_lm: str | None = option(None, "Masked language model. (default: the attack's own)", AUXILIARY, of_words=True)
    """Masked language model of the attacks that fill blanks."""
    trace: bool = option(False, "Record every query, one JSON line each.", OUTPUT, of_words=True)
    """Record every query."""
    in_flight: int | None = option(None, "Examples attacked at once; changes no result.", MACHINE, least=1)
    processes: int | None = option(
        None,
        "Processes that attack, each with its own copy of the models; changes no result.",
        MACHINE,
        metavar="N",
        least=1,
    )
    """Processes that attack, each with the models for itself; None: this one alone. Rows do not depend on it."""

    def spell(self, name: str) -> str:
        """A field's name as typed on the command line."""
        return flag(name)


def flag(name: str) -> str:
    """The name of an option on the command line."""
    return f"--{name.replace('_', '-')}"
