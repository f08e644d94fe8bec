"""Everything an ``evaluate`` command says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from isthmus.data.load import TaskName

Rows = Literal["successes", "all"]
DRAWS = 12


@dataclass(frozen=True)
class SetRequest:
    """Sets as a user names them; columns and splits hold for every one that has any."""

    on: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    """Splits of every set; ``all`` takes each one that has labels. Empty: test, else dev, else the only one."""
    text: str | None = None
    label: str | None = None
    pair: tuple[str, str] | None = None
    rows: Rows = "successes"


@dataclass(frozen=True)
class EvaluateRequest:
    """Everything the command says."""

    model: str
    sets: SetRequest = field(default_factory=SetRequest)
    n: int | None = None
    """Examples of each set, the first of a seeded stratified order; None takes all."""
    draws: int = DRAWS
    seed: int = 0
    out: Path | None = None
    task: TaskName | None = None
    """None: what the run was trained for; classification where the model is no run."""
    labels: tuple[str, ...] | None = None
    """What the sets call the model's outputs, in the order of the outputs."""
    victim: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    device: str | None = None
    label_check: bool = True
    retry_errors: bool = False
    command: str | None = None
