"""Explanations by gradients: completeness, closed forms of linear models, captum's answers, any encoder."""

from __future__ import annotations

from typing import Any

import certify_toys as toys
import numpy as np
import pytest
import torch
from encoder_toys import CONFIGS, save_encoder

from isthmus import explanations
from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.explanations import GradientXInput, IntegratedGradients
from isthmus.models import Classifier, wrap
from isthmus.models.bottleneck import GaussianBottleneck

TEXTS = ["the film was fine", "a dull film", "the plot was good and the film great", "very", "Boring and FLAT!"]


def examples(texts=TEXTS) -> list[Example]:
    return [Example(f"t:{number}", {"text": text}, 0) for number, text in enumerate(texts)]


@pytest.mark.parametrize("method", [IntegratedGradients(steps=1), IntegratedGradients(steps=7), GradientXInput()])
def test_of_a_linear_model_a_word_weighs_what_it_adds(method):
    model = toys.linear()
    vocabulary = model.tokenizer.get_vocab()
    for found in method(model, examples(), classes="all"):
        for label in (0, 1):
            weight = model.head.weight[label].detach().double()
            expected = [
                float(model.table.weight[vocabulary.get(word.lower(), vocabulary["[UNK]"])].detach().double() @ weight)
                for word in found.words
            ]
            assert found.towards(label) == pytest.approx(expected, abs=1e-5)
        if method.name == "integrated_gradients":
            assert max(found.details["completeness error"]) < 1e-5


@pytest.mark.parametrize("output", ["logit", "probability"])
@pytest.mark.parametrize("form", ["cnn", "lstm"])
def test_weights_add_up_to_what_the_words_change(form, output):
    model = toys.network(form)
    errors = []
    for steps in (10, 200):
        found = list(IntegratedGradients(steps=steps, output=output)(model, examples(), classes="all"))
        errors.append(max(max(each.details["completeness error"]) for each in found))
    assert errors[1] < errors[0]
    assert errors[1] < 0.02
    victim = wrap(model)
    for each, clean in zip(found, victim.scores([{"text": text} for text in TEXTS]), strict=True):
        assert each.scores == pytest.approx(clean.tolist(), abs=1e-5)
        ids = model.encode([each.texts])["input_ids"]
        embeddings = torch.where(model.special_mask(ids).unsqueeze(-1), model.embed(ids), 0.0)
        with torch.no_grad():
            start, end = model(ids, inputs_embeds=embeddings).logits[0], model(ids).logits[0]
        if output == "probability":
            start, end = start.softmax(-1), end.softmax(-1)
        total = each.weights.sum(axis=1) + each.details["outside words"]
        assert total == pytest.approx((end - start).tolist(), abs=0.02)
        assert any(each.details["outside words"]) == ("!" in each.texts["text"]), "punctuation weighs, but is no word"


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "t5"])
def test_it_is_captums_answer(architecture, tmp_path):
    """The same midpoints, baseline and class; captum's rows are tokens, ours words."""
    captum = pytest.importorskip("captum.attr")
    model = Classifier.create(str(save_encoder(architecture, tmp_path)), ("bad", "good"), seed=1).eval()
    victim = wrap(model, device="cpu")
    found = list(IntegratedGradients(steps=12)(victim, examples(), classes=[1]))
    for each in found:
        encoded = model.encode([each.texts])
        ids, types = encoded["input_ids"], encoded.get("token_type_ids")
        end = model.embed(ids).detach()
        start = torch.where(model.special_mask(ids).unsqueeze(-1), end, torch.zeros_like(end))

        def forward(embeddings, ids=ids, types=types):
            count = len(embeddings)
            own = None if types is None else types.expand(count, -1)
            return model(ids.expand(count, -1), None, own, embeddings).logits

        reference = captum.IntegratedGradients(forward).attribute(
            end, baselines=start, target=1, n_steps=12, method="riemann_middle"
        )
        tokens = reference.sum(dim=-1)[0].numpy()
        offsets = model.tokenizer(each.texts["text"], return_offsets_mapping=True)["offset_mapping"]
        words = [0.0] * len(each.words)
        spans = [(each.texts["text"].index(word), word) for word in each.words]
        for (left, right), weight in zip(offsets, tokens, strict=True):
            inside = [n for n, (at, word) in enumerate(_placed(each)) if left < at + len(word) and right > at]
            if right > left and inside:
                words[inside[0]] += float(weight)
        assert spans
        assert each.weights[0] == pytest.approx(words, abs=1e-5)


def _placed(found):
    at = 0
    for word in found.words:
        at = found.texts["text"].index(word, at)
        yield at, word
        at += len(word)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_every_encoder_can_be_explained(architecture, tmp_path):
    model = Classifier.create(str(save_encoder(architecture, tmp_path)), ("a", "b", "c"), seed=1).eval()
    found = list(IntegratedGradients(steps=64)(model, examples(), classes="all"))
    assert [each.weights.shape for each in found] == [(3, len(each.words)) for each in found]
    assert all(np.isfinite(each.weights).all() for each in found)
    if architecture != "t5":  # Its norm takes the length off every embedding: the path jumps where it begins.
        assert max(max(each.details["completeness error"]) for each in found) < 0.02
    (alone,) = IntegratedGradients(steps=64)(model, examples()[2:3], classes="all")
    assert alone.weights == pytest.approx(found[2].weights, abs=1e-5)


def test_pairs_and_texts_that_are_cut_off(tmp_path):
    folder = str(save_encoder("bert", tmp_path))
    model = Classifier.create(folder, ("a", "b"), ("premise", "hypothesis"), max_tokens=12, seed=1).eval()
    pair = {"premise": "the film was long and very dull and too quiet", "hypothesis": "nobody saw it"}
    found: Any = explanations.explain(model, pair)
    assert len(found.words) == 13
    assert np.count_nonzero(found.weights[0]) < 13, "what is not read weighs nothing"
    assert "".join(piece for piece, _ in found.pieces()) == "\n".join(pair.values())
    with pytest.raises(UsageError, match="premise and hypothesis"):
        explanations.explain(model, "one text")


def test_what_has_no_gradient_to_explain_by():
    drawn = toys.network("cnn").fill(bottleneck=GaussianBottleneck(12, inference="sample"))
    with pytest.raises(UsageError, match=r"answers at random.*use lime, occlusion, shapley"):
        explanations.explain(drawn, "a dull film", method="gradient_x_input")
    found: Any = explanations.explain(drawn, "a dull film", method="occlusion")
    assert len(found.weights[0]) == 3
    with pytest.raises(UsageError, match="at least 1 step"):
        IntegratedGradients(steps=0)
    with pytest.raises(UsageError, match="'logit' or 'probability'"):
        GradientXInput(output="loss")


def test_parameters_get_no_gradients_and_the_mode_is_kept_out_of_it():
    model = toys.network("lstm").train()
    explanations.explain(model, "a dull film")
    assert all(parameter.grad is None for parameter in model.parameters())
    found: list[Any] = [explanations.explain(model, "a dull film") for _ in range(2)]
    assert (found[0].weights == found[1].weights).all(), "dropout is off"
