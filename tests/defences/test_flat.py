"""FLAT: the two terms against their formulas, and what it shares with adversarial training to the last bit."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, gradients
from encoder_cases import ARCHITECTURES, classifier

from isthmus import defences
from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.defences import Batch
from isthmus.defences.parts.attacked_examples import MADE_FROM, REPLACED
from isthmus.defences.parts.word_terms import importance_difference, mean_entropy, read_replacements
from isthmus.models import importance_of, word_importance
from isthmus.training import TrainingSettings
from isthmus.training import train as train_anywhere

train = functools.partial(train_anywhere, device="cpu")
QUICK = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=1)
ROUND: dict[str, Any] = {"attack": "deepwordbug", "points": 8, "keep_failed": True}
PAIRS = [("film", "plot"), ("dull", "warm")]


def prepared(architecture: str = "bert", **parameters: Any) -> tuple[defences.FLAT, Any]:
    defence, model = defences.FLAT(**parameters), classifier(architecture)
    defence.prepare(model, toys.dataset("train", 6, 0))
    with torch.no_grad():
        mask: Any = model.slots.word_mask
        mask.first.weight.mul_(40)  # so that words differ
    return defence, model


def with_pairs(batch: Batch, *pairs: list[tuple[str, str]]) -> Batch:
    examples = list(toys.dataset("train", len(batch), 0))
    for row, own in enumerate(pairs):
        fields = {**examples[row].fields, **({REPLACED: json.dumps(own), MADE_FROM: "one"} if own else {})}
        examples[row] = dataclasses.replace(examples[row], fields=fields)
    return dataclasses.replace(batch, examples=tuple(examples))


def values(defence: defences.FLAT, model: Any, batch: Batch) -> dict[str, float]:
    return {
        name: float(value.detach()) for terms in defence.losses(model, batch) for name, value in terms.values.items()
    }


# ---------------------------------------------------------------------- the two terms


def test_entropy_is_the_mean_over_words_of_binary_entropies() -> None:
    defence, model = prepared(beta=0.3)
    batch = batch_of(model)
    phi = torch.from_numpy(word_importance(model.eval()).values)
    model.train()
    expected = []
    for row in batch.inputs["input_ids"]:
        own = phi[row[~model.special_mask(row)]].double()  # neither padding nor separators
        expected.append(float((-own * own.log() - (1 - own) * (1 - own).log()).mean()))
    assert values(defence, model, batch)["entropy"] == pytest.approx(-0.3 * sum(expected) / len(expected), rel=1e-5)
    longer = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in batch.inputs.items()}
    mask = model.slots.word_mask
    padded = mean_entropy(model, mask, Batch(longer, batch.labels))
    assert torch.allclose(padded, mean_entropy(model, mask, batch), atol=1e-6)


def test_entropy_is_largest_at_one_half() -> None:
    _, model = prepared()
    mask, batch = model.slots.word_mask, batch_of(model)
    with torch.no_grad():
        for layer in (mask.first, mask.second):
            layer.weight.zero_()
            layer.bias.zero_()
    assert float(mean_entropy(model, mask, batch).detach()) == pytest.approx(math.log(2))
    (slope,) = torch.autograd.grad(mean_entropy(model, mask, batch), mask.second.bias)
    assert torch.allclose(slope, torch.zeros(2), atol=1e-7)
    nothing = Batch({"input_ids": torch.tensor([[2, 3]])}, torch.tensor([0]))
    assert float(mean_entropy(model, mask, nothing).detach()) == 0.0


def test_importance_is_the_sum_over_pairs_and_the_mean_over_texts_that_have_some() -> None:
    defence, model = prepared(gamma=2.0, beta=0.0)
    batch = with_pairs(batch_of(model, 6), PAIRS, [], PAIRS[:1], [("dulls", "dull")])
    before, after = (importance_of(model.eval(), [pair[side] for pair in PAIRS]) for side in (0, 1))
    both = abs(before - after)
    pieces = importance_of(model, ["dulls", "dull"])  # the larger of dull and ##s, against dull
    model.train()
    expected = (both.sum() + both[0] + abs(pieces[0] - pieces[1])) / 3
    assert values(defence, model, batch)["importance"] == pytest.approx(2 * float(expected), rel=1e-5)
    mask = model.slots.word_mask
    over_all = importance_difference(model, mask, batch.examples, over_all=True)
    assert float(over_all.detach()) == pytest.approx(float(expected) * 3 / 6, rel=1e-5)  # type: ignore[union-attr]
    assert "importance" not in values(defence, model, with_pairs(batch_of(model), [])), "nobody has a pair"
    assert "importance" not in values(defence, model, with_pairs(batch_of(model), [("", "film")]))


@pytest.mark.parametrize("mode", ["default", "released"])
@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "xlnet"])
def test_both_terms_reach_the_masks_of_every_backbone(architecture: str, mode: Any) -> None:
    defence, model = prepared(architecture, mode=mode, gamma=1.0)
    mask = model.slots.word_mask
    weight = mask.first.weight
    batch = with_pairs(batch_of(model), PAIRS, PAIRS)
    *task, terms = [terms.values for terms in defence.losses(model, batch)]
    assert set(terms) == {"entropy", "importance"}
    for value in (task[0]["cross_entropy"], *terms.values()):
        (slope,) = torch.autograd.grad(value, weight, retain_graph=True)
        assert torch.isfinite(slope).all()
        assert slope.any()
    same = importance_difference(model, mask, with_pairs(batch, [("film", "film")]).examples)
    assert same is not None
    assert float(same.detach()) == 0.0
    assert model.training, "dropout is off for a moment only"
    assert all(module.training for module in model.modules())
    found = gradients(defence, model, batch)
    assert all(torch.isfinite(value).all() for value in found.values())
    assert not any(
        value.data_ptr() == model.table.weight.data_ptr() for value in model.parameters() if value.requires_grad
    )


def test_importance_has_no_dropout() -> None:
    _, model = prepared(mode="released", gamma=1.0)
    batch = with_pairs(batch_of(model), PAIRS)
    mask = model.slots.word_mask
    state = torch.get_rng_state()
    first = importance_difference(model, mask, batch.examples)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, importance_difference(model, mask, batch.examples))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- the run


def fit(defence: Any, **rest: Any) -> Any:
    settings = rest.pop("settings", QUICK)
    return train(toys.splits(32, 8), toys.classifier(), defence, settings=settings, **rest)


def test_without_masks_it_is_adversarial_training_to_the_last_bit() -> None:
    plain = fit(defences.Adversarial(**ROUND))
    assert toys.same_bits(toys.weights(fit(defences.FLAT(masks=False, **ROUND))), toys.weights(plain))


def test_masks_that_keep_every_word_are_adversarial_training_with_frozen_embeddings() -> None:
    before = toys.classifier().table.weight.detach().clone()
    baseline = fit(defences.Adversarial(freeze_embeddings=True, **ROUND))
    flat = fit(defences.FLAT(initial=1 - 1e-15, beta=0, gamma=0, mask_learning_rate=1e-9, **ROUND))
    own = {name: value for name, value in toys.weights(flat).items() if not name.startswith("slots.")}
    assert toys.same_bits(own, toys.weights(baseline))
    assert (flat.slots.word_mask.factors() == 1).all()
    for model in (baseline, flat):
        assert torch.equal(model.table.weight, before)
        # In the next training of the same model they may move again.
        assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_log_has_both_terms_their_shares_and_the_replaced_words(tmp_path: Path) -> None:
    settings = dataclasses.replace(QUICK, batch_size=64)
    fit(defences.FLAT(start=0, every=2, **ROUND), folder=tmp_path, settings=settings)
    rows: list[Any] = toys.rows(tmp_path)
    (shares,) = [row["gradient_shares"] for row in rows if "gradient_shares" in row]
    assert set(shares) == {"entropy", "importance"}
    assert min(shares.values()) > 1e-3
    assert {"cross_entropy", "entropy", "importance"} <= {name for row in rows for name in row}
    made = [json.loads(line) for line in (tmp_path / "examples/0.jsonl").read_text().splitlines()]
    texts = {row["id"]: row["fields"]["text"] for row in made}
    attacked = [row["fields"] for row in made if MADE_FROM in row["fields"]]
    assert len(attacked) == 8
    for fields in attacked:
        before, after = texts[fields[MADE_FROM]].split(), fields["text"].split()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert read_replacements(Example("x", fields, 0)) == changed
    assert read_replacements(Example("a column of the data", {"text": "a", REPLACED: "none of ours"}, 0)) == []


def test_beta_falls_every_epoch() -> None:
    defence = defences.FLAT(beta=1.0, anneal=0.099)
    assert [round(defence.beta_at(epoch), 3) for epoch in (0, 1, 9, 10, 30)] == [1.0, 0.901, 0.109, 0.01, 0.01]
    assert defences.FLAT(beta=0.0, anneal=0.1).beta_at(3) == 0.0
    assert defences.FLAT().beta_at(30) == 0.1


def test_a_round_without_success_goes_on(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    seen: list[int] = []

    @dataclasses.dataclass(frozen=True)
    class Looks(defences.FLAT):
        def beta_at(self, epoch: int) -> float:
            seen.append(epoch)
            return super().beta_at(epoch)

    fit(Looks(attack="deepwordbug", points=8, budget=1), folder=tmp_path)
    assert "succeeded on none of 8 training texts" in caplog.text
    assert not any("importance" in row for row in toys.rows(tmp_path))
    assert seen == [0] * 4 + [1] * 4, "the losses know the epoch"


def test_unknown_substitutes_are_counted_for_words() -> None:
    defence, model, data = defences.FLAT(start=0, **ROUND), classifier("cnn").eval(), toys.dataset("train", 8, 0)
    notes: Any = defence.examples(model, data, 0, 0).notes["attack"]  # type: ignore[union-attr]
    assert notes["unknown_substitutes"] == notes["substitutes"] > 0  # misspellings are in no vocabulary
    assert notes["unknown_share"] == 1.0
    notes = defence.examples(classifier("bert").eval(), data, 0, 0).notes["attack"]  # type: ignore[union-attr]
    assert "unknown_share" not in notes


def test_a_climb_goes_on_under_the_masks() -> None:
    defence, model = prepared(base="freelb", base_parameters="steps=2")
    found = gradients(defence, model, with_pairs(batch_of(model), PAIRS))
    assert any(name.startswith("slots.word_mask") and value.any() for name, value in found.items())
    assert all(torch.isfinite(value).all() for value in found.values())


def test_a_model_that_has_masks_goes_on_with_them() -> None:
    defence, model = prepared()
    mask = model.slots.word_mask
    defence.prepare(model, toys.dataset("train", 6, 0))
    assert model.slots.word_mask is mask
    defences.FLAT(width=7).prepare(model, toys.dataset("train", 6, 0))
    assert model.slots.word_mask.hidden == 7


@pytest.mark.parametrize(
    "parameters",
    [{"beta": -1.0}, {"gamma": math.nan}, {"mode": "ours"}, {"temperature": 0.0}, {"initial": 1.0}, {"width": 0}],
    ids=lambda value: next(iter(value)),
)
def test_wrong_settings_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(parameters))):
        defences.FLAT(**parameters)
    with pytest.raises(UsageError, match="masks words, and fgsm moves pixels"):
        defences.FLAT(attack="fgsm")
    assert (defences.FLAT(mode="paper").gamma, defences.FLAT(mode="paper", gamma=0.5).gamma) == (0.001, 0.5)
