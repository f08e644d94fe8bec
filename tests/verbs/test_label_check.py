from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from isthmus.core.errors import SuspiciousLabels
from isthmus.core.types import Classification, Example, Floats, Texts
from isthmus.data import Dataset
from isthmus.verbs.label_check import LabelCheck, check_labels, judge


class Oracle:
    """Reads the label off the text, then renames it."""

    stochastic = False

    def __init__(self, labels: tuple[str, ...], renaming: Sequence[int], wrong_every: int = 0) -> None:
        self.labels, self.renaming, self.wrong_every = labels, renaming, wrong_every

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        scores = np.full((len(texts), len(self.labels)), 0.01, np.float32)
        for row, text in enumerate(texts):
            number, label = map(int, text["text"].split())
            wrong = bool(self.wrong_every) and number % self.wrong_every == 0
            scores[row, (self.renaming[label] + wrong) % len(self.labels)] = 1
        return scores


def dataset(n: int, labels: tuple[str, ...]) -> Dataset:
    examples = tuple(Example(f"test:{i}", {"text": f"{i} {i % len(labels)}"}, i % len(labels)) for i in range(n))
    return Dataset("toy", "test", Classification(labels), examples)


@given(st.permutations(range(4)))
def test_a_renamed_model_is_stopped_with_the_renaming_that_mends_it(renaming: list[int]) -> None:
    labels = ("a", "b", "c", "d")
    victim = Oracle(labels, renaming)
    right = sum(index == label for index, label in enumerate(renaming))
    if right > 1:
        assert check_labels(victim, dataset(200, labels), seed=0).right > 16
        return
    with pytest.raises(SuspiciousLabels) as error:
        check_labels(victim, dataset(200, labels), seed=0)
    mended = str(error.value).rsplit("--labels ", 1)[1].split(",")
    assert [mended[renaming[label]] for label in range(4)] == list(labels)


def test_two_swapped_labels_are_named_and_the_remedy_works() -> None:
    data = dataset(100, ("ham", "spam"))
    with pytest.raises(SuspiciousLabels, match=r"'ham' is 'spam' in the data.*--labels spam,ham") as error:
        check_labels(Oracle(("ham", "spam"), (1, 0)), data, seed=0)
    assert error.value.exit_code == 2
    renamed = Oracle(("spam", "ham"), (1, 0))
    assert check_labels(renamed, data.align_labels(renamed.labels), seed=0).right == 64


def test_a_model_without_any_idea_is_stopped_without_a_suggestion() -> None:
    class Constant(Oracle):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            return np.tile(np.array([0.9, 0.1], np.float32), (len(texts), 1))

    with pytest.raises(SuspiciousLabels, match="No other order"):
        check_labels(Constant(("a", "b"), (0, 1)), dataset(100, ("a", "b")), seed=0)


def test_a_fair_model_passes() -> None:
    check = check_labels(Oracle(("a", "b"), (0, 1), wrong_every=4), dataset(100, ("a", "b")), seed=0)
    assert 0.6 < check.right / check.n < 0.95


@given(st.integers(1, 19), st.integers(2, 6), st.data())
def test_few_examples_are_judged_by_the_exact_binomial(n: int, classes: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    assert LabelCheck(right, n, classes).is_suspicious == (binom.cdf(right, n, 1 / classes) <= 0.05)


@given(st.integers(20, 100), st.integers(2, 6), st.data())
def test_many_examples_are_judged_by_chance(n: int, classes: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    assert LabelCheck(right, n, classes).is_suspicious == (right <= n / classes)


def test_rows_without_a_number_are_left_out() -> None:
    scores = np.array([[np.nan, np.nan], [0.9, 0.1]], np.float32)
    assert judge(scores, np.array([0, 0]), 2) == LabelCheck(1, 1, 2)
    assert not judge(scores[:1], np.array([0]), 2).is_suspicious
