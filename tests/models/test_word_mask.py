"""Variational word masks: what they draw, what they read, and that the deployed model is one everywhere."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoder_toys import CONFIGS
from transformers import AutoModelForSequenceClassification

from isthmus import explanations
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import Differentiable, Example, TokenBatch
from isthmus.models import Classifier, fold_word_mask, importance_of, load_model, word_importance, wrap
from isthmus.models.importance import pieces_of
from isthmus.models.masking import embedding_gradient
from isthmus.models.word_mask import VariationalWordMask

TEXTS = [{"text": "the film was very dull"}, {"text": "nobody saw it"}]
WORDS = ["the film was very dull and long", "a fine movie nobody saw twice"]


def make(name: str, encoder: Callable[[str], Path], after_block: bool = False) -> Classifier:
    if name in ("lstm", "cnn"):
        options = {"vectors": None, "width": 8, "hidden": 12, "filters": 6}
        model = Classifier.create(name, ("bad", "good"), texts=WORDS, options=options)
    else:
        model = Classifier.create(encoder(name), ("bad", "good"), max_tokens=32)
    torch.manual_seed(1)
    block = model.backbone.embedding_block()
    width = model.table.embedding_dim if not after_block else block(torch.zeros(1, 1, dtype=torch.long)).shape[-1]  # type: ignore[misc]
    mask = VariationalWordMask(width, model.table.num_embeddings, hidden=16, after_block=after_block)
    with torch.no_grad():
        mask.first.weight.mul_(40)  # so that words differ in importance
    return model.fill(word_mask=mask)


@pytest.mark.parametrize("name", ["lstm", "cnn", *CONFIGS])
def test_the_deployed_model_is_the_one_with_a_scaled_table(
    name: str, encoder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make(name, encoder).eval()
    inputs = model.encode(TEXTS)
    with torch.no_grad():
        deployed = model(**inputs).logits
        found = word_importance(model)
        words = found.values[~found.special]
        assert ((words > 0) & (words < 1)).all()
        assert np.ptp(words) > 0.1
        assert (found.values[found.special] == 1).all()
        assert found.tokens[8] == model.tokenizer.convert_ids_to_tokens(8)

        folded = fold_word_mask(model)
        assert torch.equal(folded(**inputs).logits, deployed)
        assert model.slots.word_mask is not None  # the model itself is left alone
        model.save(tmp_path / "own")
        loaded = load_model(tmp_path / "own")
        assert torch.equal(loaded(**inputs).logits, deployed)
        assert np.array_equal(word_importance(loaded).values, found.values)
        folded.save(tmp_path / "folded")
        assert torch.equal(load_model(tmp_path / "folded")(**inputs).logits, deployed)
        if folded.is_stock and name != "xlnet":  # whose padding has to go to the left
            stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "folded").eval()
            given = {key: value for key, value in inputs.items() if key != "token_type_ids"}
            assert torch.allclose(stock(**given).logits, deployed, atol=1e-6)


def test_what_is_given_in_a_words_place_has_the_importance_of_the_word(encoder: Callable[[str], Path]) -> None:
    model = make("bert", encoder).eval()
    inputs = model.encode(TEXTS)
    with torch.no_grad():
        given = model.embed(inputs["input_ids"])
        assert torch.equal(model(**inputs, inputs_embeds=given).logits, model(**inputs).logits)
        twice = model(**inputs, inputs_embeds=2 * given).logits
        by_hand = fold_word_mask(model)
        assert torch.equal(by_hand(**inputs, inputs_embeds=2 * by_hand.embed(inputs["input_ids"])).logits, twice)


def test_gradients_belong_to_the_table_that_attacks_are_given(encoder: Callable[[str], Path]) -> None:
    model = make("cnn", encoder).eval()
    inputs, labels = model.encode(TEXTS[:1]), np.array([1])
    batch = TokenBatch(inputs["input_ids"].numpy(), None, None)
    own, folded = wrap(model, device="cpu"), wrap(fold_word_mask(model), device="cpu")
    assert isinstance(own, Differentiable)
    assert isinstance(folded, Differentiable)
    assert np.array_equal(own.embedding_table(), folded.embedding_table())
    assert not np.array_equal(own.embedding_table(), model.table.weight.detach().numpy())
    found = own.embedding_gradients(batch, labels)
    assert np.allclose(found, folded.embedding_gradients(batch, labels), rtol=1e-4, atol=1e-8)
    raw = embedding_gradient(model, inputs["input_ids"], target=torch.from_numpy(labels)).values.numpy()
    assert np.abs(found - raw).max() > 0.1 * np.abs(found).max() > 1e-4  # that of the table as it is, not as it is read


def test_special_tokens_and_padding_are_never_masked(encoder: Callable[[str], Path]) -> None:
    model = make("bert", encoder)
    mask, inputs = model.slots.word_mask, model.encode(TEXTS)
    ids, attention = inputs["input_ids"], inputs["attention_mask"]
    ones, special = torch.ones(*ids.shape, 4), model.special_mask(ids)
    spared = special | (attention == 0)
    assert mask is not None
    for training in (True, False):
        factor = mask.train(training)(ones, attention, special, ids)[..., 0]
        assert (factor[spared] == 1).all()
        assert (factor[~spared] < 1).any()


def test_a_sample_is_zero_or_one_and_its_mean_is_the_importance(encoder: Callable[[str], Path]) -> None:
    model = make("lstm", encoder)
    mask: Any = model.slots.word_mask
    ids = torch.arange(5, 10).expand(4000, 5)
    drawn = mask.train()(torch.ones(4000, 5, 1), None, torch.zeros_like(ids, dtype=torch.bool), ids)[..., 0]
    phi = mask.eval().factors()[ids[0]]
    assert set(drawn.detach().unique().tolist()) == {0.0, 1.0}
    assert torch.allclose(drawn.detach().mean(dim=0), phi, atol=4 * 0.5 / 4000**0.5)
    drawn.sum().backward()
    assert mask.first.weight.grad.abs().sum() > 0


def test_masks_draw_from_a_stream_of_their_own(encoder: Callable[[str], Path]) -> None:
    model = make("bert", encoder).train()
    mask: Any = model.slots.word_mask
    inputs = model.encode(TEXTS)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    mask(model.embed(inputs["input_ids"]), None, model.special_mask(inputs["input_ids"]), inputs["input_ids"])
    assert torch.equal(torch.get_rng_state(), before)
    assert mask.stream.count == 1
    again = copy.deepcopy(model)
    torch.manual_seed(0)
    first = model(**inputs).logits
    torch.manual_seed(0)
    assert torch.equal(again(**inputs).logits, first)


def test_the_importance_follows_the_weights_and_is_stored_beside_them(encoder: Callable[[str], Path]) -> None:
    model = make("cnn", encoder).train()
    mask: Any = model.slots.word_mask
    before = mask.eval().factors().clone()
    model.train()(**model.encode(TEXTS)).logits.sum().backward()
    with torch.no_grad():
        mask.second.bias += torch.tensor([0.0, 1.0])
    expected = torch.sigmoid(torch.logit(before) + 1)
    state = model.state_dict()  # in the middle of training, as checkpoints are written
    assert torch.allclose(state["slots.word_mask.importance"], expected, atol=1e-5)
    assert torch.allclose(model.eval().slots.word_mask.factors(), expected, atol=1e-5)  # type: ignore[union-attr]
    # What comes with weights is used as it is: on another machine the last bits of the network differ.
    state["slots.word_mask.importance"] = torch.full_like(expected, 0.25)
    model.load_state_dict(state)
    assert (word_importance(model).values == np.where(word_importance(model).special, 1, np.float32(0.25))).all()


@pytest.mark.parametrize("name", ["bert", "roberta", "deberta-v2", "distilbert", "electra", "albert", "mpnet"])
def test_behind_the_embedding_block_importance_depends_on_the_place(
    name: str, encoder: Callable[[str], Path], tmp_path: Path
) -> None:
    model = make(name, encoder, after_block=True).eval()
    mask: Any = model.slots.word_mask
    seen: list[torch.Tensor] = []
    handle = mask.register_forward_hook(lambda _module, given, output: seen.append(output / given[0]))
    inputs = model.encode([{"text": "dull dull dull"}])
    logits = model(**inputs).logits
    handle.remove()
    factor = seen[0][0, :, 0]
    assert torch.allclose(factor[[0, -1]], torch.ones(2))
    assert len(set(factor[1:-1].tolist())) == 3
    model.save(tmp_path / "model")
    assert torch.equal(load_model(tmp_path / "model")(**inputs).logits, logits)
    with pytest.raises(ModelError, match="the position of a word"):
        word_importance(model)
    model.train()(**inputs).logits.sum().backward()
    assert mask.first.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["cnn", "t5", "xlnet"])
def test_where_there_is_no_block_there_is_nothing_behind_it(name: str, encoder: Callable[[str], Path]) -> None:
    model = make(name, encoder)
    with pytest.raises(UsageError, match="no block of its own"):
        model.fill(word_mask=VariationalWordMask(32, 10, after_block=True))


def test_a_word_has_the_importance_of_its_most_important_piece(encoder: Callable[[str], Path]) -> None:
    model = make("bert", encoder).eval()
    values = word_importance(model).values
    pieces = pieces_of(model, ["dull", "films", "", "</s>"])
    assert [model.tokenizer.convert_ids_to_tokens(row) for row in pieces] == [["dull"], ["film", "##s"], [], []]
    found = importance_of(model, ["dull", "films", ""])
    assert found[:2].tolist() == [values[pieces[0][0]], values[pieces[1]].max()]
    assert np.isnan(found[2])


def test_a_model_without_word_masks_has_no_importance(encoder: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="train it with flat"):
        word_importance(Classifier.create(encoder("bert"), ("bad", "good")))
    wrong = VariationalWordMask(5, 7)
    with pytest.raises(UsageError, match="7 words of width 5"):
        Classifier.create(encoder("bert"), ("bad", "good")).fill(word_mask=wrong)
    with pytest.raises(UsageError, match="temperature"):
        VariationalWordMask(5, 7, temperature=0)


def test_words_of_the_vectors_can_join_the_vocabulary(tmp_path: Path, encoder: Callable[[str], Path]) -> None:
    file = tmp_path / "vectors.txt"
    rows = [f"{word} {number} 1" for number, word in enumerate(["dull", "tedious", "don't", "Boring", "slow", "grey"])]
    file.write_text("\n".join(rows) + "\n")
    sizes = {"vectors": str(file), "hidden": 4}
    plain, more = (
        Classifier.create("lstm", ("bad", "good"), texts=WORDS, options={**sizes, "more": count}) for count in (0, 2)
    )
    before, after = plain.tokenizer.get_vocab(), more.tokenizer.get_vocab()
    # What is there already, is cut in two or is never written so does not count.
    assert sorted(after.items() - before.items()) == [("slow", len(before) + 1), ("tedious", len(before))]
    assert more.table.weight[after["tedious"]].tolist() == [1.0, 1.0]
    with pytest.raises(UsageError, match="no word vectors to take them from"):
        Classifier.create("lstm", ("bad", "good"), texts=WORDS, options={"vectors": None, "more": 2})
    with pytest.raises(UsageError, match="more: options are for lstm and cnn"):
        Classifier.create(encoder("bert"), ("bad", "good"), options={"more": 2})


def test_explanations_are_those_of_the_scaled_model(encoder: Callable[[str], Path]) -> None:
    model = make("cnn", encoder).eval()
    example = Example("one", {"text": "the film was very dull"}, 0)
    own, folded = (
        next(iter(explanations.IntegratedGradients(steps=100)(wrap(each, device="cpu"), [example])))
        for each in (model, fold_word_mask(model))
    )
    assert np.allclose(own.weights, folded.weights, rtol=1e-3, atol=1e-6)
    assert np.abs(own.weights).max() > 1e-3
