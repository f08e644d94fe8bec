"""``--fail-under`` and ``--fail-over``: verdicts printed, and the exit code they lead to (`isthmus.report.gate`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from isthmus.report import gate
from isthmus.report.gate import CERTIFIED, EVALUATED, FAILED, INCONCLUSIVE, PASSED, Check, Judged, verdict, worst

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus.core.statistics import Interval
    from isthmus.report.evaluation.view import EvaluationView
    from isthmus.report.view import RunView

__all__ = ["CERTIFIED", "EVALUATED", "FAILED", "INCONCLUSIVE", "PASSED", "PrintedGate", "verdict"]


class PrintedGate(gate.Gate):
    """Limits whose verdicts are printed."""

    def judge(self, console: Console, run: RunView, keys: Sequence[str]) -> int:
        """Print a line per attack and rate; the worst decides the exit code."""
        views = [view for view in run.attacks if view.key in keys]
        return _print(console, self.judge_attacks(views, run.together, next(iter(run.alike), None)))

    def print_rates(self, console: Console, name: str, rates: Mapping[str, Interval]) -> int:
        """Print a line per rate; the worst decides the exit code."""
        return _print(console, self.judge_rates(name, rates))

    def print_evaluations(self, console: Console, views: Sequence[EvaluationView]) -> int:
        """Print a line per set and rate; the worst decides the exit code."""
        return _print(console, self.judge_evaluations(views))


def _print(console: Console, judged: Sequence[Judged]) -> int:
    from rich.text import Text

    for each in judged:
        for check in each.checks:
            _print_check(console, check)
        if each.warning:
            console.print(Text(f"  {each.warning}", style="yellow"))
    return worst([check.code for each in judged for check in each.checks])


def _print_check(console: Console, check: Check) -> None:
    """Print one line about a rate and its limit, and what to do if it is inconclusive."""
    from rich.text import Text

    word, colour = {
        PASSED: ("passed", "green"),
        FAILED: ("above the maximum" if check.is_ceiling else "below the minimum", "red"),
        INCONCLUSIVE: ("inconclusive", "yellow"),
    }[check.code]
    console.print(Text.assemble((word, f"bold {colour}"), f"  {check}"))
    if check.code == INCONCLUSIVE:
        console.print(Text(f"  {check.remedy}", style="dim"))
