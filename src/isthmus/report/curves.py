"""The training log as curves: every loss term by step, and the development accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Curve = tuple[list[int], list[float]]

# Keys of a log row that are not terms of the loss.
_NOT_TERMS = {"step", "epoch", "loss", "learning_rate", "rate", "grad_norm", "examples", "total"}


@dataclass(frozen=True)
class Curves:
    """What the page draws of a training."""

    terms: Mapping[str, Curve] = field(default_factory=dict)
    accuracy: Curve | None = None


def read_curves(log: Sequence[Mapping[str, Any]]) -> Curves:
    """Curves of a training log; where the loss has one term only that one is drawn."""
    terms: dict[str, Curve] = {}
    accuracy: Curve = ([], [])
    for row in log:
        step = row.get("step")
        if not isinstance(step, int):
            continue
        for key, value in row.items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if "accuracy" in key:
                accuracy[0].append(step)
                accuracy[1].append(float(value))
            elif key not in _NOT_TERMS and not key.startswith(("dev_", "eval_")):
                terms.setdefault(key, ([], []))
                terms[key][0].append(step)
                terms[key][1].append(float(value))
            elif key == "loss":
                terms.setdefault("loss", ([], []))
                terms["loss"][0].append(step)
                terms["loss"][1].append(float(value))
    # With one term the sum says the same thing twice.
    if len(terms) == 2 and "loss" in terms:
        terms = {name: curve for name, curve in terms.items() if name != "loss"}
    return Curves(terms, accuracy if accuracy[0] else None)
