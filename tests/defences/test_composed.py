"""Compositions: what combines trains, switched off it is plain training, and what does not combine says why."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, close, gradients

from isthmus import defences
from isthmus.certificates.synonym import base_of
from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.types import Output
from isthmus.data import load_data
from isthmus.defences import (
    Adversarial,
    Batch,
    Composed,
    ConfidencePenalty,
    Defence,
    FreeLB,
    LabelSmoothing,
    Normalise,
    RandomSubstitution,
    Terms,
    build_defence,
    compose,
)
from isthmus.defences.base import Plan, cross_entropy
from isthmus.defences.parts.composition import why_not
from isthmus.models import load_model
from isthmus.models.victims import wrap
from isthmus.training import train as train_anywhere

# By its path: another folder has a file of that name as well.
_place = spec_from_file_location("defences_contract", Path(__file__).with_name("test_contract.py"))
assert _place is not None
assert _place.loader is not None
contract: Any = module_from_spec(_place)
_place.loader.exec_module(contract)
OFF, ON, QUICK, SYNONYMS = contract.OFF, contract.ON, contract.QUICK, contract.SYNONYMS

train = functools.partial(train_anywhere, device="cpu")
NAMES = catalog.names("defences")
PAIRS = list(itertools.permutations(NAMES, 2))
PAGE = Path(__file__).parents[2] / "docs" / "composition.md"


def built(name: str, table: dict[str, dict[str, Any]]) -> Defence:
    found = catalog.build("defences", name, table.get(name, {}))
    assert isinstance(found, Defence)
    return found


def combines(first: str, second: str) -> bool:
    return why_not(built(first, ON), built(second, ON)) is None


def walked(defence: Defence, size: int = 6) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Weights after `prepare`, and the gradients of one batch."""
    model = toys.classifier()
    torch.manual_seed(7)
    defence.prepare(model, toys.dataset("train", 16, 0))
    model.train()
    return toys.weights(model), gradients(defence, model, batch_of(model, size))


