"""Faithfulness: closed forms of a keyword model, the random order beside the explanations, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import training_toys as toys

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import Example
from isthmus.data import Dataset, Splits
from isthmus.explanations import Occlusion
from isthmus.measures import Faithfulness
from isthmus.measures._rankings import SHARES, erase, faithfulness
from isthmus.models import wrap

DATA = Splits("toy", {"test": toys.dataset("test", 10, 0)})


class Keyword:
    labels, stochastic = ("bad", "good"), False

    def scores(self, texts, keys=None):
        good = np.array([0.9 if "fine" in text["text"].split() else 0.2 for text in texts])
        return np.stack([1 - good, good], axis=1)


def test_each_share_by_hand():
    text = {"text": "a fine film of ten words and no more please"}
    right = np.array([0.0, 1.0, *[0.0] * 8])
    comprehensive, sufficient = erase(Keyword(), [text, text], [right, -right], [1, 1])
    assert comprehensive == pytest.approx(np.array([[0.7] * 5, [0.0] * 5]))
    assert sufficient == pytest.approx(np.array([[0.0] * 5, [0.7] * 5])), "the last word by rank is never kept"
    assert comprehensive.shape == (2, len(SHARES))
    means = faithfulness(Keyword(), [text], [right], [1])
    assert [float(mean[0]) for mean in means] == pytest.approx([0.7, 0.0])


def test_what_cannot_be_ranked_has_no_figure():
    texts = [{"text": ""}, {"text": "a fine film"}]
    rows = [np.zeros(0), np.array([0.1, math.nan, 0.2])]
    for found in erase(Keyword(), texts, rows, [1, 1]):
        assert np.isnan(found).all()


def test_many_texts_are_read_in_parts(monkeypatch):
    monkeypatch.setattr("isthmus.measures._rankings._TEXTS_AT_ONCE", 2)
    texts = [{"text": f"a fine film number {n}"} for n in range(5)]
    rows = [np.arange(5.0)] * 5
    for part, whole in zip(erase(Keyword(), texts, rows, [1] * 5), _erase_whole(texts, rows), strict=True):
        assert part == pytest.approx(whole)


def _erase_whole(texts, rows):
    from isthmus.measures._rankings import _erase

    return _erase(Keyword(), texts, rows, [1] * len(texts))


def test_every_method_that_works_is_measured_beside_a_random_order():
    model = toys.classifier()
    found = Faithfulness(methods=("occlusion", "gradient_x_input"))(model, DATA, n=6)
    methods = ("occlusion", "gradient_x_input", "random order")
    kinds = ("comprehensiveness", "sufficiency")
    assert [figure.name for figure in found.figures] == [f"{kind}, {method}" for kind in kinds for method in methods]
    assert "never two models" in found.notes[-1]
    explained = list(Occlusion()(wrap(model), DATA["test"].sample(6, 0)))
    expected, _ = faithfulness(
        wrap(model),
        [each.texts for each in explained],
        [each.weights[0] for each in explained],
        [each.prediction for each in explained],
    )
    figure = found.figure("comprehensiveness, occlusion")
    assert figure.estimate == pytest.approx(expected.mean(), abs=1e-6)
    assert figure.low <= figure.estimate <= figure.high
    plot = next(plot for plot in found.plots if plot.name == "comprehensiveness")
    assert np.mean(plot.series[0].y) == pytest.approx(figure.estimate)
    assert [series.reference for series in plot.series] == [False, False, True]


def test_bad_input():
    with pytest.raises(UnknownName, match="limes"):
        Faithfulness(methods=("limes",))
    task = DATA["test"].task
    empty = Splits("toy", {"test": Dataset("toy", "test", task, (Example("0", {"text": " ?! "}, 0),))})
    with pytest.raises(UsageError, match="none of 1 texts of test has a word"):
        Faithfulness(methods=("occlusion",))(toys.classifier(), empty)


def test_one_text_has_no_interval():
    from isthmus.measures.faithfulness import _Faithful

    losses = np.full((2, len(SHARES)), 0.25)
    assert _Faithful("lime", {"sufficiency": losses}).figure("sufficiency", 0).low == pytest.approx(0.25)
    losses[1] = math.nan
    figure = _Faithful("lime", {"sufficiency": losses}).figure("sufficiency", 0)
    assert (figure.estimate, figure.low, figure.high) == (0.25, None, None)
