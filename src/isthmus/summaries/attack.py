"""Figures of an attack, computed from its results alone.

With N examples asked for, of which every one has a result:

    clean accuracy   sacc = correct / N
    robust accuracy  racc = (correct and the attack failed) / N
    attack success   asr  = succeeded / (succeeded + failed)
    avg_queries      mean logical queries over succeeded and failed
    words_changed    mean share of words changed over succeeded (images: linf and l2, mean distances over succeeded)
    similarity       mean cosine of original and adversarial text over succeeded, where a sentence encoder was at hand
    no_candidates    failed without a single candidate tried: the word list lacks every word, the rules allow none of
                     its words, the budget does not reach for the first, or (no_words) no word may be edited

    abstained        the classifier declined to answer: neither right nor fooled
      before         it declined the text as it was, so that nothing was attacked: in no accuracy, in no success
      after          it was right about the text as it was, and declines the one the attack ended with: in the clean
                     accuracy, neither in the robust one nor among the successes

Of a randomised classifier also, on draws that the attack never saw (`Fresh` and `Clean` in `isthmus.attacks.result`):

    claimed              texts that seemed to fool it, each looked at again
    success_probability  mean share of fresh draws on which such a text fools the classifier
    expected_racc        mean over all texts of the share of fresh draws on which it is right about what an attack ended
                         with: the text it made, or the text as it was where nothing was attacked or changed
    expected_sacc        mean over all texts, unattacked, of the share of fresh draws on which it is right

An example the classifier gets wrong unattacked is skipped and counts as wrong in both accuracies. An error or a
time-out is its own outcome: it stays in N and is never robust. Without either, asr = 1 - racc / sacc (untargeted).
An example without candidates counts as robust by the definition of racc. So the number of such examples is reported
beside it. Rates have Wilson intervals, means have bootstrap intervals.

Robust accuracy at a budget of q queries counts an attack that needed more than q as failed, so one run gives the whole
curve.

What each class contributes, balanced accuracy among it, is in `isthmus.summaries.balance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.statistics import Interval, bootstrap_mean, json_number, wilson
from isthmus.summaries.balance import Balance, BalanceRow

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

OUTCOMES = ("succeeded", "failed", "skipped", "timed_out", "error", "abstained")
_FIGURES = (
    "sacc",
    "racc",
    "balanced_sacc",
    "balanced_racc",
    "asr",
    "avg_queries",
    "words_changed",
    "similarity",
)
_DRAWS = 2_000


@dataclass(frozen=True)
class FreshSummary:
    """The figures of a randomised classifier on fresh draws: for clean texts, and for those that seemed to fool it."""

    claimed: int
    held: int
    draws: int
    success_probability: Interval
    expected_racc: Interval
    expected_sacc: Interval
    """Not a number in rows of a version that did not look at clean texts."""

    def to_json(self) -> dict[str, Any]:
        """Figures without nesting, and their bounds."""
        rates = {name: getattr(self, name) for name in ("success_probability", "expected_racc", "expected_sacc")}
        return {
            "claimed": self.claimed,
            "held": self.held,
            "draws": self.draws,
            **{name: json_number(interval.estimate) for name, interval in rates.items()},
            "intervals": {
                name: [json_number(interval.low), json_number(interval.high)] for name, interval in rates.items()
            },
        }


@dataclass(frozen=True)
class Summary:
    """The figures of one attack on one sample."""

    n: int
    correct: int
    succeeded: int
    failed: int
    skipped: int
    timed_out: int
    errors: int
    sacc: Interval
    racc: Interval
    asr: Interval
    avg_queries: Interval
    words_changed: Interval
    similarity: Interval
    queries: int
    physical_queries: int
    fooled: int = 0
    """Examples that were classified correctly and fooled by the attack."""
    no_candidates: int = 0
    no_words: int = 0
    abstained_before: int = 0
    abstained_after: int = 0
    fresh: FreshSummary | None = None
    """Of a randomised classifier only."""
    balance: Balance = field(default_factory=lambda: Balance(()))
    linf: Interval | None = None
    """Images: mean of the largest change of a pixel over the successes."""
    l2: Interval | None = None
    """Images: mean length of the change over the successes."""
    blind: int = 0
    """Images on which the gradient was zero at the first step: gradients are probably masked."""

    @property
    def balanced_sacc(self) -> Interval:
        """Mean over classes of the share that is right without attack."""
        return self.balance.sacc

    @property
    def balanced_racc(self) -> Interval:
        """Mean over classes of the share that is right and withstood the attack."""
        return self.balance.racc

    @property
    def robust(self) -> int:
        """Examples that were right and withstood the attack."""
        return round(self.racc.estimate * self.n) if self.n else 0

    @property
    def abstained(self) -> int:
        """Examples that the classifier declined to answer, before the attack or at its end."""
        return self.abstained_before + self.abstained_after

    @property
    def attacked(self) -> int:
        """Examples whose attack succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def proven(self) -> Interval:
        """Robust accuracy without the examples that had no candidates: a lower bound."""
        return wilson(self.robust - self.no_candidates, self.n)

    @property
    def asr_at_most(self) -> Interval:
        """Attack success if every example without a result were fooled, of those that had candidates."""
        undecided = self.timed_out + self.errors + self.abstained_after
        return wilson(self.succeeded + undecided, self.attacked + undecided - self.no_candidates)

    def to_json(self) -> dict[str, Any]:
        """Figures without nesting, and the bounds of each under ``intervals``."""
        rates = {name: getattr(self, name) for name in _FIGURES}
        figures: dict[str, Any] = {
            "n": self.n,
            **{name: json_number(interval.estimate) for name, interval in rates.items()},
            "queries": self.queries,
            "physical_queries": self.physical_queries,
            "no_candidates": self.no_candidates,
            "no_words": self.no_words,
            **self.balance.to_json(),
            "outcomes": {
                "succeeded": self.succeeded,
                "failed": self.failed,
                "skipped": self.skipped,
                "timed_out": self.timed_out,
                "error": self.errors,
            },
            "intervals": {
                name: [json_number(interval.low), json_number(interval.high)] for name, interval in rates.items()
            },
        }
        if self.abstained:
            figures["outcomes"]["abstained"] = self.abstained
            figures["abstained"] = {"before": self.abstained_before, "after": self.abstained_after}
        if self.fresh is not None:
            figures["fresh"] = self.fresh.to_json()
        if self.linf is not None and self.l2 is not None:
            figures |= {
                "linf": json_number(self.linf.estimate),
                "l2": json_number(self.l2.estimate),
                "blind": self.blind,
            }
            moved = {"linf": self.linf, "l2": self.l2}
            figures["intervals"] |= {
                name: [json_number(each.low), json_number(each.high)] for name, each in moved.items()
            }
        return figures


