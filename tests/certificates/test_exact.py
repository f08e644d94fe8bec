"""The exact certificate: enumeration is brute force, and intervals never certify what enumeration refutes."""

from __future__ import annotations

import copy
import math
from typing import Any

import certify_toys as toys
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.attacks.parts.protection import Protection
from isthmus.certificates import Exact, Gaussian, Synonym
from isthmus.certificates._intervals import Box, bound_margin, bound_pooled, is_bounded, product, slack, token_choices
from isthmus.certificates._substitutions import SubstitutionSpace
from isthmus.certificates.base import Challenge
from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.models import Classifier, ClassifierVictim, fold_word_mask, wrap
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.word_mask import VariationalWordMask

FORMS = ["cnn", "lstm", "bilstm"]


def network(form: str, seed: int, spread: float) -> Classifier:
    if form == "bilstm":
        return toys.network("lstm", seed, spread, bidirectional=True)
    return toys.network(form, seed, spread)


@pytest.fixture
def table(tmp_path) -> str:
    toys.table().write(tmp_path / "synonyms.json")
    return str(tmp_path)


def brute_force(victim, text: str, prediction: int) -> float:
    """The fewest words that change the answer, less one; infinite where nothing does."""
    texts = toys.every_text(text, toys.table())
    found = victim.scores([{"text": other} for other in texts]).argmax(axis=1)
    changed = [sum(a != b for a, b in zip(text.split(), other.split(), strict=True)) for other in texts]
    flips = [count for count, answer in zip(changed, found, strict=True) if answer != prediction]
    return min(flips) - 1.0 if flips else math.inf


@pytest.mark.parametrize("intervals", [False, True], ids=["enumeration", "both"])
@pytest.mark.parametrize("form", FORMS)
def test_it_agrees_with_brute_force(form, intervals, table):
    decided = set()
    for seed in range(3):
        victim = wrap(network(form, seed, 1.0))
        texts = ["the film was fine", "a dull film", "the plot was good and the film great", "very very"]
        answers = victim.scores([{"text": text} for text in texts]).argmax(axis=1)
        examples = [
            Example(f"test:{n}", {"text": t}, int(a)) for n, (t, a) in enumerate(zip(texts, answers, strict=True))
        ]
        for result in Exact(table=table, intervals=intervals)(victim, examples):
            text = examples[int(result.id[5:])].texts["text"]
            assert result.strength == brute_force(victim, text, result.prediction)
            decided.add(result.strength)
            other = result.details["counterexample"]
            if other is not None:
                assert victim.scores([other]).argmax() != result.prediction
                assert (
                    SubstitutionSpace.of({"text": text}, toys.table(), Protection()).distance(other)
                    == result.strength + 1
                )
    assert math.inf in decided
    assert len(decided) > 1


@pytest.mark.parametrize("form", FORMS)
def test_intervals_are_sound(form):
    certified = refuted = 0
    for seed, spread in [(0, 0.02), (1, 0.02), (2, 0.1), (3, 0.3), (4, 1.0), (5, 1.0)]:
        model = network(form, seed, spread)
        victim = wrap(model)
        for text in ("the film was fine", "a dull film", "the plot was good and the film great"):
            prediction = int(victim.scores([{"text": text}]).argmax())
            margin = bound_margin(model, SubstitutionSpace.of({"text": text}, toys.table(), Protection()), prediction)
            assert margin is not None
            holds = brute_force(victim, text, prediction) == math.inf
            assert holds or margin <= 0, "certified what enumeration refutes"
            certified += margin > 0
            refuted += not holds
    assert certified
    assert refuted


@pytest.mark.parametrize("form", FORMS)
def test_word_masks_that_scale_words_are_another_table(form):
    model = network(form, 2, 0.1)
    mask = VariationalWordMask(model.table.embedding_dim, model.table.num_embeddings, hidden=8)
    with torch.no_grad():
        mask.first.weight.mul_(20)
    space = SubstitutionSpace.of({"text": "the film was fine"}, toys.table(), Protection())
    plain = bound_margin(model, space, 1)
    assert is_bounded(wrap(model.fill(word_mask=mask).eval(), device="cpu"))
    assert bound_margin(model, space, 1) == bound_margin(fold_word_mask(model), space, 1) != plain


@pytest.mark.parametrize("form", FORMS)
def test_every_text_lies_in_the_box(form):
    model = network(form, 7, 0.5)
    space = SubstitutionSpace.of({"text": "the film was fine and dull"}, toys.table(), Protection())
    with torch.no_grad():
        box = bound_pooled(model, token_choices(model, space))
        assert (box.low <= box.high).all()
        assert (box.high - box.low).max() > 0
        for count in range(len(space.positions) + 1):
            for text in space.texts(count):
                vector = model.backbone(model.encode([text])["input_ids"], None, None, None, False).vector[0]
                assert (vector >= box.low - 1e-5).all()
                assert (vector <= box.high + 1e-5).all()


