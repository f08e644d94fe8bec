"""``--fail-under``: a bar a rate must reach, judged by its interval.

the whole interval is at or over the bar     exit 0
the whole interval is under the bar          exit 1
the interval straddles the bar               exit 3: attack more examples to know

Where several attacks ran they are also judged together. A robust accuracy that reaches the bar only by examples on
which nothing was tried is inconclusive too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import ExitCode, UnknownName, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus.core.statistics import Interval
    from isthmus.report.evaluations import EvaluationView
    from isthmus.report.view import RunView

_RATES = ("racc", "sacc")
CERTIFIED = ("certified", "clean")
"""Rates of a certificate."""
PASSED, FAILED, INCONCLUSIVE = ExitCode.PASSED, ExitCode.FAILED, ExitCode.INCONCLUSIVE


@dataclass(frozen=True)
class Bar:
    """Rates and the least each must be."""

    least: dict[str, float]

    @classmethod
    def parse(cls, given: str, rates: Sequence[str] = _RATES) -> Bar:
        """Read ``racc=0.40`` or ``racc=0.40,sacc=0.85``."""
        found: dict[str, float] = {}
        for part in given.split(","):
            name, _, value = (piece.strip() for piece in part.partition("="))
            if name not in rates:
                raise UnknownName("rate for --fail-under", name, rates)
            try:
                found[name] = float(value)
            except ValueError:
                raise UsageError(f"--fail-under takes {name}=RATE, such as {name}=0.40, not {part!r}") from None
            if not 0 <= found[name] <= 1:
                raise UsageError(f"--fail-under: {name} is a rate between 0 and 1, not {value}")
        return cls(found)

    def to_json(self) -> dict[str, Any]:
        """The bar as it was given."""
        return dict(self.least)

    def judge(self, console: Console, run: RunView, keys: Sequence[str]) -> int:
        """Print a line per attack and rate; the worst decides the exit code."""
        codes = []
        judged = [(view.key, view.summary) for view in run.attacks if view.key in keys]
        if run.together is not None and len(judged) > 1:
            judged.append(("all together", run.together))
        for name, summary in judged:
            for rate, least in self.least.items():
                interval: Interval = getattr(summary, rate)
                code, remedy = verdict(interval, least), "the interval straddles the bar: attack more examples with --n"
                if rate == "racc" and code == PASSED and verdict(summary.proven, least) != PASSED:
                    code = INCONCLUSIVE
                    remedy = f"only with {summary.no_candidates} examples on which nothing was tried is the bar reached"
                codes.append(code)
                say(console, code, f"{name} {rate}", interval, least, remedy)
        return worst(codes)

    def judge_rates(self, console: Console, name: str, rates: Mapping[str, Interval]) -> int:
        """Print a line per rate; the worst decides the exit code."""
        codes = []
        for rate, least in self.least.items():
            codes.append(verdict(rates[rate], least))
            remedy = "the interval straddles the bar: take more examples with --n"
            say(console, codes[-1], f"{name} {rate}", rates[rate], least, remedy)
        return worst(codes)

    def judge_evaluations(self, console: Console, views: Sequence[EvaluationView]) -> int:
        """Print a line per set and rate; a bar reached only without the texts that had no answer is not reached."""
        codes = []
        for view in views:
            for rate, least in self.least.items():
                if rate not in view.rates:
                    raise UnknownName(f"rate of {view.key} for --fail-under", rate, view.rates)
                interval = view.rates[rate]
                code, remedy = verdict(interval, least), "the interval straddles the bar: evaluate on more examples"
                if code == PASSED and not _passes_whatever_was_refused(view, interval, least):
                    code = INCONCLUSIVE
                    remedy = f"only without the {view.errors} texts that had no answer is the bar reached"
                codes.append(code)
                say(console, code, f"{view.key} {rate}", interval, least, remedy)
        return worst(codes)


def _passes_whatever_was_refused(view: EvaluationView, interval: Interval, least: float) -> bool:
    """Whether an accuracy stays over the bar when every text without an answer counts as wrong."""
    from isthmus.core.statistics import wilson

    answered = int(view.summary.get("answered") or 0)
    if view.answers_questions or not answered:
        return True  # Questions without an answer are not the model's doing: the data lack one.
    return verdict(wilson(round(interval.estimate * answered), answered + view.errors), least) == PASSED


def say(console: Console, code: ExitCode, what: str, interval: Interval, least: float, remedy: str) -> None:
    """One line about a rate and its bar, and what to do where the sample cannot tell."""
    from rich.text import Text

    word, colour = {
        PASSED: ("passed", "green"),
        FAILED: ("under the bar", "red"),
        INCONCLUSIVE: ("inconclusive", "yellow"),
    }[code]
    shown = f"{interval.estimate:.3f} ({interval.low:.3f}–{interval.high:.3f})"
    console.print(Text.assemble((word, f"bold {colour}"), f"  {what} {shown}, bar {least:g}"))
    if code == INCONCLUSIVE:
        console.print(Text(f"  {remedy}", style="dim"))


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """The exit code of several verdicts."""
    return next((code for code in (FAILED, INCONCLUSIVE) if code in codes), PASSED)


def verdict(interval: Interval, least: float) -> ExitCode:
    """0 where the rate is at least the bar, 1 where it is under it, 3 where the sample cannot tell."""
    if interval.low >= least:
        return PASSED
    return FAILED if interval.high < least else INCONCLUSIVE