@functools.cache
def plain() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return walked(built("standard", {}))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_pair_is_plain_training_when_switched_off_or_is_refused_with_a_reason(first, second):
    parts = built(first, OFF), built(second, OFF)
    if not combines(first, second):
        with pytest.raises(UsageError, match=re.escape(f"{first}+{second}: ")):
            compose((built(first, ON), built(second, ON)))
        return
    both = compose(parts)
    weights, found = walked(both)
    assert toys.same_bits(weights, plain()[0])
    assert toys.same_bits(found, plain()[1])
    # With no examples of its own and the plain plan nothing else of a training can differ.
    assert both.makers == ()
    assert both.plan(3) == Plan()


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if combines(*pair)])
def test_every_pair_that_combines_has_gradients_when_switched_on(first, second):
    both = compose((built(first, ON), built(second, ON)))
    _, found = walked(both)
    assert all(value.isfinite().all() for value in found.values())
    assert any(bool(value.any()) for value in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_standard_is_the_one_of_composition(name):
    one = built(name, ON)
    if name == "standard":
        assert compose((one,)) is one
        return
    alone = walked(one)
    for parts in ((built("standard", {}), one), (one, built("standard", {}))):
        weights, found = walked(compose(parts))
        assert toys.same_bits(weights, alone[0])
        assert toys.same_bits(found, alone[1])


def test_the_table_of_the_page_says_what_combines():
    rows = [line.strip("| \n").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    header = next(row for row in rows if row[0].strip() == "first, then")
    columns = [re.findall(r"`(\w+)`", cell) for cell in header[1:]]
    table = [row for row in rows if len(row) == len(header) and row is not header]
    said = {
        (first, second): cell.strip() == "yes"
        for row in table
        for names, cell in zip(columns, row[1:], strict=True)
        for first in re.findall(r"`(\w+)`", row[0])
        for second in names
        if first != second
    }
    assert said == {pair: combines(*pair) for pair in PAIRS}


@pytest.mark.parametrize(
    ("composed", "by_parameter"),
    [
        ("vib+freelb", ("vib", {"adversary": "freelb"})),
        ("vub+freelb", ("vub", {"adversary": "freelb"})),
        ("vib+pgd", ("vib", {"adversary": "pgd"})),
    ],
)
def test_a_climb_around_a_bottleneck_is_its_adversary(composed, by_parameter):
    # Both start at the clean text: the start alone is drawn under another name.
    climb = {"steps": 3, "init_magnitude": 0.0}
    name, own = by_parameter
    _, other = composed.split("+")
    whole = {f"{other}.{key}": value for key, value in climb.items()} | ({"clean": 0.0} if other == "pgd" else {})
    pair = walked(build_defence(composed, whole))
    one = walked(catalog.build("defences", name, {**own, **climb}))
    assert toys.same_bits(pair[0], one[0])
    assert toys.same_bits(pair[1], one[1])


def test_every_pass_of_a_climb_has_the_terms_of_the_others():
    model = toys.classifier(dropout=0.0)
    batch = batch_of(model)
    still = {"steps": 3, "step_size": 0.0, "init_magnitude": 0.0}
    for other in (ConfidencePenalty(gamma=0.5), LabelSmoothing(epsilon=0.3)):
        both = compose((other, catalog.build("defences", "freelb", still)))
        names = [set(terms.values) for terms in both.losses(model, batch) if terms.total().backward() is None]
        (alone,) = (set(terms.values) for terms in other.losses(model, batch))
        assert names == [alone] * 3
        # A climb that stands still is three times a third of the same pass.
        assert close(gradients(both, model, batch), gradients(other, model, batch), 1e-5)


def test_objectives_are_composed_in_order():
    @dataclasses.dataclass(frozen=True)
    class Doubled(Defence):
        def objective(self, model: Any, output: Output, batch: Batch, terms: Any) -> Any:
            return {name: 2 * value for name, value in terms.items()}

    model, batch = toys.classifier(dropout=0.0), batch_of(toys.classifier())
    values = {}
    for parts in ((Doubled(), ConfidencePenalty(gamma=0.5)), (ConfidencePenalty(gamma=0.5), Doubled())):
        (terms,) = compose(parts).losses(model, batch)
        values[type(parts[0])] = terms.values["confidence_penalty"]
    assert torch.equal(values[ConfidencePenalty], 2 * values[Doubled])


def test_a_defence_that_computes_its_loss_by_itself_leaves_out_nobody_in_silence():
    @dataclasses.dataclass(frozen=True)
    class Alone(Defence):
        def losses(self, model: Any, batch: Batch) -> Iterator[Terms]:
            yield Terms({"mine": cross_entropy(model(**batch.inputs), batch)})

    with pytest.raises(UsageError, match="computes its loss by itself and would leave out that of label_smoothing"):
        compose((LabelSmoothing(), Alone()))
    assert compose((Normalise(), Alone())).name == "normalise+Alone"


# ------------------------------------------------------------------ names and parameters


def test_parameters_are_addressed_or_taken_by_the_one_part_that_has_them():
    found = build_defence("label_smoothing+freelb", {"freelb.steps": "2", "epsilon": "0.2"})
    assert found == compose((LabelSmoothing(epsilon=0.2), FreeLB(steps=2)))
    assert found.name == "label_smoothing+freelb"
    with pytest.raises(UsageError, match=r"say label_smoothing.x or freelb.x|several parts have a parameter"):
        build_defence("vib+vub", {"beta": "1"})
    with pytest.raises(UsageError, match=r"say adversarial\.points or|several parts have a parameter"):
        build_defence("adversarial+flat", {"points": "3"})
    with pytest.raises(UsageError, match=r"say vib\.steps or freelb\.steps"):
        build_defence("vib+freelb", {"steps": "3"})
    with pytest.raises(UnknownName, match="freelbb"):
        build_defence("label_smoothing+freelb", {"freelbb.steps": "3"})
    with pytest.raises(UnknownName, match="step"):
        build_defence("label_smoothing+freelb", {"stepps": "3"})
    with pytest.raises(UnknownName, match="freelbx"):
        build_defence("label_smoothing+freelbx")
    with pytest.raises(UsageError, match="names joined by"):
        build_defence("label_smoothing+")


@pytest.mark.parametrize("spec", ["standard", "normalise+adversarial+freelb", "vib+rdrop", "normalise+safer"])
def test_name_and_parameters_are_enough_to_build_it_again(spec):
    found = build_defence(spec)
    again = build_defence(found.name, found.parameters)
    assert again == found
    assert repr(again) == repr(found)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("freelb+freelb", "is named twice"),
        ("freelb+pgd", "makes its own passes"),
        ("infobert+freelb", "adversary=freelb"),
        ("adversarial+advaug", "attacks the training examples"),
        ("safer+random_substitution", "draws synonyms"),
        ("safer+rsmi", "decides how the trained model answers"),
        ("safer+normalise", r"write normalise\+safer"),
        ("vib+vub", "slot bottleneck"),
        ("smart+vib", r"write vib\+smart"),
        ("gaussian_noise+freelb", "their own embeddings"),
    ],
)
def test_what_cannot_be_combined_says_why(spec, reason):
    with pytest.raises(UsageError, match=reason):
        build_defence(spec)


def test_a_base_inside_a_composition_is_written_out():
    with pytest.raises(UsageError, match=r"write adversarial\+freelb instead"):
        build_defence("normalise+adversarial", {"base": "freelb"})


def test_images_and_words_do_not_meet():
    with pytest.raises(UsageError, match="trains on images here, and freelb cannot"):
        build_defence("adversarial+freelb", {"attack": "fgsm"})
    assert build_defence("adversarial+gaussian_noise", {"attack": "fgsm"}).trains_images
    with pytest.raises(UsageError, match=r"write adversarial\+gaussian_noise"):
        build_defence("gaussian_noise+adversarial", {"attack": "fgsm"})


