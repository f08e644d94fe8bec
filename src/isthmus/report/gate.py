"""Limits on rates (``--fail-under``, ``--fail-over``, `isthmus.gate`), judged by their intervals.

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

If several attacks ran, they are also judged together. A limit that is kept only because of examples without candidates,
without a result or without a label is inconclusive too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from isthmus.core.errors import ExitCode, UnknownName, UsageError

if TYPE_CHECKING:
    from isthmus.core.statistics import Interval
    from isthmus.report.attack.view import AttackView
    from isthmus.report.evaluation.view import EvaluationView
    from isthmus.summaries.attack import Summary

ATTACKED = ("racc", "sacc", "balanced_racc", "balanced_sacc", "tpr")
"""Rates of an attack."""
CEILINGS = ("asr", "fpr")
"""Rates of an attack that have a maximum."""
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
class Check:
    """One rate beside its limit."""

    name: str
    """Of the attack, the set or the certificate."""
    rate: str
    interval: Interval
    limit: float
    code: ExitCode
    is_ceiling: bool = False
    remedy: str = ""
    """What would decide it, where it is inconclusive."""

    @property
    def outcome(self) -> str:
        """``passed``, ``failed`` or ``inconclusive``."""
        return self.code.name.lower()

    def __str__(self) -> str:
        found = self.interval
        shown = f"{found.estimate:.3f} ({found.low:.3f}–{found.high:.3f})"
        return f"{self.name} {self.rate} {shown}, {'maximum' if self.is_ceiling else 'minimum'} {self.limit:g}"


@dataclass(frozen=True)
class Judged:
    """The rates of one attack, set or certificate."""

    checks: tuple[Check, ...]
    warning: str = ""
    """What a reader must know of the model, such as that it always predicts one class."""


@dataclass(frozen=True, repr=False)
class Verdict:
    """What a gate decides: passed, failed, or inconclusive; the worst rate decides.

    >>> from isthmus import attack, gate
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good")] * 20
    >>> found = attack(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], "deepwordbug",
    ...                rows, labels=("bad", "good"))
    >>> verdict = gate(found, fail_under={"sacc": 0.8, "racc": 0.9})
    >>> verdict.outcome, [check.outcome for check in verdict.checks]
    ('failed', ['passed', 'failed'])
    """

    judged: tuple[Judged, ...]

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every rate beside its limit."""
        return tuple(check for each in self.judged for check in each.checks)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know beside it."""
        return tuple(each.warning for each in self.judged if each.warning)

    @property
    def exit_code(self) -> ExitCode:
        """What the command line exits with: 0, 1 or 3."""
        return worst([check.code for check in self.checks])

    @property
    def outcome(self) -> str:
        """``passed``, ``failed`` or ``inconclusive``."""
        return self.exit_code.name.lower()

    @property
    def passed(self) -> bool:
        """Whether every rate is on the right side of its limit with its whole interval."""
        return self.exit_code == PASSED

    def __repr__(self) -> str:
        return f"<Verdict {self.outcome}: {'; '.join(f'{check}: {check.outcome}' for check in self.checks)}>"


@dataclass(frozen=True)
class Gate:
    """The minimum of each rate in `--fail-under`, and the maximum of each in `--fail-over`."""

    least: dict[str, float]
    most: dict[str, float] = field(default_factory=dict)
    positive: str | None = None
    """The class whose `tpr` is judged, if more than one class is attacked."""

    @classmethod
    def parse(
        cls, under: str | None, rates: Sequence[str] = ATTACKED, *, over: str | None = None, positive: str | None = None
    ) -> Self | None:
        """Read ``racc=0.40`` or ``racc=0.40,sacc=0.85``, and maxima such as ``asr=0.60``; None if none is set."""
        if under is None and over is None:
            return None
        least = {} if under is None else _read_rates("--fail-under", under, rates, "--fail-over", CEILINGS)
        most = {} if over is None else _read_rates("--fail-over", over, CEILINGS, "--fail-under", rates)
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

    def judge_attacks(
        self, views: Sequence[AttackView], together: Summary | None = None, alike: AttackView | None = None
    ) -> list[Judged]:
        """The rates of each attack, and of their union where there is one; `alike` is one that is part of it."""
        from isthmus.report.attack.balance import constant

        found = []
        judged: list[tuple[str, AttackView, Summary]] = [(view.key, view, view.summary) for view in views]
        if together is not None and alike is not None and len(judged) > 1:
            judged.append(("all together", alike, together))
        for name, view, summary in judged:
            checks = []
            for rate, bar, is_ceiling in self._bars():
                one = _of_class(self.positive, view, summary) if rate == "tpr" else _of_attack(rate, view, summary)
                code, remedy = verdict(one.interval, bar, is_ceiling), _MORE
                if code == PASSED and verdict(one.at_worst, bar, is_ceiling) != PASSED:
                    code, remedy = INCONCLUSIVE, one.why
                checks.append(Check(name, rate, one.interval, bar, code, is_ceiling, remedy))
            found.append(Judged(tuple(checks), constant(view, summary)))
        return found

    def _bars(self) -> list[tuple[str, float, bool]]:
        floors = [(rate, bar, False) for rate, bar in self.least.items()]
        return floors + [(rate, bar, True) for rate, bar in self.most.items()]

    def judge_rates(self, name: str, rates: Mapping[str, Interval]) -> list[Judged]:
        """Rates that are known by name."""
        remedy = "the limit lies inside the interval: use more examples with --n"
        checks = [
            Check(name, rate, rates[rate], least, verdict(rates[rate], least), False, remedy)
            for rate, least in self.least.items()
        ]
        return [Judged(tuple(checks))]

    def judge_evaluations(self, views: Sequence[EvaluationView]) -> list[Judged]:
        """The rates on each set; one that passes only without unanswered texts is inconclusive."""
        found = []
        for view in views:
            rates, place = view.rates, None
            if "tpr" in self.least and not view.answers_questions:
                place = _positive(self.positive, view.class_names, view.key)
                rates |= {"tpr": view.recall(place)}
            checks = []
            for rate, least in self.least.items():
                if rate not in rates:
                    raise UnknownName(f"rate of {view.key} for --fail-under", rate, rates)
                interval = rates[rate]
                code, remedy = verdict(interval, least), "the limit lies inside the interval: evaluate on more examples"
                if code == PASSED and verdict(view.at_worst(rate, place), least) != PASSED:
                    code = INCONCLUSIVE
                    remedy = f"passes only if the {view.errors} texts without an answer are ignored"
                checks.append(Check(view.key, rate, interval, least, code, False, remedy))
            found.append(Judged(tuple(checks), view.constant()))
        return found


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
    from isthmus.report.attack.detector import DetectorFigures

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
        found = DetectorFigures.read(view.detection or {})
        false, without, answered = found.fpr, found.negatives_without_answer, found.negatives
        if not without:
            return _Rate(false, false)
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