def summarise(results: Sequence[AttackResult], threshold: float | None = None) -> Summary:
    """The figures of `results`; `threshold` is that of an evasion goal, where "correct" means detected."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in OUTCOMES}
    correct = [is_correct(result, threshold) for result in results]
    right = [result for is_right, result in zip(correct, results, strict=True) if is_right]
    robust = sum(result.outcome == "failed" for result in right)
    attacked = [result for result in results if result.outcome in ("succeeded", "failed")]
    empty = [result for result in right if without_candidates(result)]
    # Only what is right is attacked, so whatever was not right was declined as it was.
    declined_after = sum(result.outcome == "abstained" for result in right)
    return Summary(
        n=len(results),
        correct=sum(correct),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        skipped=counts["skipped"],
        timed_out=counts["timed_out"],
        errors=counts["error"],
        sacc=wilson(sum(correct), len(results)),
        racc=wilson(robust, len(results)),
        asr=wilson(counts["succeeded"], len(attacked)),
        avg_queries=bootstrap_mean([float(result.logical_queries) for result in attacked], draws=_DRAWS),
        words_changed=bootstrap_mean(shares_of_words_changed(results), draws=_DRAWS),
        similarity=bootstrap_mean(similarities(results), draws=_DRAWS),
        queries=sum(result.logical_queries for result in results),
        physical_queries=sum(result.physical_queries for result in results),
        fooled=sum(result.outcome == "succeeded" for result in right),
        no_candidates=len(empty),
        no_words=sum(not result.words for result in empty),
        abstained_before=counts["abstained"] - declined_after,
        abstained_after=declined_after,
        fresh=_fresh(results, correct),
        balance=Balance.of(
            _make_balance_row(result, is_right) for is_right, result in zip(correct, results, strict=True)
        ),
        linf=_mean_moved(results, [result.linf for result in results]),
        l2=_mean_moved(results, [result.l2 for result in results]),
        blind=sum(bool(result.blind) for result in results),
    )


def _mean_moved(results: Sequence[AttackResult], distances: Sequence[float | None]) -> Interval | None:
    """Mean distance between image and adversarial image over the successes; None for texts."""
    if all(distance is None for distance in distances):
        return None
    pairs = zip(results, distances, strict=True)
    return bootstrap_mean([float(far or 0) for result, far in pairs if result.outcome == "succeeded"], draws=_DRAWS)


def _make_balance_row(result: AttackResult, right: bool) -> BalanceRow:
    robust = right and result.outcome == "failed"
    return BalanceRow(result.label, result.prediction_before, right, robust, robust and without_candidates(result))


def _fresh(results: Sequence[AttackResult], correct: Sequence[bool]) -> FreshSummary | None:
    looked, steady = (
        [result for result in results if result.fresh and result.fresh.claimed],
        clean_probabilities(results),
    )
    if not looked and not steady:
        return None
    holds = [_holding(result, right) for right, result in zip(correct, results, strict=True)]
    return FreshSummary(
        claimed=len(looked),
        held=sum(result.outcome == "succeeded" for result in looked),
        draws=sum(result.fresh.draws for result in looked if result.fresh),
        success_probability=bootstrap_mean(success_probabilities(results), draws=_DRAWS),
        expected_racc=bootstrap_mean(holds, draws=_DRAWS),
        expected_sacc=bootstrap_mean(steady, draws=_DRAWS),
    )


def _holding(result: AttackResult, right: bool = True) -> float:
    """Probability that the classifier is right on the attack's final text."""
    fresh, clean = result.fresh, result.clean
    if fresh is not None:
        return 1.0 - (fresh.reached + fresh.abstained) / fresh.draws
    if clean is not None and result.outcome in ("failed", "skipped", "abstained"):
        return clean.right / clean.draws
    return float(right and result.outcome == "failed")