def test_images_that_are_attacked_meet_the_other_defences():
    data, settings = load_data("digits"), dataclasses.replace(QUICK, batch_size=100, learning_rate=1e-3)
    pair = train(data, "mlp", build_defence("adversarial+vib", {"attack": "fgsm"}), settings=settings)
    base = train(data, "mlp", Adversarial(attack="fgsm", base="vib"), settings=settings)
    assert toys.same_bits(toys.weights(pair), toys.weights(base))


def test_only_defences_are_composed():
    with pytest.raises(UsageError, match="is none"):
        compose((FreeLB(), "normalise"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one"):
        compose(())
    with pytest.raises(UsageError, match="cannot contain another"):
        Composed((compose((Normalise(), FreeLB())), LabelSmoothing()))


# ------------------------------------------------------------------ whole trainings

ATTACKED = {"attack": "deepwordbug", "points": 8, "keep_failed": True}
TWO = dataclasses.replace(QUICK, epochs=2)


def test_a_tuple_trains_as_the_base_does():
    data = toys.splits(16, 8)
    pair = train(data, toys.classifier(), (Adversarial(**ATTACKED), FreeLB(steps=2)), settings=TWO)
    based = Adversarial(**ATTACKED, base="freelb", base_parameters="steps=2")
    assert toys.same_bits(toys.weights(pair), toys.weights(train(data, toys.classifier(), based, settings=TWO)))


def test_three_switched_off_are_plain_training():
    data = toys.splits(16, 8)
    parts = tuple(built(name, OFF) for name in ("normalise", "adversarial", "freelb"))
    found = train(data, toys.classifier(), parts, settings=TWO)
    assert toys.same_bits(toys.weights(found), toys.weights(train(data, toys.classifier(), settings=TWO)))


def test_synonyms_are_drawn_of_what_an_attack_made_and_of_the_originals(tmp_path):
    data = toys.splits(16, 8)
    settings = dataclasses.replace(QUICK, epochs=3)
    parts = (Adversarial(**ATTACKED, every=2), RandomSubstitution(table=SYNONYMS, rate=0.9))
    train(data, toys.classifier(), parts, settings=settings, folder=tmp_path)
    logged = [row["examples"] for row in toys.rows(tmp_path) if "examples" in row]
    # The attack is before the second epoch; the third keeps what it added, with other draws.
    assert logged == [16, 24, 24]
    files = [(tmp_path / "examples" / f"{epoch}.jsonl").read_bytes() for epoch in range(3)]
    assert len(set(files)) == 3
    based = Adversarial(**ATTACKED, every=2, base="random_substitution", base_parameters=f"table={SYNONYMS};rate=0.9")
    other = tmp_path / "based"
    train(data, toys.classifier(), based, settings=settings, folder=other)
    assert [(other / "examples" / f"{epoch}.jsonl").read_bytes() for epoch in range(3)] == files


class Stops(toys.Recorder):
    """Ends the training at a step, as a kill would."""

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == 5:
            raise KeyboardInterrupt


def test_two_makers_continue_after_a_kill_with_the_same_weights(tmp_path):
    data, settings = toys.splits(16, 8), dataclasses.replace(QUICK, epochs=3)
    parts = (Adversarial(**ATTACKED, every=2), RandomSubstitution(table=SYNONYMS, rate=0.9))
    whole = train(data, toys.classifier(), parts, settings=settings, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(data, toys.classifier(), parts, settings=settings, folder=tmp_path / "killed", progress=Stops())
    again = train(data, toys.classifier(), parts, settings=settings, folder=tmp_path / "killed")
    assert toys.same_bits(toys.weights(whole), toys.weights(again))
    for epoch in range(3):
        own, other = (tmp_path / name / "examples" / f"{epoch}.jsonl" for name in ("whole", "killed"))
        assert own.read_bytes() == other.read_bytes()


def test_a_front_end_stands_before_a_vote_and_is_saved_with_it(tmp_path):
    data = toys.splits(16, 8)
    parts = build_defence("normalise+safer", {"table": SYNONYMS, "draws": 4})
    model = train(data, toys.classifier(), parts, settings=QUICK, folder=tmp_path)
    loaded = load_model(tmp_path / "model")
    texts = [{"text": "a fine film"}, {"text": "a f\u200bine film"}, {"text": "the plot was dull"}]
    keys = np.array([3, 3, 5], np.uint64)
    for one in (model, loaded):
        victim = wrap(one, device="cpu")
        assert victim.stochastic
        scores = victim.scores(texts, keys)
        assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores, wrap(model, device="cpu").scores(texts, keys))
    assert wrap(model, device="cpu").graded is not None  # type: ignore[attr-defined]
    fixed = wrap(model, device="cpu", fixed=True, invisible=False)
    assert not fixed.stochastic
    # The certificate draws of the text itself, before the front end: sound, and not what is deployed.
    certificate = catalog.build("certificates", "synonym")
    assert not certificate.is_deployed(victim)
    base = base_of(victim)
    assert not base.stochastic
    assert np.array_equal(base.scores(texts[:1]), base.scores(texts[1:2]))


def test_public_names():
    assert {"Composed", "build_defence", "compose"} <= set(defences.__all__)
