"""A stochastic model is seen by its mean, by one draw and by the average of several; a deterministic one as it is."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import training_toys as toys
from numpy.typing import NDArray

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.hardware import bfloat16_works
from isthmus.core.types import Floats, Texts
from isthmus.inference.normalised import Normalised, NormalisedVictim
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.models.victims import ClassifierVictim
from isthmus.verbs.evaluate.ways import Ways, name_way

TEXTS: list[Texts] = [{"text": f"the film was {word}"} for word in (*toys.GOOD, *toys.BAD)]
IDS = [f"test:{number}" for number in range(len(TEXTS))]


def bottlenecked(inference: str = "mean") -> ClassifierVictim:
    # Sixteen codes: where a row does not fill the processor's registers, its last bit may depend on the rows beside it.
    model = toys.classifier(width=32)
    torch.manual_seed(0)
    model.fill(bottleneck=GaussianBottleneck(model.pooled_size, shift=1.0, inference=inference))  # type: ignore[arg-type]
    return ClassifierVictim(model.eval())


class Coin:
    """A stochastic victim of another kind: its scores are a function of the keys alone."""

    labels = ("a", "b")
    stochastic = True

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        assert keys is not None
        p = (keys % np.uint64(1000)).astype(np.float32) / 1000
        return np.stack([p, 1 - p], axis=1).astype(np.float32)


def test_a_deterministic_model_has_one_way() -> None:
    victim = ClassifierVictim(toys.classifier())
    ways = Ways(victim, draws=5, seed=0)
    assert ways.names == ("model",)
    assert np.array_equal(ways.see(TEXTS, IDS).scores["model"], victim.scores(TEXTS))


def test_a_bottleneck_has_three() -> None:
    victim = bottlenecked()
    ways = Ways(victim, draws=6, seed=3)
    seen = ways.see(TEXTS, IDS).scores
    assert tuple(seen) == ways.names == ("mean", "sample", "average")
    assert np.array_equal(seen["mean"], victim.scores(TEXTS))
    assert not np.allclose(seen["mean"], seen["sample"])
    assert not np.allclose(seen["sample"], seen["average"])
    assert ways.headline == "mean"
    # The model is left as it was.
    assert not victim.stochastic
    assert np.array_equal(seen["mean"], victim.scores(TEXTS))


def test_one_draw_is_the_average_of_one() -> None:
    seen = Ways(bottlenecked(), draws=1, seed=0).see(TEXTS, IDS).scores
    assert np.array_equal(seen["sample"], seen["average"])


def test_a_model_saved_to_draw_is_headed_by_a_draw() -> None:
    victim = bottlenecked("sample")
    ways = Ways(victim, draws=2, seed=0)
    assert ways.headline == "sample"
    ways.see(TEXTS, IDS)
    assert victim.stochastic


def test_draws_depend_on_the_example_and_the_seed_and_on_nothing_else() -> None:
    whole = Ways(bottlenecked(), draws=3, seed=0).see(TEXTS, IDS).scores
    ways = Ways(bottlenecked(), draws=3, seed=0)
    ways.see(TEXTS[:2], ["other:0", "other:1"])  # what came before does not matter
    part = ways.see(TEXTS[5:], IDS[5:]).scores
    for way in whole:
        assert np.array_equal(part[way], whole[way][5:])
    other = Ways(bottlenecked(), draws=3, seed=1).see(TEXTS, IDS).scores
    assert np.array_equal(other["mean"], whole["mean"])
    assert not np.allclose(other["sample"], whole["sample"])


def test_the_average_of_many_draws_settles() -> None:
    first, second = (Ways(bottlenecked(), draws=60, seed=seed).see(TEXTS, IDS).scores for seed in (0, 1))
    spread = np.abs(first["sample"] - second["sample"]).mean()
    assert np.abs(first["average"] - second["average"]).mean() < spread / 3


def test_the_copy_in_bfloat16_is_seen_in_the_same_three_ways() -> None:
    exact = bottlenecked()
    half = ClassifierVictim(exact.model)
    # In float32, since not every machine computes in bfloat16; which of the two answers is what matters here.
    half.precision, half._half = "bf16", copy.deepcopy(exact.model)
    seen = Ways(half, draws=2, seed=0).see(TEXTS, IDS).scores
    wanted = Ways(exact, draws=2, seed=0).see(TEXTS, IDS).scores
    for way in wanted:
        assert np.array_equal(seen[way], wanted[way])
    assert not half._half.stochastic


@pytest.mark.skipif(not bfloat16_works("cpu"), reason="this processor has no working bfloat16")
def test_a_bottleneck_answers_in_bfloat16() -> None:
    exact = bottlenecked()
    rough = Ways(ClassifierVictim(exact.model, "bf16"), draws=2, seed=0).see(TEXTS, IDS).scores
    wanted = Ways(exact, draws=2, seed=0).see(TEXTS, IDS).scores
    assert all(np.allclose(rough[way], wanted[way], atol=3e-2) for way in wanted)


def test_a_bottleneck_behind_a_normaliser_has_three() -> None:
    plain = bottlenecked()
    victim = NormalisedVictim(plain, Normalised())
    assert Ways(victim, draws=2, seed=0).names == ("mean", "sample", "average")
    seen, wanted = (Ways(each, draws=2, seed=0).see(TEXTS, IDS).scores for each in (victim, plain))
    assert all(np.allclose(seen[way], wanted[way], atol=1e-6) for way in wanted)


def test_another_stochastic_victim_has_two() -> None:
    ways = Ways(Coin(), draws=400, seed=0)
    assert (ways.names, ways.headline) == (("sample", "average"), "sample")
    seen = ways.see(TEXTS, IDS).scores
    assert np.allclose(seen["average"], 0.5, atol=0.06)
    assert np.abs(seen["sample"] - 0.5).max() > 0.2


def test_a_text_that_fails_in_one_way_has_its_reason() -> None:
    class Picky(Coin):
        def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
            if any("stale" in text["text"] for text in texts):
                raise VictimError("it cannot read this")
            return super().scores(texts, keys)

    seen = Ways(Picky(), draws=3, seed=0).see(TEXTS, IDS, first=True)
    assert seen.reasons == {7: "it cannot read this"}
    assert np.isnan(seen.scores["average"][7]).all()
    assert not np.isnan(seen.scores["average"][:7]).any()


def test_no_draws_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Ways(Coin(), draws=0, seed=0)


def test_names_for_people() -> None:
    assert [name_way(way, 12) for way in ("model", "mean", "sample", "average")] == [
        "", "mean code", "one draw", "average of 12",
    ]  # fmt: skip
