"""Rankings of words before and after an attack: SciPy's tau, overlap by hand, controls, and bad input."""

from __future__ import annotations

import json
import math

import measure_toys
import numpy as np
import pytest
import training_toys as toys
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from isthmus.core.errors import UsageError
from isthmus.defences import RSMI
from isthmus.explanations import Explainer, Explanation, IntegratedGradients
from isthmus.measures import InterpretationConsistency, Subject
from isthmus.measures._rankings import SHARES, faithfulness, overlap, tau_b, without
from isthmus.measures.base import Asked, TextPair, TextPairs
from isthmus.verbs.measure import MeasureRequest, measure

DATA = toys.dataset("test", 12, 0)
weights = st.lists(st.floats(-3, 3), min_size=3, max_size=12)


def pairs(change=lambda text: text.rsplit(" ", 1)[0] + " stale", outcome="succeeded") -> list[TextPair]:
    return [TextPair(e.id, int(e.label), outcome, e.texts, {"text": change(e.texts["text"])}) for e in DATA]


def subject(model, given_pairs, name="toy", skipped=0, **asked) -> Subject:
    made = Subject(name, lambda: model, asked=Asked(**asked))
    made.pairs = lambda _: TextPairs("pwws", tuple(given_pairs), skipped)
    return made


@given(weights, st.integers(0, 2**32))
def test_tau_is_scipys_and_symmetric(values, seed):
    a, b = np.array(values), np.random.default_rng(seed).normal(size=len(values))
    expected = kendalltau(a, b).statistic
    assert tau_b(a, b) == pytest.approx(expected, nan_ok=True)
    assert tau_b(b, a) == pytest.approx(expected, nan_ok=True)
    if len(set(values)) == len(values):
        assert tau_b(a, a) == pytest.approx(1)
        assert tau_b(a, -a) == pytest.approx(-1)


@given(weights, st.integers(0, 2**32), st.integers(1, 10))
def test_overlap_is_symmetric_and_a_share(values, seed, k):
    a, b = np.array(values), np.random.default_rng(seed).normal(size=len(values))
    found = overlap(a, b, k)
    if len(values) <= k:
        assert math.isnan(found)
        return
    assert 0 <= found <= 1
    assert found == overlap(b, a, k)
    assert overlap(a, a, k) == 1
    assert overlap(a, b, k, [False] * len(a)) == 0


def test_overlap_by_hand():
    a, b = np.array([3.0, 2.0, 1.0, 0.0]), np.array([3.0, 0.0, 2.0, 1.0])
    assert overlap(a, b, 2) == 0.5
    assert overlap(a, b, 2, [False, True, True, True]) == 0.0, "the word in the shared place is another"
    assert math.isnan(tau_b(np.zeros(4), b))
    assert math.isnan(overlap(np.array([1.0, math.nan, 0.0]), a[:3], 1))


def test_the_same_texts_are_explained_alike():
    model = toys.classifier()
    found = InterpretationConsistency(controls=False).measure(subject(model, pairs(lambda text: text)))
    for name in ("tau", "tau for the true class"):
        assert found.figure(f"{name}, the attack succeeded").estimate == pytest.approx(1)
    assert all(y == pytest.approx(1) for y in found.plots[0].series[0].y)


def test_it_is_the_mean_over_classes_and_pairs():
    model, given_pairs = toys.classifier(), pairs()
    found = InterpretationConsistency(controls=False).measure(subject(model, given_pairs, n=12))
    explain = IntegratedGradients()
    taus, tops = [], []
    for pair in given_pairs:
        from isthmus.core.types import Example

        (a,) = explain(model, [Example("x", dict(pair.original), 0)], classes="all")
        (b,) = explain(model, [Example("x", dict(pair.perturbed), 0)], classes="all")
        own = [kendalltau(x, y).statistic for x, y in zip(a.weights, b.weights, strict=True)]
        taus.append(np.mean(own))
        tops.append(np.mean([overlap(x, y, 2) for x, y in zip(a.weights, b.weights, strict=True)]))
    figure = found.figure("tau, the attack succeeded")
    assert figure.estimate == pytest.approx(np.mean(taus), abs=1e-6)
    assert figure.low < figure.estimate < figure.high
    series = next(each for each in found.plots[0].series if each.name.endswith("by place"))
    assert series.y[series.x.index(2.0)] == pytest.approx(np.nanmean(tops), abs=1e-6)
    assert found.figure("completeness error").estimate < 0.05