@pytest.mark.parametrize("seed", range(4))
def test_intervals_are_exact_where_the_model_is_linear(seed):
    """One filter that reads one word and is never cut off: the least lead is that of the worst synonym."""
    model = toys.network("cnn", seed, 1.0, widths=(1,), filters=1)
    backbone: Any = model.backbone
    layer = backbone.convolutions.filters[0]
    with torch.no_grad():
        layer.bias.fill_(100.0)
        weight = layer.weight[0, :, 0]
        model.table.weight[2] = -50 * weight / weight.norm() ** 2  # the separator must not win the maximum over time
        leads = []
        for text in ("fine", "good", "decent"):
            logits = model(**model.encode([{"text": text}])).logits[0].double()
            leads.append(float(logits[1] - logits[0]))
    margin = bound_margin(model, SubstitutionSpace.of({"text": "fine"}, toys.table(), Protection()), 1)
    assert len(set(leads)) == 3
    assert margin == pytest.approx(min(leads), abs=0.01)
    assert margin <= min(leads)


numbers = st.floats(-3, 3)


@settings(max_examples=100, deadline=None)
@given(numbers, numbers, numbers, numbers, st.floats(0, 1), st.floats(0, 1))
def test_products_of_intervals(a, b, c, d, s, t):
    one, other = (
        Box(*(torch.tensor(v, dtype=torch.float64) for v in sorted((a, b)))),
        Box(*(torch.tensor(v, dtype=torch.float64) for v in sorted((c, d)))),
    )
    found = product(one, other)
    x, y = one.low + s * (one.high - one.low), other.low + t * (other.high - other.low)
    assert found.low - 1e-12 <= x * y <= found.high + 1e-12


def test_the_limit_is_kept_and_what_was_read_is_certified(table):
    victim = toys.Noisy(["fine", "good", "great", "decent", "film", "movie"])
    text = "the movie was decent good and fine"
    for limit, strength in ((1, 0), (7, 1), (20, 2), (10_000, math.inf)):
        (result,) = Exact(table=table, limit=limit)(victim, toys.examples([text]))
        assert result.strength == strength
        assert result.details["texts_read"] <= limit


def test_words_that_are_cut_off_or_unknown_are_no_trouble(table):
    model = network("cnn", 1, 0.3)
    model.max_tokens = 4
    model.tokenizer.model_max_length = 4
    victim = wrap(model)
    text = "the film was fine and dull"
    prediction = int(victim.scores([{"text": text}]).argmax())
    space = SubstitutionSpace.of({"text": text}, toys.table(), Protection())
    choices = token_choices(model, space)
    assert [len(own) for own in choices] == [1, 2, 1, 1]
    assert bound_margin(model, space, prediction) is not None
    (result,) = Exact(table=table)(victim, [Example("test:0", {"text": text}, prediction)])
    assert result.strength == brute_force(victim, text, prediction)


def test_a_wrong_answer_and_a_text_without_choices_are_settled_at_once(table):
    victim = toys.Noisy(["fine"])
    wrong, plain = Exact(table=table)(
        victim, toys.examples(["the plot", "very fine"]), protection=Protection(pattern=".*")
    )
    assert (wrong.outcome, wrong.strength) == ("wrong", 0)
    assert (plain.outcome, plain.strength, plain.details["substitutable"]) == ("certified", math.inf, 0)


def test_a_model_that_answers_at_random_has_no_exact_answer(table):
    model = toys.network("cnn").fill(bottleneck=GaussianBottleneck(12, inference="sample"))
    with pytest.raises(UsageError, match="answers at random"):
        Exact(table=table)(model, toys.examples())
    with pytest.raises(UsageError, match="at least 1, not 0"):
        Exact(limit=0)


def test_a_slot_leaves_only_enumeration(table):
    model = toys.network("cnn").fill(bottleneck=GaussianBottleneck(12))
    results = list(Exact(table=table)(model, toys.examples(["a dull film"], label=0) + toys.examples(["a dull film"])))
    assert {result.details["method"] for result in results} <= {"enumeration", "none"}


def test_a_text_that_is_answered_otherwise_refutes(table):
    answers = Exact(table=table).challenge(
        toys.Noisy(["fine"]), [Challenge("a", {"text": "fine"}, 1), Challenge("b", {"text": "dull"}, 1)], 0
    )
    assert [answer.refutes for answer in answers] == [False, True]


