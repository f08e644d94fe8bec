"""Findings in the training log: the gradient share of each term in one line, and a code without information."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SMALL = 1e-3
COLLAPSED = 0.01
"""Share of the label's entropy under which a code says nothing of the label."""


def shares_line(log: Sequence[Mapping[str, Any]]) -> str:
    """First and last measured share of every term, relative to the task's; empty if nothing was measured."""
    measured = [row for row in log if row.get("gradient_shares")]
    if not measured:
        return ""
    names = dict.fromkeys(name for row in measured for name in row["gradient_shares"])
    parts = [f"{name} {_course(name, measured)}" for name in names]
    steps = dict.fromkeys([measured[0]["step"], measured[-1]["step"]])
    where = f"step{'s' * (len(steps) > 1)} {' and '.join(map(str, steps))}"
    return f"Gradient relative to the task's, at {where}: {'; '.join(parts)}"


def hardly_trained(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Terms whose share was always below a thousandth."""
    measured = [row["gradient_shares"] for row in log if row.get("gradient_shares")]
    names = dict.fromkeys(name for shares in measured for name in shares)
    return [name for name in names if max(shares.get(name, 0.0) for shares in measured) < SMALL]


def describe_collapse(log: Sequence[Mapping[str, Any]]) -> str:
    """The warning that the bottleneck carries no label information after the last epoch; else empty."""
    rows = [row for row in log if "rate" in row.get("dev_information", {})]
    if not rows:
        return ""
    last = rows[-1]["dev_information"]
    told = float(last["label_information"])
    entropy = told + float(last["loss"])
    if not told < COLLAPSED * entropy:
        return ""
    return (
        f"The code collapsed: after the last epoch it tells {max(told, 0.0):.2f} of the label's {entropy:.2f} nats on "
        f"development data (rate {float(last['rate']):.3g} nats). beta is probably too large."
    )


def _course(name: str, measured: Sequence[Mapping[str, Any]]) -> str:
    ends = [measured[0], *measured[1:][-1:]]
    return " to ".join(_format_share(row["gradient_shares"].get(name, 0.0)) for row in ends)


def _format_share(share: float) -> str:
    percent = 100 * share
    return f"{percent:.3g} %" if percent >= 0.01 or not share else f"{percent:.0e} %"
