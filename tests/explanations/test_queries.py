"""Explanations by leaving words out: closed forms, exact Shapley values, and scikit-learn's and captum's answers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from isthmus import explanations
from isthmus.core.errors import IsthmusError, UsageError, VictimError
from isthmus.core.seeds import derive
from isthmus.core.types import Example
from isthmus.explanations import LIME, Occlusion, Shapley
from isthmus.explanations.lime import closeness, draw_kept, ridge

WEIGHTS = {"great": 0.3, "fine": 0.2, "dull": -0.25, "not": -0.1}
TEXT = "a great but not dull film"


def scores(good: list[float]) -> np.ndarray:
    return np.stack([1 - np.array(good), np.array(good)], axis=1)


def additive(texts: list[str]) -> np.ndarray:
    """p(good) = 0.5 + the sum of the words' weights."""
    return scores([0.5 + sum(WEIGHTS.get(word, 0.0) for word in text.split()) for text in texts])


def pairwise(texts: list[str]) -> np.ndarray:
    """ "not" turns around what "dull" does: words that matter together."""

    def good(words: list[str]) -> float:
        return 0.5 + 0.2 * ("great" in words) + (0.2 if "not" in words else -0.2) * ("dull" in words)

    return scores([good(text.split()) for text in texts])


def threefold(texts: list[str]) -> np.ndarray:
    """Three words that matter only together: an order and its reverse do not settle what each adds."""
    return scores([0.5 + 0.4 * ({"great", "not", "dull"} <= set(text.split())) for text in texts])


METHODS = {"occlusion": Occlusion(), "lime": LIME(samples=400, ridge=0.0), "shapley": Shapley(orders=4)}


@pytest.mark.parametrize("name", METHODS)
def test_of_an_additive_model_the_weights_are_the_words_own(name):
    found: Any = explanations.explain(additive, TEXT, method=METHODS[name], classes="all")
    expected = [WEIGHTS.get(word, 0.0) for word in TEXT.split()]
    assert found.words == TEXT.split()
    assert found.towards(1) == pytest.approx(expected, abs=1e-6)
    assert found.towards(0) == pytest.approx([-weight for weight in expected], abs=1e-6)
    assert found.scores == pytest.approx((0.55, 0.45), abs=1e-6)
    assert found.method == name


def shapley_values(function, words: list[str]) -> list[float]:
    """By the definition: over all subsets."""
    n = len(words)

    def value(chosen: tuple[int, ...]) -> float:
        return float(function([" ".join(words[i] for i in sorted(chosen))])[0, 1])

    def weight(size: int) -> float:
        return math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)

    return [
        sum(
            weight(size) * (value((*chosen, i)) - value(chosen))
            for size in range(n)
            for chosen in itertools.combinations([j for j in range(n) if j != i], size)
        )
        for i in range(n)
    ]


def test_shapley_values_by_all_subsets():
    exact = shapley_values(threefold, TEXT.split())
    found: Any = explanations.explain(threefold, TEXT, method="shapley", orders=800, classes=[1])
    error = found.details["largest standard error"][0]
    assert 0 < error < 0.02
    assert np.abs(found.weights[0] - exact).max() < 5 * error
    few: Any = explanations.explain(threefold, TEXT, method="shapley", orders=2, classes=[1])
    two: Any = explanations.explain(pairwise, TEXT, method="shapley", orders=2, classes=[1])
    assert two.weights[0] == pytest.approx(shapley_values(pairwise, TEXT.split()), abs=1e-6), "of pairs it is exact"
    for each in (found, few):
        assert each.weights.sum() == pytest.approx(0.9 - 0.5, abs=1e-6), "what all words add up to is exact"


def test_the_regression_is_scikit_learns():
    linear_model = pytest.importorskip("sklearn.linear_model")
    stream = np.random.default_rng(0)
    samples, targets = (stream.random((60, 7)) < 0.5).astype(float), stream.random((60, 3))
    weights = stream.random(60)
    for penalty in (0.0, 1.0, 30.0):
        coefficients, explained = ridge(samples, targets, weights, penalty)
        for column in range(3):
            model = linear_model.Ridge(alpha=penalty).fit(samples, targets[:, column], sample_weight=weights)
            assert coefficients[:, column] == pytest.approx(model.coef_, abs=1e-8)
            assert explained[column] == pytest.approx(model.score(samples, targets[:, column], weights), abs=1e-8)


@pytest.mark.parametrize("answer", [1.0, 0.1, 1 / 3])
def test_of_a_constant_model_no_word_has_weight(answer):
    stream = np.random.default_rng(0)
    samples, weights = (stream.random((60, 7)) < 0.5).astype(float), stream.random(60)
    coefficients, explained = ridge(samples, np.full((60, 2), answer), weights, 1.0)
    assert not coefficients.any()
    assert (explained == 1).all()


def test_lime_is_captums_on_the_same_samples():
    """captum fits one text and one class at a time; given our samples and weights it finds the same."""
    import torch

    captum = pytest.importorskip("captum.attr")
    linear_model = pytest.importorskip("captum._utils.models.linear_model")
    words, lime = TEXT.split(), LIME(samples=200)
    (found,) = lime(pairwise, [Example("t", {"text": TEXT}, 0)], classes=[1], seed=3)
    present = draw_kept(len(words), 200, derive(3, "explanation", "t"))
    rows = iter(zip(present, closeness(present, lime.kernel_width), strict=True))
    weights: list[float] = []

    def sample(*_args, **_kwargs):
        row, weight = next(rows)
        weights.append(float(weight))
        return torch.tensor(row, dtype=torch.float32).unsqueeze(0)

    def forward(mask):
        texts = [" ".join(word for word, keep in zip(words, row, strict=True) if keep) for row in mask.bool().tolist()]
        return torch.tensor(pairwise(texts)[:, 1], dtype=torch.float32)

    reference = captum.LimeBase(
        forward,
        linear_model.SkLearnRidge(alpha=lime.ridge),
        similarity_func=lambda *_args, **_kwargs: torch.tensor(weights[-1]),
        perturb_func=sample,
        perturb_interpretable_space=True,
        from_interp_rep_transform=lambda z, *_args, **_kwargs: z,
        to_interp_rep_transform=None,
    )
    expected = reference.attribute(torch.ones(1, len(words)), n_samples=200)
    assert found.weights[0] == pytest.approx(expected[0].numpy(), abs=1e-4)


