from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.attacks.result import AttackResult
from isthmus.core.statistics import wilson
from isthmus.runs.evaluated import Evaluated
from isthmus.summaries.attack import summarise
from isthmus.summaries.balance import Balance, BalanceRow, mean_rate
from isthmus.summaries.evaluation import Majority
from isthmus.summaries.evaluation import summarise_texts as evaluated

MakeRow = Callable[..., dict[str, Any]]
counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts)
def test_of_one_group_the_interval_is_wilsons(count: tuple[int, int]) -> None:
    found, own = mean_rate([count]), wilson(*count)
    assert (found.estimate, found.low, found.high) == pytest.approx((own.estimate, own.low, own.high), abs=1e-12)


@given(st.lists(counts, min_size=1, max_size=6))
def test_the_interval_holds_the_mean_and_narrows_with_groups(groups: list[tuple[int, int]]) -> None:
    found = mean_rate(groups)
    assert found.estimate == pytest.approx(sum(k / n for k, n in groups) / len(groups))
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    doubled = mean_rate(groups * 2)
    assert doubled.high - doubled.low <= found.high - found.low + 1e-12


def test_the_interval_covers_the_truth() -> None:
    rng, rates, sizes = np.random.default_rng(0), (0.97, 0.55), (170, 30)
    draws = [rng.binomial(n, p, size=2_000) for p, n in zip(rates, sizes, strict=True)]
    found = [mean_rate([(int(a), sizes[0]), (int(b), sizes[1])]) for a, b in zip(*draws, strict=True)]
    covered = np.mean([sum(rates) / 2 in interval for interval in found])
    assert 0.93 <= covered <= 0.98


def test_without_examples_there_is_no_number() -> None:
    assert math.isnan(mean_rate([]).estimate)
    assert math.isnan(Balance(()).majority_share)


def test_always_answering_the_majority_is_worth_half_of_two_classes(make_row: MakeRow) -> None:
    ham = [make_row(f"h{i}", "failed", label=0, prediction_before=0) for i in range(87)]
    spam = [make_row(f"s{i}", "skipped", label=1, prediction_before=0) for i in range(13)]
    summary = summarise([AttackResult.from_row(row) for row in (*ham, *spam)])
    assert summary.racc.estimate == summary.sacc.estimate == pytest.approx(0.87)
    assert summary.balance.majority_share == pytest.approx(0.87)
    assert summary.balance.only_prediction == 0
    assert summary.balanced_racc.estimate == summary.balanced_sacc.estimate == pytest.approx(0.5)
    assert summary.balanced_racc.low > 0.4
    weakest = summary.balance.weakest
    assert weakest is not None
    assert (weakest.label, weakest.robust_recall) == (1, wilson(0, 13))
    assert summary.to_json()["balanced_racc"] == pytest.approx(0.5)


def test_rows_without_a_class_count_as_misses_where_it_costs_most() -> None:
    seen = [BalanceRow(0, 0, True, True)] * 40 + [BalanceRow(1, 1, True, True)] * 10
    sure, unsure = Balance.of(seen), Balance.of([*seen, *[BalanceRow(None, None, False)] * 10])
    assert sure.racc == unsure.racc
    assert sure.racc_at_least == sure.racc
    assert unsure.racc_at_least == mean_rate([(40, 40), (10, 20)])


def test_examples_on_which_nothing_was_tried_are_not_proven() -> None:
    seen = [BalanceRow(0, 0, True, True, nothing_tried=True)] * 20 + [BalanceRow(1, 1, True, True)] * 20
    assert Balance.of(seen).racc_at_least == mean_rate([(0, 20), (20, 20)])


def test_an_evaluation_has_the_same_figures() -> None:
    rows = [Evaluated(str(i), "right", int(i >= 87), scores={"model": (0.9, 0.1)}) for i in range(100)]
    figures = evaluated(rows, ("ham", "spam"), ("model",), "model").own
    assert figures.accuracy.estimate == pytest.approx(0.87)
    assert figures.balanced_accuracy.estimate == pytest.approx(0.5)
    assert figures.majority == Majority("ham", 0.87)
    assert figures.only_prediction == "ham"
    rows[0] = dataclasses.replace(rows[0], scores={"model": (0.1, 0.9)})
    assert evaluated(rows, ("ham", "spam"), ("model",), "model").own.only_prediction is None
