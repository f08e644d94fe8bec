"""``--fail-under`` and ``--fail-over``: limits on rates, judged by their intervals.

                                   --fail-under RATE=BAR        --fail-over RATE=BAR
    exit 0    the whole interval   is at or over the bar        is at or under the bar
    exit 1    the whole interval   is under the bar             is over the bar
    exit 3    the interval         straddles the bar: attack more examples to know

Rates of an attack:

    racc, sacc                     robust and clean accuracy
    balanced_racc, balanced_sacc   the same as means over the classes (`isthmus.summaries.balance`)
    tpr                            robust true-positive rate: share of one class that is right and stays so under
                                   attack. The class is that of --positive, or else of --from-label
    asr                            attack success; a ceiling
    fpr                            false-positive rate of the detector that --from-label evades; a ceiling

Where several attacks ran they are also judged together. A bar that is kept only thanks to examples on which nothing was
tried, or that have no result or no label, is inconclusive too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from isthmus.core.errors import ExitCode, UnknownName, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus.core.statistics import Interval
    from isthmus.report.attack.view import AttackView
    from isthmus.report.evaluation.view import EvaluationView
    from isthmus.report.view import RunView
    from isthmus.summaries.attack import Summary

_RATES = ("racc", "sacc", "balanced_racc", "balanced_sacc", "tpr")
_CEILINGS = ("asr", "fpr")
EVALUATED = ("accuracy", "balanced_accuracy", "tpr", "exact_match", "f1")
"""Rates of an evaluation."""
CERTIFIED = ("certified", "clean")
"""Rates of a certificate."""
PASSED, FAILED, INCONCLUSIVE = ExitCode.PASSED, ExitCode.FAILED, ExitCode.INCONCLUSIVE
_MORE = "the limit lies inside the interval: attack more examples with --n"


class _Rate(NamedTuple):
    """A rate, its worst case, and why the two differ."""

    interval: Interval
    at_worst: Interval
    why: str = ""


@dataclass(frozen=True)
class Bar:
    """The minimum of each rate in `--fail-under`, and the maximum of each in `--fail-over`."""

    least: dict[str, float]
    most: dict[str, float] = field(default_factory=dict)
    positive: str | None = None
    """The class whose `tpr` is judged, if more than one class is attacked."""

    @classmethod
    def parse(
        cls, under: str | None, rates: Sequence[str] = _RATES, *, over: str | None = None, positive: str | None = None
    ) -> Bar | None:
        """Read ``racc=0.40`` or ``racc=0.40,sacc=0.85``, and maxima such as ``asr=0.60``; None if none is set."""
        if under is None and over is None:
            return None
        least = {} if under is None else _read_rates("--fail-under", under, rates, "--fail-over", _CEILINGS)
        most = {} if over is None else _read_rates("--fail-over", over, _CEILINGS, "--fail-under", rates)
        return cls(least, most, positive)

    def check_goal(self, from_label: str | None) -> None:
        """Refuse rates that do not exist for the goal of this attack."""
        if "tpr" in self.least and self.positive is None and from_label is None:
            raise UsageError(
                "--fail-under tpr=… is the true-positive rate of one class: name it with --positive LABEL (or "
                "attack only that class: --from-label)"
            )
        if "fpr" in self.most and from_label is None:
            raise UsageError(
                "--fail-over fpr=… is the false-positive rate of a detector: name its class with --from-label"
            )

    def to_json(self) -> dict[str, Any]:
        """The limits as they were given."""
        found: dict[str, Any] = {"bar": dict(self.least)}
        if self.most:
            found["ceiling"] = dict(self.most)
        return found

    def judge(self, console: Console, run: RunView, keys: Sequence[str]) -> int:
        """Print a line per attack and rate; the worst decides the exit code."""
        from isthmus.report.attack.balance import constant

        codes = []
        views = [view for view in run.attacks if view.key in keys]
        judged: list[tuple[str, AttackView, Summary]] = [(view.key, view, view.summary) for view in views]
        if run.together is not None and len(judged) > 1:
            judged.append(("all together", run.alike[0], run.together))
        for name, view, summary in judged:
            for rate, bar, is_ceiling in self._bars():
                found = _of_class(self.positive, view, summary) if rate == "tpr" else _of_attack(rate, view, summary)
                code, remedy = verdict(found.interval, bar, is_ceiling), _MORE
                if code == PASSED and verdict(found.at_worst, bar, is_ceiling) != PASSED:
                    code, remedy = INCONCLUSIVE, found.why
                codes.append(code)
                say(console, code, f"{name} {rate}", found.interval, bar, remedy, is_ceiling)
            warning = constant(view, summary)
            if warning:
                say_also(console, warning)
        return worst(codes)

    def _bars(self) -> list[tuple[str, float, bool]]:
        floors = [(rate, bar, False) for rate, bar in self.least.items()]
        return floors + [(rate, bar, True) for rate, bar in self.most.items()]

    def judge_rates(self, console: Console, name: str, rates: Mapping[str, Interval]) -> int:
        """Print a line per rate; the worst decides the exit code."""
        codes = []
        for rate, least in self.least.items():
            codes.append(verdict(rates[rate], least))
            remedy = "the limit lies inside the interval: use more examples with --n"
            say(console, codes[-1], f"{name} {rate}", rates[rate], least, remedy)
        return worst(codes)

    def judge_evaluations(self, console: Console, views: Sequence[EvaluationView]) -> int:
        """Print a line per set and rate; a rate that passes only without unanswered texts is inconclusive."""
        codes = []
        for view in views:
            rates, place = view.rates, None
            if "tpr" in self.least and not view.answers_questions:
                place = _positive(self.positive, view.class_names, view.key)
                rates |= {"tpr": view.recall(place)}
            for rate, least in self.least.items():
                if rate not in rates:
                    raise UnknownName(f"rate of {view.key} for --fail-under", rate, rates)
                interval = rates[rate]
                code, remedy = verdict(interval, least), "the limit lies inside the interval: evaluate on more examples"
                if code == PASSED and verdict(view.at_worst(rate, place), least) != PASSED:
                    code = INCONCLUSIVE
                    remedy = f"passes only if the {view.errors} texts without an answer are ignored"
                codes.append(code)
                say(console, code, f"{view.key} {rate}", interval, least, remedy)
            if view.constant():
                say_also(console, view.constant())
        return worst(codes)


def _read_rates(option: str, given: str, rates: Sequence[str], other: str, others: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in given.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name in others and name not in rates:
            raise UsageError(f"{option} {name}: use {other} {name}=RATE for that rate")
        if name not in rates:
            raise UnknownName(f"rate for {option}", name, rates)
        if name in found:
            raise UsageError(f"{option} sets {name} twice: give it once")
        try:
            found[name] = float(value)
        except ValueError:
            raise UsageError(f"{option} takes {name}=RATE, such as {name}=0.40, not {part!r}") from None
        if not 0 <= found[name] <= 1:
            raise UsageError(f"{option}: {name} is a rate between 0 and 1, not {value}")
    return found


def _of_attack(rate: str, view: AttackView, summary: Summary) -> _Rate:
    """A rate of one attack."""
    from isthmus.core.statistics import wilson
    from isthmus.report.numerals import read_interval

    untried = f"passes only if {summary.no_candidates} examples without candidates count as robust"
    unread = f"passes only if {summary.balance.unlabelled} unreadable records are ignored"
    if rate == "racc":
        return _Rate(summary.racc, summary.proven, untried)
    if rate == "balanced_racc":
        why = untried if summary.no_candidates else unread
        return _Rate(summary.balanced_racc, summary.balance.racc_at_least, why)
    if rate == "balanced_sacc":
        return _Rate(summary.balanced_sacc, summary.balance.sacc_at_least, unread)
    if rate == "asr":
        without = summary.timed_out + summary.errors + summary.abstained_after
        why = f"passes only if {without} examples without a result are ignored and {summary.no_candidates} examples "
        return _Rate(summary.asr, summary.asr_at_most, why + "without candidates count as robust")
    if rate == "fpr":
        found = view.detection or {}
        false, without = read_interval(found.get("fpr")), int(found.get("negatives_without_answer") or 0)
        if not without:
            return _Rate(false, false)
        answered = int(found.get("negatives") or 0)
        flagged = round(false.estimate * answered) if answered else 0
        why = f"passes only if {without} clean texts of other classes without an answer are ignored"
        return _Rate(false, wilson(flagged + without, answered + without), why)
    return _Rate(summary.sacc, summary.sacc)


def _of_class(positive: str | None, view: AttackView, summary: Summary) -> _Rate:
    """The robust true-positive rate of a class."""
    from isthmus.core.statistics import wilson

    balance = summary.balance
    if positive is not None:
        number = _positive(positive, dict(enumerate(view.labels)), view.key)
        found = balance.of_class(number)
    else:
        found = balance.classes[0] if len(balance.classes) == 1 else None  # --from-label attacks a single class.
    if found is None:
        return _Rate(wilson(0, 0), wilson(0, 0))
    certain = wilson(found.robust - found.no_candidates, found.n + balance.unlabelled)
    why = (
        f"passes only if {found.no_candidates} examples without candidates count as robust and "
        f"{balance.unlabelled} unreadable records are ignored"
    )
    return _Rate(found.robust_recall, certain, why)


def _positive(name: str | None, labels: Mapping[int, str], key: str) -> int:
    """The number of a class, given by its name, or by its number if no class has that name."""
    if name is None:
        raise UsageError("--fail-under tpr=… is the true-positive rate of one class: name it with --positive LABEL")
    for number, label in labels.items():
        if name.casefold() == label.casefold():
            return number
    if name.isascii() and name.isdigit() and int(name) in labels:
        return int(name)
    raise UnknownName(f"class in {key} for --positive", name, labels.values())


def say(
    console: Console, code: ExitCode, what: str, interval: Interval, bar: float, remedy: str, is_ceiling: bool = False
) -> None:
    """Print one line about a rate and its limit, and what to do if it is inconclusive."""
    from rich.text import Text

    word, colour = {
        PASSED: ("passed", "green"),
        FAILED: ("above the maximum" if is_ceiling else "below the minimum", "red"),
        INCONCLUSIVE: ("inconclusive", "yellow"),
    }[code]
    shown = f"{interval.estimate:.3f} ({interval.low:.3f}–{interval.high:.3f})"
    console.print(
        Text.assemble((word, f"bold {colour}"), f"  {what} {shown}, {'maximum' if is_ceiling else 'minimum'} {bar:g}")
    )
    if code == INCONCLUSIVE:
        console.print(Text(f"  {remedy}", style="dim"))


def say_also(console: Console, warning: str) -> None:
    """Print a warning under the verdicts."""
    from rich.text import Text

    console.print(Text(f"  {warning}", style="yellow"))


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """The exit code of several verdicts."""
    return next((code for code in (FAILED, INCONCLUSIVE) if code in codes), PASSED)


def verdict(interval: Interval, bar: float, is_ceiling: bool = False) -> ExitCode:
    """Exit code: 0 if the whole interval is within the limit, 1 if it is beyond it, 3 otherwise."""
    keeps, breaks = interval.low >= bar, interval.high < bar
    if is_ceiling:
        keeps, breaks = interval.high <= bar, interval.low > bar
    if keeps:
        return PASSED
    return FAILED if breaks else INCONCLUSIVE
