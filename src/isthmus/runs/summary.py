"""Figures of an attack, computed from its rows and from nothing else.

With N examples asked for, of which every one has a row:

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
An example without candidates is robust by the definition of racc though nothing was tried on it, which is why the count
stands beside it. Rates carry Wilson intervals, means carry bootstrap intervals.

Robust accuracy at a budget of q queries counts an attack that needed more than q as failed, so one run gives the whole
curve.

What each class contributes, balanced accuracy among it, is in `isthmus.runs.balance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isthmus.core.statistics import Interval, bootstrap_mean, wilson
from isthmus.runs.balance import Balance, Seen

Row = Mapping[str, Any]
Rows = Sequence[Row]

OUTCOMES = ("succeeded", "failed", "skipped", "timed_out", "error", "abstained")
_FIGURES = ("sacc", "racc", "balanced_sacc", "balanced_racc", "asr", "avg_queries", "words_changed", "similarity")
_DRAWS = 2_000


@dataclass(frozen=True)
class FreshSummary:
    """What fresh draws of a randomised classifier say about clean texts, and about those that seemed to fool it."""

    claimed: int
    held: int
    draws: int
    success_probability: Interval
    expected_racc: Interval
    expected_sacc: Interval
    """Not a number in rows of a version that did not look at clean texts."""

    def to_json(self) -> dict[str, Any]:
        """Flat figures, and their bounds."""
        rates = {name: getattr(self, name) for name in ("success_probability", "expected_racc", "expected_sacc")}
        return {
            "claimed": self.claimed,
            "held": self.held,
            "draws": self.draws,
            **{name: _number(interval.estimate) for name, interval in rates.items()},
            "intervals": {name: [_number(interval.low), _number(interval.high)] for name, interval in rates.items()},
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
    turned: int = 0
    """Examples that were right and that the attack turned."""
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
    """Images on which the gradient was zero at the first step: masked gradients are suspected."""

    @property
    def balanced_sacc(self) -> Interval:
        """Mean over classes of the share that is right unattacked."""
        return self.balance.sacc

    @property
    def balanced_racc(self) -> Interval:
        """Mean over classes of the share that is right and that the attack failed on."""
        return self.balance.racc

    @property
    def robust(self) -> int:
        """Examples that were right and that the attack failed on."""
        return round(self.racc.estimate * self.n) if self.n else 0

    @property
    def abstained(self) -> int:
        """Examples that the classifier declined to answer, unattacked or at the end."""
        return self.abstained_before + self.abstained_after

    @property
    def attacked(self) -> int:
        """Examples whose attack ended one way or the other."""
        return self.succeeded + self.failed

    @property
    def proven(self) -> Interval:
        """Robust accuracy without the examples for which nothing was tried: what the attack shows at least."""
        return wilson(self.robust - self.no_candidates, self.n)

    @property
    def asr_at_most(self) -> Interval:
        """Attack success if every example without a result were one, of those on which something was tried."""
        undecided = self.timed_out + self.errors + self.abstained_after
        return wilson(self.succeeded + undecided, self.attacked + undecided - self.no_candidates)

    def to_json(self) -> dict[str, Any]:
        """Flat figures, and the bounds of each under ``intervals``."""
        rates = {name: getattr(self, name) for name in _FIGURES}
        figures: dict[str, Any] = {
            "n": self.n,
            **{name: _number(interval.estimate) for name, interval in rates.items()},
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
            "intervals": {name: [_number(interval.low), _number(interval.high)] for name, interval in rates.items()},
        }
        if self.abstained:
            figures["outcomes"]["abstained"] = self.abstained
            figures["abstained"] = {"before": self.abstained_before, "after": self.abstained_after}
        if self.fresh is not None:
            figures["fresh"] = self.fresh.to_json()
        if self.linf is not None and self.l2 is not None:
            figures |= {"linf": _number(self.linf.estimate), "l2": _number(self.l2.estimate), "blind": self.blind}
            moved = {"linf": self.linf, "l2": self.l2}
            figures["intervals"] |= {name: [_number(each.low), _number(each.high)] for name, each in moved.items()}
        return figures


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)


def summarise(rows: Rows, threshold: float | None = None) -> Summary:
    """The figures of `rows`; `threshold` is that of an evasion goal, where "correct" means detected."""
    counts = {outcome: sum(row["outcome"] == outcome for row in rows) for outcome in OUTCOMES}
    correct = [is_correct(row, threshold) for row in rows]
    robust = sum(right and row["outcome"] == "failed" for right, row in zip(correct, rows, strict=True))
    attacked = [row for row in rows if row["outcome"] in ("succeeded", "failed")]
    empty = [row for right, row in zip(correct, rows, strict=True) if right and without_candidates(row)]
    # Only what is right is attacked, so whatever was not right was declined as it was.
    declined = [right for right, row in zip(correct, rows, strict=True) if row["outcome"] == "abstained"]
    return Summary(
        n=len(rows),
        correct=sum(correct),
        succeeded=counts["succeeded"],
        failed=counts["failed"],
        skipped=counts["skipped"],
        timed_out=counts["timed_out"],
        errors=counts["error"],
        sacc=wilson(sum(correct), len(rows)),
        racc=wilson(robust, len(rows)),
        asr=wilson(counts["succeeded"], len(attacked)),
        avg_queries=bootstrap_mean([float(queries(row)) for row in attacked], draws=_DRAWS),
        words_changed=bootstrap_mean(words_changed(rows), draws=_DRAWS),
        similarity=bootstrap_mean(similarities(rows), draws=_DRAWS),
        queries=sum(queries(row) for row in rows),
        physical_queries=sum(int(row.get("physical_queries") or 0) for row in rows),
        turned=sum(right and row["outcome"] == "succeeded" for right, row in zip(correct, rows, strict=True)),
        no_candidates=len(empty),
        no_words=sum(not row.get("words") for row in empty),
        abstained_before=len(declined) - sum(declined),
        abstained_after=sum(declined),
        fresh=_fresh(rows, correct),
        balance=Balance.of(_seen(row, right) for right, row in zip(correct, rows, strict=True)),
        linf=_moved(rows, "linf"),
        l2=_moved(rows, "l2"),
        blind=sum(bool(row.get("blind")) for row in rows),
    )


def _moved(rows: Rows, norm: str) -> Interval | None:
    """Mean distance between image and adversarial image over the successes; None where the rows are of texts."""
    if not any(norm in row for row in rows):
        return None
    return bootstrap_mean([float(row[norm]) for row in rows if row["outcome"] == "succeeded"], draws=_DRAWS)


def _seen(row: Row, right: bool) -> Seen:
    robust = right and row["outcome"] == "failed"
    return Seen(row["label"], row.get("prediction_before"), right, robust, robust and without_candidates(row))


def _fresh(rows: Rows, correct: Sequence[bool]) -> FreshSummary | None:
    looked, steady = [row for row in rows if _claimed(row)], clean_probabilities(rows)
    if not looked and not steady:
        return None
    holds = [_holding(row, right) for right, row in zip(correct, rows, strict=True)]
    return FreshSummary(
        claimed=len(looked),
        held=sum(row["outcome"] == "succeeded" for row in looked),
        draws=sum(int(row["fresh"]["draws"]) for row in looked),
        success_probability=bootstrap_mean(success_probabilities(rows), draws=_DRAWS),
        expected_racc=bootstrap_mean(holds, draws=_DRAWS),
        expected_sacc=bootstrap_mean(steady, draws=_DRAWS),
    )


def _holding(row: Row, right: bool = True) -> float:
    """Probability that the classifier is right on the text the attack ended with."""
    fresh, clean = row.get("fresh"), row.get("clean")
    if fresh:
        return 1.0 - float(fresh["reached"] + fresh["abstained"]) / float(fresh["draws"])
    if clean and row["outcome"] in ("failed", "skipped", "abstained"):
        return float(clean["right"]) / float(clean["draws"])
    return float(right and row["outcome"] == "failed")


def _claimed(row: Row) -> bool:
    """Whether it seemed to fool a randomised classifier, and was looked at again."""
    return bool(row.get("fresh")) and bool(row["fresh"].get("claimed", True))


def success_probabilities(rows: Rows) -> list[float]:
    """For each text that seemed to fool a randomised classifier the share of fresh draws on which it does."""
    return [row["fresh"]["reached"] / row["fresh"]["draws"] for row in rows if _claimed(row)]


def clean_probabilities(rows: Rows) -> list[float]:
    """For each unattacked text the share of fresh draws on which a randomised classifier is right about it."""
    return [row["clean"]["right"] / row["clean"]["draws"] for row in rows if row.get("clean")]


def holding_probabilities(rows: Rows) -> list[float]:
    """For each text that seemed to fool a randomised classifier the share of fresh draws on which it holds."""
    return [_holding(row) for row in rows if _claimed(row)]


def without_candidates(row: Row) -> bool:
    """Whether the attack failed without having tried anything: it had no candidate, or no query beyond the first."""
    return row["outcome"] == "failed" and (row.get("candidates") == 0 or queries(row) <= 1)


def is_correct(row: Row, threshold: float | None = None) -> bool:
    """Whether the classifier got the example right before it was attacked; False where it never answered."""
    if threshold is None:
        return row.get("prediction_before") is not None and row["prediction_before"] == row["label"]
    scores = row.get("score_before") or ()
    return len(scores) > 0 and bool(scores[row["label"]] >= threshold)


def queries(row: Row) -> int:
    """Logical queries of one row: every score the attack asked for, whether or not a cache answered."""
    return int(row.get("logical_queries") or 0)


def words_changed(rows: Rows) -> list[float]:
    """Share of words changed in each success."""
    return [float(row["words_changed"]) for row in rows if row["outcome"] == "succeeded"]


def similarities(rows: Rows) -> list[float]:
    """Similarity of the two texts of each success that has one."""
    found = [row.get("similarity") for row in rows if row["outcome"] == "succeeded"]
    return [float(value) for value in found if value is not None]


@dataclass(frozen=True)
class BudgetCurve:
    """Robust accuracy against the number of queries an attacker may spend on one example."""

    budgets: tuple[int, ...]
    racc: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def budget_curve(rows: Rows, threshold: float | None = None) -> BudgetCurve:
    """The exact step curve: it falls at each number of queries with which some attack succeeded."""
    total = len(rows)
    robust = sum(is_correct(row, threshold) and row["outcome"] == "failed" for row in rows)
    needed = np.sort(
        [queries(row) for row in rows if row["outcome"] == "succeeded" and is_correct(row, threshold)]
    ).astype(int)
    budgets = [0, *np.unique(needed).tolist()]
    standing = [robust + len(needed) - int(np.searchsorted(needed, budget, side="right")) for budget in budgets]
    intervals = [wilson(count, total) for count in standing]
    return BudgetCurve(
        tuple(budgets),
        tuple(interval.estimate for interval in intervals),
        tuple(interval.low for interval in intervals),
        tuple(interval.high for interval in intervals),
    )


def together(attacks: Sequence[Rows]) -> list[dict[str, Any]]:
    """Rows of an attacker who tries every attack on each example and keeps the success with the fewest words changed.

    Only examples that every attack has a row for count; queries add up.
    """
    tables = [{str(row["id"]): row for row in rows} for rows in attacks]
    if not tables:
        return []
    shared = [key for key in tables[0] if all(key in table for table in tables)]
    return [_strongest([table[key] for table in tables]) for key in shared]


def _strongest(rows: Rows) -> dict[str, Any]:
    won = [row for row in rows if row["outcome"] == "succeeded"]
    if won:
        best = min(won, key=lambda row: (float(row["words_changed"]), float(row.get("l2") or 0), queries(row)))
    else:
        # An error or a time-out leaves open whether the example holds, so it must not read as robust.
        rank = {"error": 0, "timed_out": 1, "abstained": 2, "skipped": 3, "failed": 4}
        best = min(rows, key=lambda row: rank[row["outcome"]])
    # Where one attack ended in an error before it asked, another still knows the clean answer.
    known = next((row for row in (best, *rows) if row.get("prediction_before") is not None), best)
    return {
        **best,
        **{key: known.get(key) for key in ("label", "prediction_before", "score_before")},
        "logical_queries": sum(queries(row) for row in rows),
        "physical_queries": sum(int(row.get("physical_queries") or 0) for row in rows),
        "candidates": sum(int(row.get("candidates", 1)) for row in rows),
    }
