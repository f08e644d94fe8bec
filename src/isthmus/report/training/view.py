"""The training log as curves: every loss term by step, and development accuracy (F1 for questions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Curve = tuple[list[int], list[float]]

_METRICS = {"dev_accuracy": "accuracy", "dev_f1": "F1"}
# Keys of a log row that are not terms of the loss.
_NOT_TERMS = {"step", "epoch", "learning_rate", "gradient_norm", "examples"}


@dataclass(frozen=True)
class Curves:
    """The curves of a training log."""

    terms: Mapping[str, Curve] = field(default_factory=dict)
    accuracy: Curve | None = None
    metric: str = "accuracy"
    """What `accuracy` is: accuracy, or F1 of answers."""
    judged_from: int = 0
    """First point of `accuracy` whose weights could be chosen."""


def read_curves(log: Sequence[Mapping[str, Any]]) -> Curves:
    """Curves of a training log; a loss with a single term is one curve."""
    terms: dict[str, Curve] = {}
    accuracy: Curve = ([], [])
    judged_from = 0
    for row in log:
        if "selection" in row:
            judged_from = len(accuracy[0])
        numbers = {key: value for key, value in row.items() if isinstance(value, int | float)}
        for key, value in numbers.items() if "step" in numbers else ():
            if key in _METRICS:
                curve = accuracy
            elif key in _NOT_TERMS or key.startswith("dev_"):
                continue
            else:
                curve = terms.setdefault(key, ([], []))
            curve[0].append(int(numbers["step"]))
            curve[1].append(float(value))
    # With one term the sum says the same thing twice.
    if len(terms) == 2 and "loss" in terms:
        terms = {name: curve for name, curve in terms.items() if name != "loss"}
    metric = next((name for key, name in _METRICS.items() if any(key in row for row in log)), "accuracy")
    if judged_from >= len(accuracy[0]):  # nothing that could be chosen is there yet
        judged_from = 0
    return Curves(terms, accuracy if accuracy[0] else None, metric, judged_from)
