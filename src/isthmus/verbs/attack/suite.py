"""Which attacks of a command can run, checked before the first one starts.

Every attack with work to do is rehearsed: it attacks one made-up text that cannot be turned, so that the word lists and
models it needs are looked for now and not an hour later. An attack that was named and cannot run is an error; of
``all`` it is left out, and its reason goes with every result of the suite. What needs gradients is rehearsed on the
victim itself, where that has any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import IsthmusError, UsageError
from isthmus.core.types import Differentiable, Example, Floats, Victim

if TYPE_CHECKING:
    from isthmus.attacks.base import WordAttack
    from isthmus.attacks.parts.limits import Limits
    from isthmus.verbs.attack.prepared_attacks import PreparedAttacks

ALL = "all"
_TEXT = "a truly good film that moves the people who see it"
_QUERIES = 60
"""Enough to rank the words and to try some candidates."""


@dataclass(frozen=True)
class Suite:
    """The attacks that run, and why the others do not."""

    attacks: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)

    def to_json(self, asked: tuple[str, ...]) -> dict[str, Any]:
        """JSON-ready, for the header of every result."""
        return {"asked": list(asked), "left_out": dict(self.left_out)}


def choose(ready: PreparedAttacks) -> Suite:
    """Choose the attacks of a command that can run."""
    chosen, left_out = [], {}
    for name in (*ready.methods, *ready.unavailable):
        problem = ready.unavailable.get(name)
        # Rows that cannot be read are no reason to leave an attack out: a gate would pass without it.
        if problem is None and ready.has_work(name):
            try:
                problem = rehearse(ready, name)
            except IsthmusError as error:
                problem = str(error)
        if problem is None:
            chosen.append(name)
        elif ALL in ready.request.attacks:
            left_out[name] = problem
            ready.observer.note(f"{name} is left out: {problem}")
        else:
            raise UsageError(f"{name} cannot run: {problem}")
    if not chosen:
        raise UsageError(f"no attack can run; {next(iter(left_out))}: {next(iter(left_out.values()))}")
    return Suite(tuple(chosen), left_out)


class _Unmoved:
    """A victim that gives every text the same scores."""

    labels = ("robust", "fooled")
    stochastic = False

    def scores(self, texts: Any, keys: Any = None) -> Floats:
        del keys
        return np.tile(np.array([0.9, 0.1], np.float32), (len(texts), 1))


def rehearse(ready: PreparedAttacks, name: str) -> str | None:
    """Why an attack cannot run; None if it can."""
    models = ready.companions.of(ready.model_names(name))
    return find_obstacle(ready.methods[name], ready.data.fields, ready.limits(name), models, lambda: ready.victim)


def find_obstacle(
    method: WordAttack, fields: Sequence[str], limits: Limits, models: Mapping[str, Any], load: Callable[[], Victim]
) -> str | None:
    """Why an attack cannot run on texts with these fields; the victim is loaded if it fails without one."""
    problem = _try(method, fields, limits, models, _Unmoved())
    if problem is not None and isinstance(victim := load(), Differentiable):
        problem = _try(method, fields, limits, models, victim)
    return problem


def _try(
    method: WordAttack, names: Sequence[str], limits: Limits, models: Mapping[str, Any], victim: Victim
) -> str | None:
    from isthmus.attacks.base import AttackSettings

    fields = dict.fromkeys(names, _TEXT)
    examples = [Example(f"rehearsal:{label}", fields, label) for label in range(len(victim.labels))]
    try:
        run = method(victim, examples, AttackSettings(budget=_QUERIES, limits=limits), **models)
        reasons = [result.reason for result in run if result.outcome == "error"]
    except IsthmusError as error:  # Of the whole run: the victim lacks what the attack asks it for.
        return str(error)
    # The engine names the kind of error before its message, which says enough.
    return re.sub(r"^[A-Za-z]+: ", "", reasons[0]) if reasons else None