def test_pairs_are_bounded_field_by_field(table):
    sizes = {"vectors": None, "width": 4, "filters": 4, "widths": (1, 2)}
    model = Classifier.create(
        "cnn", toys.TASK.labels, ("premise", "hypothesis"), texts=[" ".join(toys.WORDS)], options=sizes, seed=3
    )
    pair = {"premise": "the film was fine", "hypothesis": "a dull film"}
    victim = wrap(model)
    space = SubstitutionSpace.of(pair, toys.table(), Protection())
    assert [len(own) for own in token_choices(model, space)] == [1, 2, 1, 3, 1, 1, 3, 2, 1]
    with torch.no_grad():
        box = bound_pooled(model, token_choices(model, space))
    texts = [text for count in range(5) for text in space.texts(count)]
    assert len(texts) == 2 * 3 * 3 * 2
    for text in texts:
        with torch.no_grad():
            vector = model.backbone(model.encode([text])["input_ids"], None, None, None, False).vector[0]
        assert (vector >= box.low - 1e-5).all()
        assert (vector <= box.high + 1e-5).all()
    label = int(victim.scores([pair]).argmax())
    (result,) = Exact(table=table)(victim, [Example("test:0", pair, label)])
    (only,) = Exact(table=table)(victim, [Example("test:0", pair, label)], protection=Protection(columns=("premise",)))
    assert (result.details["substitutable"], only.details["substitutable"]) == (4, 2)
    assert only.strength >= result.strength


@pytest.mark.parametrize("form", FORMS)
def test_the_box_holds_float32_sums_in_whatever_order(form):
    """A text without synonyms: what float32 makes of it lies in the box, and so do other orders of its sums."""
    options = {"width": 64, "hidden": 48, "filters": 32, "widths": (1, 3)}
    model = toys.network("lstm" if form == "bilstm" else form, 3, 0.3, bidirectional=form == "bilstm", **options)
    space = SubstitutionSpace.of({"text": "the plot was very the plot was and"}, toys.table(), Protection(pattern=".*"))
    ids = model.encode([space.with_words({})])["input_ids"]
    with torch.no_grad():
        box = bound_pooled(model, token_choices(model, space))
        assert ((box.high > box.low) | (box.high == 0)).all(), "even one text has a width: its sums are rounded"
        exact = copy.deepcopy(model).double().backbone(ids, None, None, None, False).vector[0]
        assert (box.low <= exact).all()
        assert (exact <= box.high).all()
        differs = False
        for seed in range(8):
            order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
            vector = permuted(model, order).backbone(ids, None, None, None, False).vector[0]
            assert vector.dtype == torch.float32
            assert (box.low <= vector).all()
            assert (vector <= box.high).all()
            differs |= bool((vector.double() != exact).any())
        assert differs, "there was nothing to hold"


def permuted(model: Classifier, order: torch.Tensor) -> Classifier:
    """The same function, with the terms of its first sums in another order."""
    other = copy.deepcopy(model)
    other.table.weight.data = other.table.weight.data[:, order]
    backbone: Any = other.backbone
    if backbone.form == "cnn":
        for layer in backbone.convolutions.filters:
            layer.weight.data = layer.weight.data[:, order].contiguous()
    else:
        lstm = backbone.recurrence.lstm
        for name in ("weight_ih_l0", *(("weight_ih_l0_reverse",) if lstm.bidirectional else ())):
            getattr(lstm, name).data.copy_(getattr(lstm, name).data[:, order])
    return other


def test_every_step_of_an_lstm_is_widened():
    """With recurrent weights of zero each state is rounded anew; with large ones what was lost before is carried on."""
    model = toys.network("lstm", 0, 0.3)
    backbone: Any = model.backbone
    lstm = backbone.recurrence.lstm
    space = SubstitutionSpace.of({"text": "the plot was very the plot"}, toys.table(), Protection(pattern=".*"))
    with torch.no_grad():
        lstm.weight_hh_l0.zero_()
        alone = bound_pooled(model, token_choices(model, space))
        lstm.weight_hh_l0.fill_(1.0)
        together = bound_pooled(model, token_choices(model, space))
    assert float((alone.high - alone.low).min()) > 1e-6
    assert float((together.high - together.low).mean()) > float((alone.high - alone.low).mean())


def test_longer_sums_lose_more():
    """n u of the terms' sizes, and a convolution of 300 wide vectors over five words is more than 1e-5 of them."""
    assert slack(10) == 1e-5
    for terms in (300, 1501, 20_000):
        assert slack(terms) > terms * 2**-24 / (1 - terms * 2**-24)
    assert slack(1501) < 1e-4


@pytest.mark.parametrize("certificate", [Exact, Synonym, Gaussian])
def test_bfloat16_is_refused_from_python_too(certificate, table):
    victim = wrap(toys.network("cnn"), device="cpu")
    assert isinstance(victim, ClassifierVictim)
    victim.precision = "bf16"
    with pytest.raises(UsageError, match="computed in fp32, and this model answers in bf16"):
        certificate(table=table)(victim, toys.examples())