def test_succeeded_and_failed_are_apart_and_what_cannot_be_aligned_is_counted():
    model = toys.classifier()
    longer = pairs(lambda text: text + " indeed")[:2]
    given_pairs = [*pairs()[:5], *pairs(lambda text: text, "failed")[5:8], *longer]
    found = InterpretationConsistency(controls=False).measure(subject(model, given_pairs, skipped=3))
    assert found.figure("tau, the attack failed").estimate == pytest.approx(1)
    assert found.figure("tau, the attack succeeded").estimate < 1
    told = found.details["runs"][0]
    assert (told["pairs"], told["skipped"], told["other number of words"]) == (8, 3, 2)
    assert "3 skipped, 2 of another number of words left out" in found.notes[0]
    texts = told["texts"]
    assert sorted(texts["ids"]) == sorted(pair.id for pair in given_pairs[:8])
    by_outcome = {name: [t for t, o in zip(texts["tau"], texts["outcomes"], strict=True) if o == name] for name in
                  ("succeeded", "failed")}  # fmt: skip
    assert by_outcome["failed"] == pytest.approx([1] * 3)
    assert np.mean(by_outcome["succeeded"]) == pytest.approx(
        found.figure("tau, the attack succeeded").estimate, abs=1e-4
    )
    assert len(texts["top-5"]) == 8
    json.dumps(found.details, allow_nan=False)
    with pytest.raises(UsageError, match=r"no text that kept its number of words.*such as textfooler"):
        InterpretationConsistency().measure(subject(model, longer))


@pytest.mark.parametrize("method", ["integrated_gradients", "lime"])
def test_controls_say_what_noise_does(method):
    model = toys.classifier()
    found = InterpretationConsistency(method=method).measure(subject(model, pairs(), n=6))
    names = {figure.name for figure in found.figures}
    assert {"tau, as many words replaced at random", "tau, two models with random weights"} <= names
    assert ("tau, the same text and another seed" in names) == (method == "lime")
    chance = found.figure("tau, two models with random weights")
    assert chance.low < 0.5
    again = InterpretationConsistency(method=method).measure(subject(model, pairs(), n=6))
    assert again.to_json() == found.to_json()


def test_faithfulness_by_hand():
    class Fine:
        labels, stochastic = ("bad", "good"), False

        def scores(self, texts, keys=None):
            good = np.array([0.9 if "fine" in text["text"].split() else 0.2 for text in texts])
            return np.stack([1 - good, good], axis=1)

    text = {"text": "a fine film"}
    right, wrong = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.5])
    comprehensive, sufficient = faithfulness(Fine(), [text, text], [right, wrong], [1, 1])
    assert comprehensive == pytest.approx([0.7, 0.0])
    assert sufficient[0] == pytest.approx(0.0)
    assert sufficient[1] == pytest.approx(0.7)
    assert len(SHARES) == 5
    assert without({"premise": "a fine film", "hypothesis": "so dull"}, {1, 4}) == {
        "premise": "a film",
        "hypothesis": "so",
    }


def test_from_a_run_folder(tmp_path):
    folder = measure_toys.toy_run(tmp_path)
    measure_toys.add_attack(folder)
    (done,) = measure(
        MeasureRequest(
            runs=(str(folder.path),), measures=("interpretation_consistency",), parameters={"attack": "pwws"},
            asked=Asked(n=8),
        )
    )  # fmt: skip
    names = {figure.name for figure in done.measurement.figures}
    assert {"tau, the attack succeeded", "tau, the attack failed"} <= names
    assert done.measurement.details["runs"][0]["skipped"] == 3
    assert (folder.path / "attacks/pwws.jsonl").exists()


def test_failed_attacks_without_a_text_are_left_out(tmp_path):
    folder = measure_toys.toy_run(tmp_path)
    measure_toys.add_attack(folder)
    path = folder.path / "attacks/pwws.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        row.pop("check", None)
        if row["outcome"] == "failed":  # As a search leaves it that ran out of queries before its first change.
            row["perturbed"], row["edits"] = None, []
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    request = MeasureRequest(
        runs=(str(folder.path),), measures=("interpretation_consistency",), parameters={"controls": "false"}
    )
    (done,) = measure(request)
    names = {figure.name for figure in done.measurement.figures}
    assert "tau, the attack succeeded" in names
    assert "tau, the attack failed" not in names
    succeeded = sum(row["outcome"] == "succeeded" for row in rows)
    assert done.measurement.details["runs"][0]["pairs"] == succeeded


