"""The options of the commands that run a model on examples: `attack`, `certify` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isthmus.attacks.options import AttackOptions
from isthmus.verbs.goal_options import GoalRequest
from isthmus.verbs.sources import DataRequest

if TYPE_CHECKING:
    from isthmus.data.load import TaskName

RowsWanted = Literal["successes", "all"]


@dataclass(frozen=True)
class ModelRequest:
    """Options of all three commands."""

    model: str
    _: KW_ONLY
    n: int | None = 200
    """Examples, the first of a seeded stratified order; None takes all."""
    seed: int = 0
    out: Path | None = None
    labels: tuple[str, ...] | None = None
    """Dataset label names, in the model's class order."""
    victim: Mapping[str, Any] = field(default_factory=dict)
    """Options of the victim's class: time-out, batch size, requests per second, headers."""
    precision: str = "fp32"
    device: str | None = None
    label_check: bool = True
    retry_errors: bool = False
    command: str | None = None


@dataclass(frozen=True)
class SampleRequest(ModelRequest):
    """Options of the commands that sample one split."""

    _: KW_ONLY
    data: DataRequest | None = None
    """None: the data the run was made with."""
    split: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Of the method. ``key`` for every attack that has it, ``attack.key`` for one."""
    protect: tuple[str, ...] | None = None
    protect_pattern: str | None = None
    protect_kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttackRequest(SampleRequest, AttackOptions):
    """All options of an ``attack`` command."""

    attacks: tuple[str, ...]
    _: KW_ONLY
    goal: GoalRequest = field(default_factory=GoalRequest)


@dataclass(frozen=True)
class CertifyRequest(SampleRequest):
    """All options of a ``certify`` command."""

    certificate: str = "gaussian"


@dataclass(frozen=True)
class SetRequest:
    """The sets that a user names; columns and splits apply to every set that has any."""

    on: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    """Splits of every set; ``all`` takes each one that has labels. Empty: test, else dev, else the only one."""
    text: str | None = None
    label: str | None = None
    pair: tuple[str, str] | None = None
    rows: RowsWanted = "successes"


@dataclass(frozen=True)
class EvaluateRequest(ModelRequest):
    """All options of an ``evaluate`` command."""

    sets: SetRequest = field(default_factory=SetRequest)
    _: KW_ONLY
    n: int | None = None
    """Examples of each set."""
    draws: int = 12
    """Random draws to average, for a stochastic model."""
    latency: int | None = None
    """Texts whose answers are timed one by one; 0: none. None: a usual number where the model runs in this process, and
    none of a service or a function, which would be asked for nothing but that."""
    price_per_hour: float | None = None
    """Of the machine, for the cost of 1,000 texts."""
    task: TaskName | None = None
    """None: what the run was trained for; classification where the model is not a run."""