def success_probabilities(results: Sequence[AttackResult]) -> list[float]:
    """For each text that seemed to fool a randomised classifier, the share of fresh draws on which it does."""
    return [result.fresh.reached / result.fresh.draws for result in results if result.fresh and result.fresh.claimed]


def clean_probabilities(results: Sequence[AttackResult]) -> list[float]:
    """For each unattacked text, the share of fresh draws on which a randomised classifier is right."""
    return [result.clean.right / result.clean.draws for result in results if result.clean]


def holding_probabilities(results: Sequence[AttackResult]) -> list[float]:
    """For each text that seemed to fool a randomised classifier, the share of fresh draws on which it is right."""
    return [_holding(result) for result in results if result.fresh and result.fresh.claimed]


def without_candidates(result: AttackResult) -> bool:
    """Whether the attack failed without candidates: it found none, or asked nothing after the first query."""
    return result.outcome == "failed" and (result.candidates == 0 or result.logical_queries <= 1)


def is_correct(result: AttackResult, threshold: float | None = None) -> bool:
    """Whether the classifier was right before the attack; False if it never answered."""
    if threshold is None:
        return result.prediction_before is not None and result.prediction_before == result.label
    if not result.score_before or result.label is None:
        return False
    return result.score_before[result.label] >= threshold


def shares_of_words_changed(results: Sequence[AttackResult]) -> list[float]:
    """Share of words changed in each success."""
    return [float(result.words_changed) for result in results if result.outcome == "succeeded"]


def similarities(results: Sequence[AttackResult]) -> list[float]:
    """Similarity of the two texts of each success that has one."""
    found = [result.similarity for result in results if result.outcome == "succeeded"]
    return [float(value) for value in found if value is not None]


@dataclass(frozen=True)
class BudgetCurve:
    """Robust accuracy against the attacker's query budget per example."""

    budgets: tuple[int, ...]
    racc: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def budget_curve(results: Sequence[AttackResult], threshold: float | None = None) -> BudgetCurve:
    """The exact step curve: it falls at each number of queries at which an attack succeeded."""
    right = [result for result in results if is_correct(result, threshold)]
    robust = sum(result.outcome == "failed" for result in right)
    needed = np.sort([result.logical_queries for result in right if result.outcome == "succeeded"]).astype(int)
    budgets = [0, *np.unique(needed).tolist()]
    standing = [robust + len(needed) - int(np.searchsorted(needed, budget, side="right")) for budget in budgets]
    intervals = [wilson(count, len(results)) for count in standing]
    return BudgetCurve(
        tuple(budgets),
        tuple(interval.estimate for interval in intervals),
        tuple(interval.low for interval in intervals),
        tuple(interval.high for interval in intervals),
    )


def together(attacks: Sequence[Sequence[AttackResult]]) -> list[AttackResult]:
    """Results of an attacker who tries every attack on each example and keeps the success with the fewest words
    changed.

    Only examples that every attack has a result for count; queries add up.
    """
    tables = [{result.id: result for result in results} for results in attacks]
    if not tables:
        return []
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    return [_strongest([table[key] for table in tables]) for key in shared]


def _strongest(results: Sequence[AttackResult]) -> AttackResult:
    won = [result for result in results if result.outcome == "succeeded"]
    if won:
        best = min(won, key=lambda each: (each.words_changed, each.l2 or 0.0, each.logical_queries))
    else:
        # An error or a time-out leaves open whether the example holds, so it must not read as robust.
        rank = {"error": 0, "timed_out": 1, "abstained": 2, "skipped": 3, "failed": 4}
        best = min(results, key=lambda each: rank[each.outcome])
    # Where one attack ended in an error before it asked, another still knows the clean answer.
    known = next((each for each in (best, *results) if each.prediction_before is not None), best)
    return replace(
        best,
        label=known.label,
        prediction_before=known.prediction_before,
        score_before=known.score_before,
        logical_queries=sum(each.logical_queries for each in results),
        physical_queries=sum(each.physical_queries for each in results),
        candidates=sum(each.candidates for each in results),
    )