def test_one_text_has_no_interval():
    measured = InterpretationConsistency(controls=False).measure(subject(toys.classifier(), pairs()[:1]))
    figure = measured.figure("tau, the attack succeeded")
    assert (figure.low, figure.high) == (None, None)
    measured = InterpretationConsistency(controls=False).measure(subject(toys.classifier(), pairs()[:3]))
    assert measured.figure("tau, the attack succeeded").low is not None


def test_by_class_both_ways():
    """Weights for a class in all texts, and texts whose true class it is."""
    model, given_pairs = toys.classifier(), pairs()
    found = InterpretationConsistency(controls=False).measure(subject(model, given_pairs, n=12))
    by_class = found.details["runs"][0]["by class"]["the attack succeeded"]
    whole = found.figure("tau, the attack succeeded").estimate
    weights_for = [found.figure(f"tau of weights for {name}, the attack succeeded") for name in model.labels]
    assert np.mean([figure.estimate for figure in weights_for]) == pytest.approx(whole)
    sizes = [sum(pair.label == number for pair in given_pairs) for number in range(2)]
    texts_of = [by_class[f"tau of texts of {name}"] for name in model.labels]
    assert [row[3] for row in texts_of] == sizes
    assert np.average([row[0] for row in texts_of], weights=sizes) == pytest.approx(whole)
    assert all(figure.low <= figure.estimate <= figure.high for figure in weights_for)


class _Made(Explainer):
    """Weights by a function of the text."""

    weigh = staticmethod(lambda words: np.arange(float(len(words))))
    scores = (0.9, 0.1)

    def check(self, victim):
        pass

    def explain(self, victim, examples, classes, seed):
        for each in examples:
            words = each.texts["text"].split()
            rows = np.tile(self.weigh(words), (2, 1))
            yield Explanation(each.id, each.texts, "made", ("bad", "good"), self.scores, (0, 1), rows)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (lambda words: np.zeros(len(words)), r"In 0 some are not numbers, in 12 all are equal.*-P method"),
        (lambda words: np.full(len(words), math.nan), r"In 12 some are not numbers, in 0 all.*-P method"),
    ],
)
def test_weights_that_rank_nothing_are_refused(weights, said, monkeypatch):
    monkeypatch.setattr(_Made, "weigh", staticmethod(weights))
    monkeypatch.setattr("isthmus.core.catalog.build", lambda *_: _Made())
    with pytest.raises(UsageError, match=said):
        InterpretationConsistency(controls=False).measure(subject(toys.classifier(), pairs()))


def test_what_has_no_figure_is_counted(monkeypatch):
    """Short texts, weights that are not numbers, and a class that is never predicted."""

    def weigh(words):
        return np.full(len(words), math.nan) if "one" in words else np.arange(float(len(words)))

    monkeypatch.setattr(_Made, "weigh", staticmethod(weigh))
    monkeypatch.setattr("isthmus.core.catalog.build", lambda *_: _Made())
    texts = ["one two", "just four words here", "these are seven words and no more"]
    given_pairs = [TextPair(str(at), 0, "succeeded", {"text": t}, {"text": t + "s"}) for at, t in enumerate(texts)]
    found = InterpretationConsistency(controls=False).measure(subject(toys.classifier(), given_pairs))
    told = " ".join(found.notes)
    assert "1 text whose weights are not all numbers" in told
    assert "2 texts with no more than 5 words: no top-5 overlap" in told
    assert "good is predicted for none of these texts" in told
    assert found.figure("tau, the attack succeeded").estimate == 1
    assert found.figure("top-5 overlap, the attack succeeded").estimate == 1


def test_a_model_without_gradients_says_which_methods_work():
    model = toys.classifier()
    made = subject(model, pairs())
    run = InterpretationConsistency(controls=False)
    RSMI().prepare(model, ())
    with pytest.raises(UsageError, match=r"use lime, occlusion, shapley \(-P method=…\)"):
        run.measure(made)
