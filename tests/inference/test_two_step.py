"""Masks on the words that matter, and inference in two steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.randomness import branch, copy_keys, mix64
from isthmus.arithmetic.transfer import Inputs
from isthmus.core.errors import ModelError, UsageError
from isthmus.core.types import ABSTAINS, TokenBatch, TokenVictim
from isthmus.defences import RSMI, Batch
from isthmus.inference import two_step_batches, two_step_victim
from isthmus.inference.two_step import TwoStep
from isthmus.inference.two_step_victim import TwoStepVictim
from isthmus.inference.votes import average_logits, find_undecided, share_votes
from isthmus.models import Classifier, ClassifierVictim, load_model, load_victim, masking
from isthmus.models.gaussian_noise import GaussianNoise, noise_blocks
from isthmus.models.masking import MaskCandidates
from isthmus.models.victims.classifier import MOST_TOKENS

ENCODERS = ("bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "t5")
ALL = (*ENCODERS, "lstm", "cnn")
TEXTS = [
    {"text": "a moving, quiet film"},
    {"text": "the story was very very dull and it was too long!"},
    {"text": ""},
    {"text": "nobody saw it twice"},
    {"text": "fine"},
]
KEYS = np.arange(len(TEXTS), dtype=np.uint64) * np.uint64(7919) + np.uint64(3)
OPTIONS = {"vectors": None, "width": 12, "hidden": 10, "filters": 4}


@pytest.fixture
def classifier(encoder: Callable[[str], Path]) -> Callable[..., Classifier]:
    def make(name: str = "bert", sigma: float = 0.5, **settings: object) -> Classifier:
        if name in ("lstm", "cnn"):
            model = Classifier.create(name, ("no", "yes"), texts=[text["text"] for text in TEXTS], options=OPTIONS)
        else:
            model = Classifier.create(encoder(name), ("no", "yes"))
        if name == "t5":
            model.tokenizer.mask_token = None
            model.tokenizer.add_tokens(["<extra_id_0>"])
            assert model.tokenizer.mask_token_id is None
        with torch.no_grad():  # Otherwise an untrained head sees no difference between the texts.
            for name, parameter in model.named_parameters():
                if "classifier" in name or name.startswith("head"):
                    parameter.mul_(8)
        model.fill(noise=GaussianNoise(sigma, noise_blocks(model.backbone.depth)))
        model.deployment = TwoStep(**{"k1": 8, **settings})
        return model

    return make


def victim_of(model: Classifier, **options: object) -> TwoStepVictim:
    assert model.deployment is not None
    victim = model.deployment.victim(model, **options)
    assert isinstance(victim, TwoStepVictim)
    return victim


# ---------------------------------------------------------------------- accepting


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        ({"accept_rule": "released"}, [5]),
        ({"accept_rule": "released", "level": 0.9}, [4, 5]),
        ({"accept_rule": "greater", "level": 0.05}, [5]),
        ({"accept_rule": "greater", "level": 0.02}, []),
        ({"accept_rule": "greater", "level": 0.2}, [4, 5]),
        ({"accept_rule": "min_count"}, [5]),
        ({"accept_rule": "min_count", "min_count": 3}, [3, 4, 5]),
        ({"two_step": False}, [0, 1, 2, 3, 4, 5]),
    ],
    ids=lambda value: "-".join(map(str, value.values() if isinstance(value, dict) else value)) or "none",
)
def test_the_table_of_accepted_votes(settings, accepted):
    assert np.flatnonzero(TwoStep(k0=5, **settings).find_accepted()).tolist() == accepted


def test_accepting_is_the_binomial_test_it_says_it_is():
    for k0 in (1, 5, 8):
        for n in range(k0 + 1):
            less = binomtest(n, k0, 0.5, alternative="less").pvalue
            greater = binomtest(n, k0, 0.5, alternative="greater").pvalue
            assert TwoStep(k0=k0, level=0.7).find_accepted()[n] == (less >= 0.7)
            assert TwoStep(k0=k0, level=0.3, accept_rule="greater").find_accepted()[n] == (greater <= 0.3)


def test_open_votes_are_those_of_the_two_sided_test():
    table = find_undecided(20, 0.05)
    for first in range(21):
        for second in range(first + 1):
            expected = first + second == 0 or binomtest(first, first + second, 0.5).pvalue > 0.05
            assert table[first, second] == expected


def test_no_masks_may_be_asked_for_as_a_command_line_hands_it_on():
    assert TwoStep(masking=None) == TwoStep(masking="none")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k0": 0}, "k0"),
        ({"k1": 0}, "k1"),
        ({"masked": -1}, "masked"),
        ({"masked": 6}, "candidates"),
        ({"level": 1.0}, "level"),
        ({"level": float("nan")}, "level"),
        ({"abstain": 0.0, "aggregate": "vote"}, "abstain"),
        ({"abstain": 0.05}, "aggregate=vote"),
        ({"abstain": 0.05, "aggregate": "vote", "accept_rule": "min_count"}, "min_count accepts without"),
        ({"min_count": 6}, "min_count"),
        ({"masking": "saliency"}, "masking"),
        ({"aggregate": "mode"}, "aggregate"),
        ({"accept_rule": "less"}, "accept_rule"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        TwoStep(**settings)


# ---------------------------------------------------------------------- aggregating


def test_votes_are_shares_and_ties_go_to_the_mean_probability():
    one, other = [2.0, 0.0, 0.0], [0.0, 9.0, 0.0]
    logits = torch.tensor([[one, one, other], [one, other, other], [one, other, [0.0, 0.0, 1.0]]])
    shares = share_votes(logits)
    assert torch.allclose(shares[:2], torch.tensor([[2 / 3, 1 / 3, 0], [1 / 3, 2 / 3, 0]]))
    assert int(shares[2].argmax()) == 1  # three classes have one vote each; the second is the surest
    assert torch.allclose(shares.sum(dim=-1), torch.ones(3))
    assert torch.allclose(average_logits(logits), logits.mean(dim=1).softmax(dim=-1))


# ---------------------------------------------------------------------- masking


def test_the_most_salient_words_come_first_and_nothing_but_words():
    saliency = torch.tensor([[9.0, 1.0, 3.0, 2.0, 8.0], [9.0, float("nan"), 0.0, 5.0, 5.0]])
    words = torch.tensor([[False, True, True, True, False], [False, True, True, False, False]])
    found = masking.most_salient(saliency, words, 4)
    assert found.positions[0, :3].tolist() == [2, 3, 1]
    assert found.valid.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert found.positions[1, :2].tolist() == [2, 1]
    flags = masking.flags(masking.first(found, 2), 5)
    assert flags.tolist() == [[False, False, True, True, False], [False, True, True, False, False]]


def test_masks_are_drawn_without_replacement_and_uniformly():
    keys = copy_keys(torch.tensor([11]), 4000)
    candidates = MaskCandidates(
        torch.tensor([[4, 2, 7, 1, 0]]).expand(4000, -1), torch.tensor([[True] * 4 + [False]] * 4000)
    )
    chosen = masking.flags(masking.draw_candidates(candidates, keys, 2), 8)
    assert (chosen.sum(dim=1) == 2).all()
    assert chosen.sum(dim=0)[[0, 3, 5, 6]].sum() == 0
    assert (chosen.sum(dim=0)[[4, 2, 7, 1]].sub(2000).abs() < 160).all()  # five deviations
    more = masking.flags(masking.draw_candidates(candidates, keys, 5), 8)
    assert (more.sum(dim=1) == 4).all()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("how", ["gradient", "random"])
def test_special_and_padding_tokens_are_never_masked_and_short_texts_are_masked_whole(classifier, name, how):
    model = classifier(name)
    inputs = model.encode(TEXTS)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    words = masking.mask_of_words(model, ids, mask)
    gradient = masking.embedding_gradient(model, ids, mask, inputs.get("token_type_ids"))
    keys = torch.arange(len(ids))
    for count in (1, 2, 50):
        if how == "gradient":
            chosen = masking.most_salient(gradient.saliency(), words, count)
        else:
            chosen = masking.draw_from_all(words, keys, count)
        flags = masking.flags(chosen, ids.shape[1])
        assert not (flags & ~words).any()
        assert torch.equal(flags.sum(dim=1), words.sum(dim=1).clamp(max=count))
        read = masking.mask_embeddings(model, ids, flags)
        assert torch.equal(read[~flags], model.embed(ids)[~flags])
        if name in ("lstm", "cnn"):
            assert not read[flags].any()
        else:
            token = "<extra_id_0>" if name == "t5" else "<mask>"
            expected = model.embed(torch.tensor(model.tokenizer.convert_tokens_to_ids(token)))
            assert torch.equal(read[flags], expected.expand_as(read[flags]))


def test_a_tokenizer_without_any_mask_is_refused(classifier):
    model = classifier()
    model.tokenizer.mask_token = None
    with pytest.raises(ModelError, match="masking=none"):
        victim_of(model)
    assert victim_of(model, masking="none").scores(TEXTS).shape == (5, 2)


def test_a_gradient_does_not_depend_on_the_number_of_rows(classifier):
    model = classifier(sigma=0.0)
    inputs = model.encode(TEXTS[:2] * 16)
    several = masking.embedding_gradient(model, inputs["input_ids"], inputs["attention_mask"]).values
    few = masking.embedding_gradient(model, inputs["input_ids"][:16], inputs["attention_mask"][:16]).values
    assert torch.allclose(several[:16], few, atol=1e-7)


# ---------------------------------------------------------------------- the victim


@pytest.mark.parametrize("name", ALL)
def test_without_noise_masks_and_copies_it_is_the_plain_classifier(classifier, name):
    model = classifier(name, sigma=0.0, masked=0, k0=1)
    victim = victim_of(model)
    assert not victim.stochastic
    assert np.array_equal(victim.scores(TEXTS), ClassifierVictim(model).scores(TEXTS))


@pytest.mark.parametrize("name", ALL)
def test_without_noise_all_votes_agree_and_no_second_step_is_taken(classifier, name):
    victim = victim_of(classifier(name, sigma=0.0))
    first = victim.scores(TEXTS)
    assert victim.asked > 0
    assert victim.second == 0
    assert not victim.stochastic
    assert np.array_equal(first, victim.scores(TEXTS, KEYS))
    assert set(victim_of(classifier(name, sigma=0.0), aggregate="vote").scores(TEXTS).ravel()) == {0.0, 1.0}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("masks", ["gradient", "random", "none"])
def test_answers_depend_on_a_rows_own_key_and_not_on_its_company(classifier, name, masks):
    victim = victim_of(classifier(name, sigma=2.0, masking=masks, accept_rule="greater", level=0.02))
    assert victim.stochastic
    assert isinstance(victim, TokenVictim)
    together = victim.scores(TEXTS, KEYS)
    assert victim.second > 0
    for row in (4, 1, 3):
        assert np.array_equal(victim.scores(TEXTS[row : row + 1], KEYS[row : row + 1])[0], together[row])
    other = victim.scores(TEXTS, KEYS + np.uint64(1))
    assert not np.array_equal(other, together)
    assert np.allclose(together.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("masks", ["gradient", "random"])
def test_small_batches_are_filled_no_further_than_the_bits_need(classifier, masks, monkeypatch):
    """With a library whose own answer is 16, a trial finds what this model needs; both give the same bits."""
    monkeypatch.setattr(two_step_victim, "fewest_rows", lambda model=None: 16 if model is None else fewest_rows(model))
    model = classifier(sigma=2.0, masking=masks, accept_rule="greater", level=0.02)
    victim, usual = victim_of(model), victim_of(model)
    usual.__dict__["_least"] = 16
    assert victim._least == fewest_rows(model) < 16
    for rows in (slice(0, 1), slice(1, 4)):
        assert np.array_equal(victim.scores(TEXTS[rows], KEYS[rows]), usual.scores(TEXTS[rows], KEYS[rows]))
    assert usual._least == 16
    assert victim._draws_hold
    monkeypatch.setattr(TwoStepVictim, "_holds", lambda *_: False)
    assert victim_of(model)._least == 16


def test_one_text_is_drawn_alone_where_its_draws_are_rows_enough(classifier):
    model = classifier(sigma=2.0, two_step=False)
    victim, careful = victim_of(model), victim_of(model)
    for each, holds in ((victim, True), (careful, False)):
        each.__dict__.update(_least=4, _draws_hold=holds)
    text = TokenBatch(np.random.default_rng(0).integers(5, 50, (1, 20)), None, None, KEYS[:1])
    seen = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[0]))
    answers = [each.launch([text])() for each in (victim, careful)]
    hook.remove()
    assert seen[-1] == 4
    assert 1 in seen
    assert np.allclose(answers[0], answers[1], atol=1e-5)
    assert np.array_equal(*answers) or not victim_of(model)._draws_hold


def test_second_steps_of_several_lengths_share_batches_that_waste_little(classifier):
    model = classifier(sigma=2.0, accept_rule="greater", level=0.02)
    victim, stream = victim_of(model), np.random.default_rng(0)
    parts = []
    for number, (rows, length) in enumerate([(2, 9), (3, 10), (3, 4), (2, 30)]):
        ids = torch.from_numpy(stream.integers(5, 50, (rows, length)))
        keys = torch.arange(rows) + 1000 * number
        types = torch.zeros_like(ids) if number == 1 else None
        parts.append((np.arange(rows) + 10 * number, Inputs(rows, ids, None, types, keys)))
    together = two_step_batches.merge_batches(parts, 0)
    assert [inputs.ids.shape for _, inputs in together] == [(3, 4), (5, 10), (2, 30)]
    assert sorted(place for places, _ in together for place in places) == [0, 1, 10, 11, 12, 20, 21, 22, 30, 31]
    assert together[1][1].mask.sum().item() == 2 * 9 + 3 * 10

    def answers(work):
        with torch.no_grad():
            return {
                place: row
                for places, inputs in work
                for place, row in zip(places, victim._second(model.eval(), inputs).numpy(), strict=True)
            }

    found, expected = answers(together), answers(parts)
    assert all(np.allclose(found[place], expected[place], atol=1e-5) for place in expected)
    assert two_step_batches.merge_batches([], 0) == []


def test_without_keys_every_query_draws_anew_and_fixed_never_does(classifier):
    model = classifier(sigma=2.0)
    victim = victim_of(model)
    assert not np.array_equal(victim.scores(TEXTS), victim.scores(TEXTS))
    fixed = victim_of(model, fixed=True)
    assert not fixed.stochastic
    assert np.array_equal(fixed.scores(TEXTS, KEYS), fixed.scores(TEXTS))
    plain = ClassifierVictim(model, fixed=True)
    assert not plain.stochastic
    assert np.array_equal(plain.scores(TEXTS, KEYS), plain.scores(TEXTS))


def test_the_first_step_is_the_mean_of_its_draws_on_the_masked_text(classifier):
    model = classifier(sigma=1.0, two_step=False, k0=3)
    text, key = TEXTS[:1], torch.tensor([int(KEYS[0])])
    inputs = model.encode(text)
    with model.use_keys(branch(key, "first saliency")):
        saliency = masking.embedding_gradient(model, inputs["input_ids"]).saliency()
    words = masking.mask_of_words(model, inputs["input_ids"], None)
    best = saliency[0].masked_fill(~words[0], 0).topk(2).indices
    ids = inputs["input_ids"].clone()
    ids[0, best] = model.tokenizer.mask_token_id
    with torch.no_grad(), model.use_keys(copy_keys(branch(key, "first step"), 3)):
        logits = model(ids.expand(3, -1)).logits
    expected = logits.mean(dim=0).softmax(dim=-1).numpy()
    assert np.allclose(victim_of(model).scores(text, KEYS[:1])[0], expected, atol=1e-5)


def test_the_second_step_answers_only_what_the_first_left_open(classifier):
    model = classifier(sigma=2.0, k0=5, aggregate="vote")
    texts, keys = TEXTS * 24, np.arange(120, dtype=np.uint64)
    first = victim_of(model, two_step=False).scores(texts, keys)
    both = victim_of(model)
    answers = both.scores(texts, keys)
    unanimous = first.max(axis=1) == 1
    assert 0 < unanimous.sum() < len(texts)
    assert np.array_equal(answers[unanimous], first[unanimous])
    assert both.second >= (~unanimous).sum()
    again = answers[~unanimous] * 8
    tied = ~np.isclose(again, again.round(), atol=1e-4).all(axis=1)
    assert (np.abs(again[tied] * 9 / 8 - 4.5) < 0.51).all()  # four votes each, and the probability as tie-break


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("masks", ["gradient", "none"])
def test_draws_of_the_second_step_share_what_precedes_the_noise(classifier, name, masks, monkeypatch):
    model = classifier(name, sigma=2.0, masking=masks, accept_rule="greater", level=0.02, k1=24)
    shared = victim_of(model).scores(TEXTS, KEYS)
    with monkeypatch.context() as patch:
        patch.setattr(TwoStepVictim, "_shared", lambda *_: None)
        apart = victim_of(model).scores(TEXTS, KEYS)
    assert np.array_equal(shared, apart)
    for most in (1, 150):  # cut within the draws of a text, and between texts
        monkeypatch.setitem(MOST_TOKENS, "cpu", most)
        assert np.array_equal(victim_of(model).scores(TEXTS, KEYS), apart)


def test_the_second_step_reads_every_set_of_masked_words_once(classifier):
    model = classifier(sigma=2.0, accept_rule="greater", level=0.02, k1=40)
    rows: list[int] = []
    blocks = model.backbone.blocks()
    for block in blocks:
        block.register_forward_pre_hook(lambda _module, given, **_: rows.append(len(given[0])))
    victim_of(model).scores(TEXTS[1:2] * 3, KEYS[:3])
    first, *rest = rows[-len(blocks) :]
    assert first == 3 * 10  # two of five words
    assert set(rest) == {3 * 40}


def test_a_set_of_masked_words_has_a_number():
    keys = copy_keys(torch.tensor([5]), 300)
    for width, count in ((5, 2), (3, 3), (2, 4), (6, 1), (masking.MOST_NUMBERED, 1), (masking.MOST_NUMBERED, 2)):
        valid = torch.ones(300, width, dtype=torch.bool)
        valid[:100, -1] = False
        candidates = MaskCandidates(torch.arange(width).expand(300, -1), valid)
        every = masking.subsets(width, count, keys.device)
        chosen = every[masking.draw_subset(candidates, keys, count)]
        assert torch.equal(
            masking.flags(masking.pick_candidates(candidates, chosen), width),
            masking.flags(masking.draw_candidates(candidates, keys, count), width),
        )


def test_more_candidates_than_a_number_has_bits(classifier, monkeypatch):
    wide = MaskCandidates(torch.arange(70).expand(3, -1), torch.ones(3, 70, dtype=torch.bool))
    with pytest.raises(ValueError, match="no number of 64 bits"):
        masking.draw_subset(wide, torch.arange(3), 1)
    monkeypatch.setitem(MOST_TOKENS, "cpu", 1 << 16)  # so that all draws of the text come at once
    model = classifier("lstm", sigma=2.0, candidates=70, masked=1, accept_rule="greater", level=1e-9, k1=400)
    text = {"text": " ".join(["a moving quiet film was very dull and too long"] * 8)}
    assert np.isfinite(victim_of(model).scores([text], KEYS[:1])).all()


def test_undecided_votes_are_abstentions_with_a_label_of_their_own(classifier):
    model = classifier(sigma=3.0, aggregate="vote", k1=10)
    texts, keys = TEXTS * 24, np.arange(120, dtype=np.uint64)
    victim = victim_of(model, abstain=0.05)
    assert victim.labels == ("no", "yes", ABSTAINS)
    scores, plain = victim.scores(texts, keys), victim_of(model).scores(texts, keys)
    abstained = scores.argmax(axis=1) == 2
    assert 0 < abstained.sum() < len(texts)
    assert np.array_equal(scores[~abstained, :2], plain[~abstained])
    assert np.array_equal(scores[abstained, :2].argmax(axis=1), plain[abstained].argmax(axis=1))
    leads = np.abs(plain[:, 0] - plain[:, 1])
    assert leads[abstained].max() < 1
    assert not (scores[plain.max(axis=1) == 1, 2]).any()


def test_behind_votes_stand_the_mean_logits_of_the_same_draws(classifier):
    model = classifier("cnn")
    votes, means = victim_of(model, aggregate="vote"), victim_of(model)
    assert means.graded is None
    assert votes.graded.graded is None
    assert np.array_equal(votes.graded.scores(TEXTS, KEYS), means.scores(TEXTS, KEYS))
    assert not np.array_equal(votes.scores(TEXTS, KEYS), means.scores(TEXTS, KEYS))
    declining = victim_of(model, aggregate="vote", abstain=0.01)
    graded = declining.graded.scores(TEXTS, KEYS)
    assert declining.graded.labels == declining.labels
    assert np.array_equal(graded[:, :-1], means.scores(TEXTS, KEYS))
    assert not graded[:, -1].any()


def test_a_gradient_as_scored_has_the_masks_and_the_noise_of_the_answer(classifier):
    """One pass an answer: moving the embeddings of a text by little changes its score by what the gradient says."""
    model = classifier("cnn", two_step=False, k0=1, masked=1)
    victim = victim_of(model)
    ids, keys, labels = np.array([[5, 6, 7, 8, 9, 10]]), np.array([41], np.uint64), np.array([1])
    batch = TokenBatch(ids, keys=keys)
    gradient = torch.from_numpy(victim.embedding_gradients(batch, labels, as_scored=True)[0])
    table = model.table.weight.data
    before = table.clone()

    def loss(size: float) -> float:
        table.copy_(before)
        table[ids[0]] += size * gradient / gradient.norm()
        found = victim.launch([batch])()
        table.copy_(before)
        return -float(np.log(found[0, 1]))

    masked = before[model.tokenizer.mask_token_id]
    assert not any(torch.equal(before[token], masked) for token in ids[0].tolist())
    other = victim.embedding_gradients(batch, labels)[0]
    assert not np.allclose(other, gradient.numpy(), rtol=1e-2, atol=0)
    # At the masked word the gradient passes straight through, though the score does not change with it.
    moved = (loss(1e-2) - loss(-1e-2)) / 2e-2
    assert 0 < moved <= float(gradient.norm()) * 1.02


def test_averaging_over_draws_averages_independent_answers(classifier):
    model = classifier(sigma=2.0)
    one = [victim_of(model).scores(TEXTS, keys=_mixed(draw)) for draw in range(3)]
    assert np.allclose(victim_of(model, draws=3).scores(TEXTS, KEYS), np.mean(one, axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "t5", "cnn"])
def test_draws_of_a_single_pass_share_what_precedes_the_noise(classifier, name, monkeypatch):
    model = classifier(name, sigma=1.0)
    one = [ClassifierVictim(model).scores(TEXTS, keys=_mixed(draw)) for draw in range(5)]
    for most in (1, 1 << 13):  # a draw at a time, or all at once
        monkeypatch.setitem(MOST_TOKENS, "cpu", most)
        assert np.allclose(ClassifierVictim(model, draws=5).scores(TEXTS, KEYS), np.mean(one, axis=0), atol=1e-5)


def _mixed(draw: int) -> np.ndarray:
    from isthmus.arithmetic.randomness import mix64

    return mix64(torch.from_numpy(KEYS.astype(np.int64)) + draw).numpy().view(np.uint64)


def test_rows_of_several_lengths_in_one_padded_batch(classifier):
    model = classifier(sigma=2.0)
    inputs = model.encode(TEXTS)
    batch = TokenBatch(
        inputs["input_ids"].numpy(), inputs["attention_mask"].numpy(), inputs["token_type_ids"].numpy(), KEYS
    )
    padded = victim_of(model).launch([batch])()
    assert np.allclose(padded, victim_of(model).scores(TEXTS, KEYS), atol=1e-5)


def test_a_saliency_that_is_no_number_gives_a_row_that_is_none(classifier):
    model = classifier(sigma=0.0)
    with torch.no_grad():
        model.table.weight[model.tokenizer.convert_tokens_to_ids("nobody")] = torch.nan
    scores = victim_of(model).scores(TEXTS)
    assert np.isnan(scores[3]).all()
    assert np.isfinite(scores[[0, 1, 2, 4]]).all()


def test_a_saved_model_answers_in_two_steps_and_options_change_one_use(classifier, tmp_path):
    model = classifier(sigma=1.0, aggregate="vote", masked=1)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").deployment == model.deployment
    victim = load_victim(tmp_path / "model", device="cpu")
    assert isinstance(victim, TwoStepVictim)
    assert np.array_equal(victim.scores(TEXTS, KEYS), victim_of(model).scores(TEXTS, KEYS))
    other = load_victim(tmp_path / "model", device="cpu", aggregate="average", k0=2)
    assert isinstance(other, TwoStepVictim)
    assert other.settings == dataclasses.replace(victim.settings, aggregate="average", k0=2)
    with pytest.raises(UsageError, match="no setting 'k2'"):
        load_victim(tmp_path / "model", device="cpu", k2=3)


@pytest.mark.parametrize("masks", ["gradient", "random"])
@pytest.mark.parametrize("name", ALL)
def test_every_encoder_is_trained_on_its_masked_words(classifier, name, masks):
    model = classifier(name).train()
    inputs = model.encode(TEXTS)
    batch = Batch(inputs, torch.tensor([0, 1, 0, 1, 0]), seed=3)
    (terms,) = list(RSMI(masked=3, masking=masks).losses(model, batch))
    terms.total().backward()
    gradient = model.table.weight.grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum() > 0
    if name not in ("lstm", "cnn"):
        assert gradient[masking.mask_id(model)].abs().sum() > 0


# ---------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", ALL)
def test_gradients_pass_straight_through_the_masks(classifier, name):
    model = classifier(name, sigma=0.0, masked=3)
    inputs = model.encode(TEXTS[1:2])
    batch = TokenBatch(inputs["input_ids"].numpy(), None, None, KEYS[:1])
    found = victim_of(model).embedding_gradients(batch, np.array([1]), draws=4)[0]
    saliency = masking.embedding_gradient(model, inputs["input_ids"]).saliency()
    words = masking.mask_of_words(model, inputs["input_ids"], None)
    flags = masking.flags(masking.most_salient(saliency, words, 3), words.shape[1])
    read = masking.mask_embeddings(model, inputs["input_ids"], flags).detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(model(inputs["input_ids"], None, None, read).logits, torch.tensor([1]))
    assert np.allclose(found, torch.autograd.grad(loss, read)[0][0].numpy(), atol=1e-6)
    assert np.abs(found[flags[0].numpy()]).max() > 0


def test_gradients_are_averaged_over_draws(classifier):
    victim = victim_of(classifier(sigma=1.0, masking="random"))
    inputs = victim.model.encode(TEXTS[1:2])

    def of(keys: np.ndarray, draws: int) -> np.ndarray:
        batch = TokenBatch(inputs["input_ids"].numpy(), None, None, keys)
        return victim.embedding_gradients(batch, np.array([1]), draws=draws)

    single = [of(KEYS[:1] + np.uint64(draw), 1) for draw in range(3)]
    assert np.allclose(of(KEYS[:1], 3), np.mean(single, axis=0), atol=1e-6)
    assert not np.allclose(single[0], single[1])


def test_gradients_see_the_masks_of_the_step_that_answers(classifier):
    model = classifier(sigma=1.0, masked=1, candidates=4)
    as_trained = victim_of(model)
    never, always = victim_of(model, accept_rule="greater", level=0.02), victim_of(model, two_step=False)
    ids = model.encode(TEXTS[1:2])["input_ids"].numpy()

    def gradient(key: int, victim: TwoStepVictim) -> tuple[np.ndarray, bool]:
        before = victim.second
        batch = TokenBatch(ids, None, None, KEYS[:1] + np.uint64(key))
        drawn = mix64(torch.from_numpy(batch.keys.view(np.int64))).numpy().view(np.uint64)
        victim.launch([TokenBatch(ids, None, None, drawn)])()
        return victim.embedding_gradients(batch, np.array([1])), victim.second > before

    seen = set()
    for key in range(0, 4000, 100):
        found, second = gradient(key, as_trained)
        first_masks, second_masks = gradient(key, always)[0], gradient(key, never)[0]
        assert np.allclose(found, second_masks if second else first_masks, atol=1e-6)
        seen.add((second, bool(np.allclose(first_masks, second_masks, atol=1e-6))))
    assert {(False, False), (True, False)} <= seen, "both steps answered, with masks that differ"


def test_gradients_of_the_second_step_take_every_candidate_in_turn(classifier):
    model = classifier(sigma=0.0, masked=1, candidates=3, accept_rule="greater", level=0.02)
    ids = model.encode(TEXTS[1:2])["input_ids"]
    words = masking.mask_of_words(model, ids, None)
    best = masking.most_salient(masking.embedding_gradient(model, ids).saliency(), words, 3)
    wanted = []
    for place in best.positions[0]:
        one = torch.zeros_like(words).index_fill_(1, place.view(1), value=True)
        read = masking.mask_embeddings(model, ids, one)
        wanted.append(masking.embedding_gradient(model, ids, target=torch.tensor([1]), replaced=read).values.numpy())
    taken = set()
    for key in range(24):
        batch = TokenBatch(ids.numpy(), None, None, KEYS[:1] + np.uint64(key))
        found = victim_of(model).embedding_gradients(batch, np.array([1]))
        taken |= {number for number, each in enumerate(wanted) if np.allclose(found, each, atol=1e-6)}
    assert taken == {0, 1, 2}
