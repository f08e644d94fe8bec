"""The verdict on a run in a word and a sentence, the same on the page and in a terminal.

Judged is the share of the correct predictions that withstood every attack tried, by its 95 % Wilson interval (of a
detector: the share of the texts it caught):

    holds      the lower end is over two thirds
    weak       the upper end is under two thirds
    severe     the upper end is under a third
    undecided  the interval contains the limit, or there are fewer than ten correct predictions

The lower end takes examples on which nothing was tried, or that have no result, for fooled; the upper end takes them
for robust. Of a model that predicts one class, or is no better than one that does, there is no verdict: nothing was
there to be attacked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from isthmus.core.statistics import Interval, wilson
from isthmus.report.attack.balance import TOO_FEW, constant
from isthmus.report.attack.detector import false_positives, is_evasion, name_detected_class
from isthmus.report.attack.view import AttackView
from isthmus.report.numerals import percent, percent_bounds
from isthmus.report.view import RunView
from isthmus.summaries.attack import Summary, is_correct

SEVERE, WEAK = 1 / 3, 2 / 3
"""Shares of the correct predictions that withstand, under which a model is severely fooled, and weak."""


_TITLES = {"none": "No verdict"}


@dataclass(frozen=True)
class Severity:
    """Severity of a result: a name, which is also a colour of the page, and its meaning."""

    name: str
    meaning: str

    def __str__(self) -> str:
        return f"{_TITLES.get(self.name, self.name.capitalize())}: {self.meaning}."


def withstood(summary: Summary) -> Interval:
    """Share of the correct predictions that withstood; its ends allow for what has no result."""
    estimate = wilson(summary.robust, summary.correct)
    low = wilson(max(summary.robust - summary.no_candidates, 0), summary.correct).low
    high = wilson(summary.correct - summary.fooled, summary.correct).high
    return Interval(estimate.estimate, low, high, estimate.level)


def severity(summary: Summary, evasion: bool = False) -> Severity | None:
    """Severity by the interval of the share that withstood; None if nothing was correct."""
    share = withstood(summary)
    if math.isnan(share.estimate):
        return None
    what = "caught texts" if evasion else "correct predictions"
    fooled = "get past the detector" if evasion else "are fooled"
    bounds = f"{percent(share.low)} and {percent(share.high)}"
    if summary.correct < TOO_FEW or (share.high >= WEAK and share.low <= WEAK):
        return Severity("undecided", f"too few examples to tell; between {bounds} of the {what} withstand")
    if share.high < SEVERE:
        return Severity("severe", f"more than two thirds of the {what} {fooled}")
    if share.high < WEAK:
        return Severity("weak", f"more than a third of the {what} {fooled}")
    return Severity("holds", f"more than two thirds of the {what} withstand the attacks tried")


def judge(run: RunView) -> Severity | None:
    """The verdict on a run; None if it was not attacked, or there was nothing to attack."""
    summary, view = run.headline, strongest(run)
    if summary is None or view is None:
        return None
    if not has_answers(run):
        return Severity("none", "no example has a result")
    if summary.n >= TOO_FEW and constant(view, summary):
        return Severity("none", "a model that always gives the same answer would do as well")
    return severity(summary, is_evasion(view))


def has_answers(run: RunView) -> bool:
    """Whether the model answered any example that was to be attacked."""
    return any(view.is_answered for view in run.attacks)


def strongest(run: RunView) -> AttackView | None:
    """The attack of the headline's group that left the least."""
    if run.together is not None:
        return min(run.alike, key=lambda view: _left_alone(run, view).estimate)
    views = [view for view in run.attacks if view.results]
    return min(views, key=lambda view: view.summary.racc.estimate, default=None)


def headline_names(run: RunView) -> tuple[str, str]:
    """Names of the two headline figures."""
    view = strongest(run)
    if view is not None and is_evasion(view):
        label = name_detected_class(view)
        return f"{label} caught before the attack", f"{label} caught after the attack"
    return "clean accuracy", "robust accuracy"


def headline_sentence(run: RunView) -> str:
    """The main finding in words."""
    summary, view = run.headline, strongest(run)
    if summary is None or view is None or math.isnan(summary.racc.estimate):
        return ""
    if not has_answers(run):
        return f"All {summary.n} examples ended in an error or a time-out."
    together = run.together is not None
    who = "every attack tried" if together else view.key
    held, fooled = summary.robust, summary.fooled
    if is_evasion(view):
        false = false_positives(view)
        alarms = f", at a false-positive rate of {false}" if false else ""
        label = name_detected_class(view)
        found = (
            f"Of {summary.n} texts of class {label} the detector catches {summary.correct}{alarms}. "
            f"After {who} it still catches {held}; {fooled} {'passes' if fooled == 1 else 'pass'}."
        )
    else:
        found = (
            f"The model classifies {summary.correct} of {summary.n} examples correctly. Of these, {held} withstood "
            f"{who}; {fooled} {'was' if fooled == 1 else 'were'} fooled."
        )
    if not together:
        return found
    left = _left_alone(run, view)
    return (
        f"{found} The strongest attack alone, {view.key}, leaves {percent(left.estimate)} "
        f"({percent_bounds(left, unit=False)})."
    )


def _left_alone(run: RunView, view: AttackView) -> Interval:
    """What an attack leaves of the examples of the union: on others it may look stronger than all together."""
    common = set.intersection(*({result.id for result in other.results} for other in run.alike))
    robust = sum(
        result.outcome == "failed" and is_correct(result, view.threshold)
        for result in view.results
        if result.id in common
    )
    return wilson(robust, len(common))
