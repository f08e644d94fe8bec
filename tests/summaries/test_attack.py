from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.result import AttackResult
from isthmus.core.statistics import wilson
from isthmus.summaries import attack as figures
from isthmus.summaries.attack import OUTCOMES

MakeRow = Callable[..., dict[str, Any]]
Rows = Sequence[dict[str, Any] | AttackResult]


def read(rows: Rows) -> list[AttackResult]:
    return [row if isinstance(row, AttackResult) else AttackResult.from_row(row) for row in rows]


def summarise(rows: Rows, threshold: float | None = None) -> figures.Summary:
    return figures.summarise(read(rows), threshold)


def budget_curve(rows: Rows) -> figures.BudgetCurve:
    return figures.budget_curve(read(rows))


def together(tables: Sequence[Rows]) -> list[AttackResult]:
    return figures.together([read(rows) for rows in tables])


outcomes = st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=40)


def test_the_figures_follow_their_definitions(make_row: MakeRow) -> None:
    kinds = ["succeeded"] * 3 + ["failed"] * 2 + ["skipped"] * 3 + ["timed_out"] + ["error"]
    rows = [make_row(f"test:{i}", kind, logical_queries=i) for i, kind in enumerate(kinds)]
    rows[1]["words_changed"] = 0.2
    summary = summarise(rows)
    assert (summary.n, summary.correct) == (10, 6)
    assert summary.sacc == wilson(6, 10)
    assert summary.racc == wilson(2, 10)
    assert summary.asr == wilson(3, 5)
    assert summary.avg_queries.estimate == pytest.approx((0 + 1 + 2 + 3 + 4) / 5)
    assert summary.words_changed.estimate == pytest.approx((1 / 3 + 0.2 + 1 / 3) / 3)
    assert summary.queries == sum(range(10))
    assert (summary.skipped, summary.timed_out, summary.errors) == (3, 1, 1)


@given(st.lists(st.sampled_from(["succeeded", "failed", "skipped"]), min_size=1, max_size=40))
def test_attack_success_is_one_minus_the_ratio_of_accuracies(make_row: MakeRow, kinds: list[str]) -> None:
    summary = summarise([make_row(str(i), kind) for i, kind in enumerate(kinds)])
    if summary.correct:
        assert summary.asr.estimate == pytest.approx(1 - summary.racc.estimate / summary.sacc.estimate)


@given(outcomes)
def test_errors_and_time_outs_are_never_robust(make_row: MakeRow, kinds: list[str]) -> None:
    rows = [make_row(str(i), kind) for i, kind in enumerate(kinds)]
    good = summarise(rows)
    worse = summarise([*rows, make_row("x", "error"), make_row("y", "timed_out")])
    assert worse.failed == good.failed
    assert worse.racc.estimate <= good.racc.estimate
    assert sum(worse.to_json()["outcomes"].values()) == worse.n


@given(outcomes, st.lists(st.integers(1, 50), min_size=40, max_size=40))
def test_the_budget_curve_joins_clean_and_robust_accuracy(
    make_row: MakeRow, kinds: list[str], spent: list[int]
) -> None:
    rows = [make_row(str(i), kind, logical_queries=spent[i]) for i, kind in enumerate(kinds)]
    summary, curve = summarise(rows), budget_curve(rows)
    undecided = (summary.timed_out + 0) / summary.n
    assert curve.racc[0] == pytest.approx(summary.sacc.estimate - undecided)
    assert curve.racc[-1] == pytest.approx(summary.racc.estimate)
    assert list(curve.racc) == sorted(curve.racc, reverse=True)
    for budget, rate in zip(curve.budgets, curve.racc, strict=True):
        standing = [
            r
            for r in rows
            if r["outcome"] == "failed" or (r["outcome"] == "succeeded" and r["logical_queries"] > budget)
        ]
        assert rate == pytest.approx(len(standing) / len(rows))


