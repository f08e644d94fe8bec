from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from isthmus.attacks.result import AttackResult
from isthmus.core.errors import UsageError
from isthmus.core.statistics import wilson
from isthmus.core.types import Classification, Example, Floats, Texts
from isthmus.data import Dataset, Splits
from isthmus.verbs.attack.detection import Detector, choose_threshold, detect, make_detector

MakeRow = Callable[..., dict[str, Any]]


class Reader:
    """The text is the score of class 1."""

    labels = ("ham", "spam")
    stochastic = False

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        spam = np.array([float(text["text"]) for text in texts], np.float32)
        return np.stack([1 - spam, spam], axis=1)


def dataset(split: str, ham: Sequence[float], spam: Sequence[float] = ()) -> Dataset:
    rows = [(value, 0) for value in ham] + [(value, 1) for value in spam]
    examples = tuple(Example(f"{split}:{i}", {"text": str(value)}, label) for i, (value, label) in enumerate(rows))
    return Dataset("toy", split, Classification(("ham", "spam")), examples)


def test_the_threshold_keeps_the_rate_on_clean_development_data() -> None:
    ham = [i / 100 for i in range(100)]
    splits = Splits("toy", {"dev": dataset("dev", ham, [0.999] * 50), "test": dataset("test", [0.2])})
    threshold = choose_threshold(Reader(), splits, 1, 0, at_fpr=0.05)
    assert sum(np.float32(score) >= threshold for score in ham) == 5
    with pytest.raises(UsageError, match="--threshold"):
        choose_threshold(Reader(), Splits("toy", {"test": splits.test}), 1, 0, at_fpr=0.05)


def test_only_other_classes_are_negatives() -> None:
    data = dataset("test", [0.1, 0.2, 0.9], [0.95, 0.99])
    detector = make_detector(Reader(), data, 1, 0, threshold=0.8, at_fpr=None)
    assert sorted(round(score, 3) for score in detector.negative_scores) == [0.1, 0.2, 0.9]
    assert detector.negatives_flagged == 1
    assert make_detector(Reader(), data, 1, 0, threshold=None, at_fpr=None).negatives_flagged == 1


def test_rates_before_and_after(make_row: MakeRow) -> None:
    rows = [
        make_row("a", "succeeded", score_before=[0.1, 0.9], score_after=[0.4, 0.6]),
        make_row("b", "failed", score_before=[0.0, 1.0], score_after=[0.1, 0.9]),
        make_row("c", "skipped", score_before=[0.5, 0.5]),
        make_row("d", "error", score_before=None, score_after=None),
        make_row("e", "timed_out", score_before=[0.1, 0.9], score_after=[0.9, 0.1]),
    ]
    detector = Detector(1, 0.8, None, (0.1, 0.7), 0)
    found = detect(detector, [AttackResult.from_row(row) for row in rows])
    assert found.tpr_before == wilson(3, 5)
    assert found.tpr_after == wilson(1, 5)  # Without a result, "e" counts as missed.
    assert found.fpr == wilson(0, 2)
    # Against 0.1 and 0.7: before 0.9, 1.0, 0.5, 0.9 win 2, 2, 1, 2 of 2; after 0.6, 0.9, 0.5 win 1, 2, 1.
    assert found.auc_before == pytest.approx(7 / 8)
    assert found.auc_after == pytest.approx(4 / 6)
    assert found.to_json()["tpr_after"]["estimate"] == pytest.approx(0.2)


def test_without_a_threshold_the_likeliest_class_decides() -> None:
    detector = Detector(1, None, None, (), 0)
    assert detector.flags([0.3, 0.4, 0.3])
    assert not detector.flags([0.5, 0.4, 0.1])


def test_without_other_classes_there_is_no_auc(make_row: MakeRow) -> None:
    found = detect(Detector(1, None, None, (), 0), [AttackResult.from_row(make_row("a"))])
    assert found.to_json()["auc_before"] is None
    assert found.to_json()["negatives"] == 0


def test_texts_without_an_answer_are_counted_and_in_no_rate() -> None:
    class Silent(Reader):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            found = super().scores(texts, keys)
            found[found[:, 1] < 0.25] = np.nan
            return found

    detector = make_detector(Silent(), dataset("test", [0.1, 0.2, 0.3, 0.9]), 1, 0, threshold=0.5, at_fpr=None)
    assert (detector.negatives_flagged, len(detector.negative_scores)) == (1, 2)
    assert detect(detector, []).to_json()["negatives_without_answer"] == 2


def test_equal_scores_are_a_tie_although_rows_hold_seven_digits() -> None:
    detector = Detector(1, 0.5, None, (float(np.float32(0.98)),) * 3, 3)
    row = AttackResult(
        "a", "failed", 1, {}, {}, prediction_before=1, score_before=(0.02, 0.98), score_after=(0.02, 0.98)
    )
    assert detect(detector, [row]).auc_before == 0.5