def test_samples_keep_every_number_of_words_and_the_first_keeps_all():
    present = draw_kept(5, 2000, 1)
    assert present[0].all()
    counts = np.bincount(present[1:].sum(axis=1), minlength=6)
    assert counts[5] == 0
    assert (counts[:5] > 300).all(), "from 1 to all words are left out, each number as often"
    assert np.abs(present[1:].mean(axis=0) - 0.4).max() < 0.05, "no place is preferred"
    assert closeness(present[:1], 25.0)[0] == 1.0


def test_an_explanation_depends_on_seed_and_text_alone():
    examples = [Example(f"t:{n}", {"text": text}, 0) for n, text in enumerate([TEXT, "fine", "dull dull film"])]
    for method in (LIME(samples=50), Shapley(orders=4)):
        together = {found.id: found.weights for found in method(threefold, examples)}
        assert list(together) == [example.id for example in examples]
        for example in reversed(examples):
            (alone,) = method(threefold, [example])
            assert (alone.weights == together[example.id]).all()
        (other,) = method(threefold, examples[:1], seed=1)
        assert (other.weights != together["t:0"]).any()


def test_what_stands_for_a_word_that_is_left_out():
    seen: list[str] = []

    def watched(texts: list[str]) -> np.ndarray:
        seen.extend(texts)
        return additive(texts)

    explanations.explain(watched, "a great film", method="occlusion", absent="unknown")
    assert "a [UNK] film" in seen
    seen.clear()
    explanations.explain(watched, "a great film", method="occlusion")
    assert "a film" in seen


@pytest.mark.parametrize("name", METHODS)
def test_texts_without_words_and_with_one(name):
    def constant(texts: list[str]) -> np.ndarray:
        return np.tile([0.3, 0.7], (len(texts), 1))

    for text, words in (("", 0), (" ?! ", 0), ("film", 1)):
        (found,) = METHODS[name](constant, [Example("0", {"text": text}, 0)])
        assert found.weights.shape == (1, words)
        assert found.prediction == 1
        assert np.isfinite(found.weights).all()
        assert np.abs(found.weights).max(initial=0) < 1e-6
    for text in ("", " ?! "):
        with pytest.raises(UsageError, match=r"text:0 has no words to explain .*: give a text with at least one word"):
            explanations.explain(constant, text, method=METHODS[name])


def test_bad_input():
    with pytest.raises(UsageError, match="'delete' or 'unknown', not 'blank'"):
        Occlusion(absent="blank")
    for parameters in ({"samples": 1}, {"kernel_width": 0.0}, {"ridge": -1.0}, {"ridge": math.nan}):
        with pytest.raises(UsageError):
            LIME(**parameters)
    with pytest.raises(UsageError, match="at least 2 orders"):
        Shapley(orders=1)
    with pytest.raises(
        UsageError, match=r"needs the model's gradient, and .* gives none: use lime, occlusion, shapley"
    ):
        explanations.explain(additive, TEXT, method="integrated_gradients")
    with pytest.raises(IsthmusError, match="nice"):
        explanations.explain(additive, TEXT, method="lime", classes="nice")
    with pytest.raises(UsageError, match="no class is asked about"):
        explanations.explain(additive, TEXT, method="lime", classes=[])
    with pytest.raises(UsageError, match="text 0 is a int"):
        explanations.explain(additive, [3], method="lime")  # type: ignore[list-item]
    with pytest.raises(UsageError, match="parameters belong to the method"):
        explanations.explain(additive, TEXT, method=LIME(), samples=3)

    def broken(texts: list[str]) -> np.ndarray:
        raise RuntimeError("no answer")

    with pytest.raises(VictimError, match="no answer"):
        explanations.explain(broken, TEXT, method="occlusion")


def test_it_shows_itself_and_escapes_what_the_text_holds():
    text = "great <script>alert(1)</script> \u202e dull"
    found: Any = explanations.explain(additive, text, method="occlusion", classes="all")
    page = found._repr_html_()
    assert "<script>" not in page
    assert "\u202e" not in page
    assert page.count("<p ") == 2
    assert 'title="+0.3"' in page
    assert "".join(piece for piece, _ in found.pieces()) == text
    told = found.to_json()
    assert told["words"] == found.words
    assert len(told["weights"]) == 2


@pytest.mark.parametrize("given", [None, 7, b"a text"])
def test_what_is_no_text_is_refused(given):
    with pytest.raises(UsageError, match="explain takes a text or several"):
        explanations.explain(additive, given, method="occlusion")


def test_an_explanation_survives_json():
    import json

    found: Any = explanations.explain(additive, "a great, dull film", method="occlusion", classes="all")
    again = explanations.Explanation.from_json(json.loads(json.dumps(found.to_json())))
    assert again.to_json() == found.to_json()
    assert again.classes == found.classes
    damaged = found.to_json()
    damaged["weights"] = {label: [0.1] for label in damaged["weights"]}
    with pytest.raises(ValueError, match="for 4 words"):
        explanations.Explanation.from_json(damaged)