@given(st.lists(st.tuples(*[st.sampled_from(OUTCOMES)] * 2), min_size=1, max_size=20))
def test_attacks_together_are_at_least_as_strong_as_each(make_row: MakeRow, pairs: list[tuple[str, str]]) -> None:
    tables = [[make_row(str(i), pair[side]) for i, pair in enumerate(pairs)] for side in (0, 1)]
    both = summarise(together(tables))
    each = [summarise(table) for table in tables]
    assert both.n == len(pairs)
    assert both.racc.estimate <= min(summary.racc.estimate for summary in each)
    assert both.succeeded >= max(summary.succeeded for summary in each)
    assert both.queries == sum(summary.queries for summary in each)


def test_attacks_together_keep_only_shared_examples_and_the_smallest_change(make_row: MakeRow) -> None:
    first = [make_row("a", words_changed=0.5), make_row("b")]
    second = [make_row("a", words_changed=0.25, logical_queries=3)]
    (row,) = together([first, second])
    assert (row.id, row.words_changed, row.logical_queries) == ("a", 0.25, 13)
    assert together([]) == []


def test_detection_at_a_threshold_decides_what_is_correct(make_row: MakeRow) -> None:
    rows = [make_row("a", "skipped", prediction_before=1, score_before=[0.3, 0.7]), make_row("b", "failed")]
    assert summarise(rows, threshold=0.8).correct == 1
    assert summarise(rows, threshold=0.6).correct == 2


def test_nothing_attacked_gives_no_numbers_rather_than_zeros(make_row: MakeRow) -> None:
    found = summarise([make_row("a", "skipped")]).to_json()
    assert found["asr"] is None
    assert found["avg_queries"] is None
    assert found["words_changed"] is None
    assert found["sacc"] == 0.0


def test_examples_without_candidates_stay_robust_and_are_counted_apart(make_row: MakeRow) -> None:
    rows = [
        make_row("a", "failed", candidates=0),
        make_row("b", "failed", candidates=0, words=0),
        make_row("c", "failed", candidates=7),
        make_row("d", "succeeded", candidates=3),
        make_row("h", "failed", candidates=900, logical_queries=1, budget_spent=True),
        make_row("e", "skipped", candidates=0, words=0),
        make_row("f", "timed_out", candidates=0),
        make_row("g", "failed"),  # a row of an older version does not say
    ]
    summary = summarise(rows)
    assert (summary.no_candidates, summary.no_words) == (3, 1)
    assert summary.racc == wilson(5, 8)
    assert summary.proven == wilson(2, 8)
    found = summary.to_json()
    assert (found["no_candidates"], found["no_words"]) == (3, 1)


def test_similarity_is_that_of_the_successes_that_have_one(make_row: MakeRow) -> None:
    rows = [make_row("a", similarity=0.9), make_row("b", similarity=0.7), make_row("c", similarity=None)]
    rows += [make_row("d", "failed", similarity=0.1)]
    summary = summarise(rows)
    assert summary.similarity.estimate == pytest.approx(0.8)
    assert summary.to_json()["intervals"]["similarity"][0] <= 0.8
    assert summarise([make_row("a")]).to_json()["similarity"] is None


@pytest.mark.parametrize(
    ("kinds", "outcome"),
    [
        (("failed", "succeeded", "error"), "succeeded"),
        (("failed", "error"), "error"),
        (("failed", "timed_out"), "timed_out"),
        (("timed_out", "error", "failed"), "error"),
        (("failed", "failed"), "failed"),
    ],
)
def test_the_union_is_robust_only_if_every_attack_came_to_its_end_and_failed(
    make_row: MakeRow, kinds: tuple[str, ...], outcome: str
) -> None:
    (row,) = together([[make_row("a", kind, candidates=2)] for kind in kinds])
    assert row.outcome == outcome
    summary = summarise([row])
    assert summary.racc.estimate == (outcome == "failed")
    # An attack that broke before it asked does not make a right answer wrong.
    assert summary.sacc.estimate == 1
    assert row.candidates == 2 * len(kinds)


def test_the_union_has_no_candidates_only_where_no_attack_had_any(make_row: MakeRow) -> None:
    first = [make_row("a", "failed", candidates=0), make_row("b", "failed", candidates=0)]
    second = [make_row("a", "failed", candidates=0), make_row("b", "failed", candidates=4)]
    summary = summarise(together([first, second]))
    assert (summary.no_candidates, summary.robust) == (1, 2)
