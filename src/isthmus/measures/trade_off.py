"""Clean against robust accuracy of runs that differ in one parameter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.statistics import Interval, wilson
from isthmus.core.types import Bools
from isthmus.measures.base import Figure, Measure, Measurement, Option, Plot, Series, SourceName, Subject


@dataclass(frozen=True)
class TradeOff(Measure):
    """Clean accuracy against accuracy under an attack, for runs that differ in one parameter (InfoBERT's Figure 3).

        clean = right unattacked / n          robust = right unattacked and under attack / n, or right on a static set

    Runs with the same value and other seeds are pooled; each is a point of its own as well.

    References:
        Wang, Wang, Cheng, Gan, Jia, Li and Liu (2021), InfoBERT, https://arxiv.org/abs/2010.02329, Figure 3

    Where we depart:
        Both accuracies are those of the same examples, and both carry intervals: Wilson's for one run; with several
        seeds the wider of Student's over seeds and Wilson's at one run's number of examples, since the examples are
        the same for every seed.

    Relations:
        It reads what was made and attacks nothing: `isthmus attack` each run first with the same attack and the same
        examples, or `isthmus evaluate` it on the same set.

    Example:
        ``isthmus measure runs/infobert-* --measure trade_off -P over=beta -P attack=textfooler``
    """

    reads: ClassVar[tuple[SourceName, ...]] = ("attacks", "evaluations")
    takes: ClassVar[tuple[Option, ...]] = ()
    compares: ClassVar[bool] = True

    over: str = "beta"
    """The parameter in which the runs differ: one of their defence, or of their training settings."""
    attack: str | None = None
    """Which attack, or which evaluation on a static set; none takes the first attack."""
    clean: str | None = None
    """Evaluation that has the clean accuracy; none takes the same examples unattacked, where these are known."""

    def measure(self, subject: Subject) -> Measurement:
        """Read the results of every run and plot them."""
        runs = [self._read(each) for each in (subject, *subject.others)]
        names = {run.attack for run in runs}
        if len(names) > 1:
            raise UsageError(f"the runs were attacked by {', '.join(sorted(names))}: say which with -P attack=NAME")
        groups: dict[tuple[str, Any], list[TradeOffRun]] = {}
        for run in runs:
            groups.setdefault((run.method, run.value), []).append(run)
        points = [Point.of(method, value, found) for (method, value), found in sorted(groups.items(), key=_order_key)]
        figures = []
        for point in points:
            name = f"{point.method}, {self.over} {point.label}"
            figures += [
                Figure.from_interval(name, point.clean, "clean accuracy", share=True),
                Figure.from_interval(name, point.robust, "robust accuracy", share=True),
                Figure(name, len(point.runs), of="runs"),
            ]
        rows = [run.row() for run in runs]
        return Measurement(
            tuple(figures),
            (self._plot(points, next(iter(names))),),
            notes=_notes(runs, points),
            details={"over": self.over, "attack": next(iter(names)), "runs": rows},
        )

    def _read(self, subject: Subject) -> TradeOffRun:
        facts = subject.facts
        known = {**facts.settings, **facts.parameters}
        if self.over not in known:
            raise UnknownName(f"parameter of {subject.name} ({facts.defence or 'not trained here'})", self.over, known)
        found = subject.robustness(self.attack)
        clean = found.clean if self.clean is None else subject.robustness(self.clean).robust
        if clean is None:
            raise UsageError(
                f"{found.name} of {subject.name} does not hold the texts unattacked: name an evaluation that has the "
                "clean accuracy with -P clean=NAME"
            )
        return TradeOffRun(
            subject.name, facts.defence or "?", known[self.over], facts.seed, found.name, clean, found.robust
        )

    def _plot(self, points: Sequence[Point], attack: str) -> Plot:
        series = []
        for method in dict.fromkeys(point.method for point in points):
            own = [point for point in points if point.method == method]
            series.append(
                Series(
                    method,
                    tuple(point.clean.estimate for point in own),
                    tuple(point.robust.estimate for point in own),
                    tuple((point.clean.low, point.clean.high) for point in own),
                    tuple((point.robust.low, point.robust.high) for point in own),
                    tuple(point.label for point in own),
                )
            )
            seeds = [run for point in own if len(point.runs) > 1 for run in point.runs]
            if seeds:
                x, y = (tuple(float(side(run).mean()) for run in seeds) for side in (_clean, _robust))
                series.append(Series(f"{method}, each run", x, y, small=True))
        return Plot(
            self.name,
            f"Clean against robust accuracy, by {self.over}",
            "clean accuracy",
            f"accuracy under {attack}",
            tuple(series),
            kind="points",
            percent="xy",
            caption=f"Labels are {self.over}. Lines are 95 % intervals along both axes; small points are single runs.",
        )


@dataclass(frozen=True)
class TradeOffRun:
    """One run: its method, its parameter value, and the results of its examples."""

    name: str
    method: str
    value: Any
    seed: int
    attack: str
    clean: Bools
    robust: Bools

    def row(self) -> dict[str, Any]:
        """The run as a row of a table."""
        return {
            "run": self.name, "method": self.method, "value": self.value, "seed": self.seed, "n": len(self.robust),
            "clean": float(self.clean.mean()), "robust": float(self.robust.mean()),
        }  # fmt: skip


@dataclass(frozen=True)
class Point:
    """All runs with one parameter value."""

    method: str
    label: str
    runs: tuple[TradeOffRun, ...]
    clean: Interval
    robust: Interval

    @classmethod
    def of(cls, method: str, value: Any, runs: Sequence[TradeOffRun]) -> Point:
        """Pool the runs with one parameter value."""
        label = f"{value:g}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)
        clean, robust = pool_rates([run.clean for run in runs]), pool_rates([run.robust for run in runs])
        return cls(method, label, tuple(runs), clean, robust)


def _clean(run: TradeOffRun) -> Bools:
    return run.clean


def _robust(run: TradeOffRun) -> Bools:
    return run.robust


def pool_rates(outcomes: Sequence[Bools], level: float = 0.95) -> Interval:
    """A rate over several seeds, with the wider of the intervals over examples and over seeds.

    The examples are the same for every seed, so that many seeds do not narrow the luck of the sample: its interval is
    that of one run's number of examples at the pooled rate.
    """
    rates = np.array([each.mean() for each in outcomes])
    size = round(float(np.mean([len(each) for each in outcomes])))
    rate = float(rates.mean())
    examples = wilson(round(rate * size), size, level)
    if len(rates) < 2:
        return examples
    from scipy.special import stdtrit

    half = float(stdtrit(len(rates) - 1, 0.5 + level / 2)) * float(rates.std(ddof=1)) / len(rates) ** 0.5
    low, high = min(examples.low, rate - half), max(examples.high, rate + half)
    return Interval(rate, max(0.0, low), min(1.0, high), level)


def _order_key(item: tuple[tuple[str, Any], Any]) -> tuple[str, int, float, str]:
    (method, value), _ = item
    is_number = isinstance(value, int | float)
    return method, 0 if is_number else 1, float(value) if is_number else 0.0, str(value)


def _notes(runs: Sequence[TradeOffRun], points: Sequence[Point]) -> tuple[str, ...]:
    notes = []
    sizes = sorted({len(run.robust) for run in runs})
    if len(sizes) > 1:
        notes.append(f"The runs were attacked on {sizes[0]} to {sizes[-1]} examples: compare them with care.")
    if any(len(point.runs) == 2 for point in points):
        notes.append("Two seeds say next to nothing about others: with three the intervals would be a third as wide.")
    return tuple(notes)
