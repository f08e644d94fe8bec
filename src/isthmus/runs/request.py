"""Everything an ``attack`` command says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.attacks.parts.randomised import FRESH_DRAWS, RESTARTS
from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.runs.goals import GoalRequest
from isthmus.runs.sources import DataRequest


@dataclass(frozen=True)
class AttackRequest:
    """Everything the command says."""

    model: str
    attacks: tuple[str, ...]
    data: DataRequest | None = None
    """None: the data the run was made with."""
    split: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """``key`` for every attack that has it, ``attack.key`` for one."""
    n: int | None = 200
    seed: int = 0
    out: Path | None = None
    labels: tuple[str, ...] | None = None
    """What the data calls the model's outputs, in the order of the outputs."""
    goal: GoalRequest = field(default_factory=GoalRequest)
    protect: tuple[str, ...] | None = None
    protect_pattern: str | None = None
    budget: int | None = None
    budget_per_word: int | None = None
    time_limit: float | None = None
    preset: str | None = None
    """Limits on every candidate, by name."""
    encoder: str | None = None
    """Sentence encoder of the attacks that compare sentences; of the others it measures the similarity."""
    masked_lm: str | None = None
    """Masked language model of the attacks that fill blanks."""
    trace: bool = False
    """Write down every query."""
    in_flight: int | None = None
    precision: str = "fp32"
    victim: Mapping[str, Any] = field(default_factory=dict)
    """Options of the victim's class: time-out, batch size, requests per second, headers."""
    device: str | None = None
    label_check: bool = True
    retry_errors: bool = False
    fresh: int = FRESH_DRAWS
    """Fresh draws on which a success against a randomised model must hold."""
    restarts: int = RESTARTS
    """How often an attack on a randomised model begins anew after a lucky draw."""
    command: str | None = None


def parameters_of(given: Mapping[str, str], entries: Mapping[str, catalog.Entry]) -> dict[str, dict[str, str]]:
    """Parameters of each attack: ``key`` goes to every attack that has it, ``attack.key`` to that one."""
    found: dict[str, dict[str, str]] = {name: {} for name in entries}
    known = {name: {parameter.name for parameter in entry.parameters} for name, entry in entries.items()}
    for key, value in given.items():
        attack_name, dot, own_key = key.partition(".")
        if dot:
            if attack_name not in entries:
                raise UnknownName("attack in this command", attack_name, entries)
            found[attack_name][own_key] = value
            continue
        takers = [name for name in entries if key in known[name]]
        if not takers:
            raise UnknownName(f"parameter of {' or '.join(entries)}", key, set().union(*known.values()))
        for name in takers:
            found[name][key] = value
    return found


def name_models(request: AttackRequest, entries: Mapping[str, catalog.Entry], given: dict[str, dict[str, str]]) -> None:
    """Add to the parameters `given` the models the command names, for attacks that have a parameter for one."""
    for key, model in (("encoder", request.encoder), ("masked_lm", request.masked_lm)):
        takers = [name for name, entry in entries.items() if key in {each.name for each in entry.parameters}]
        # An encoder is of use to every attack: it measures how similar the texts are.
        if model is not None and not takers and key == "masked_lm":
            raise UsageError(f"--masked-lm {model}: no attack of this command ({', '.join(entries)}) fills blanks")
        for name in takers if model is not None else ():
            given[name].setdefault(key, str(model))
