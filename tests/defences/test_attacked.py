"""Training on what word attacks find: what is attacked, what is used, and when training starts over."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of

from isthmus import attacks, defences
from isthmus.core import progress, unfinished
from isthmus.core.errors import TrainingError, UnknownName, UsageError
from isthmus.core.types import Classification, Example
from isthmus.data import Dataset
from isthmus.defences.base import Defence, Made, Plan
from isthmus.defences.parts.attacked_examples import MADE_FROM, REPLACED
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.models.victims import wrap
from isthmus.training import TrainingSettings, train
from isthmus.training.log import select_judged

LEARNS = TrainingSettings(precision="fp32", epochs=4, batch_size=8, learning_rate=1e-2, log_every=4, schedule="linear")


@pytest.fixture(scope="module")
def learned() -> Any:
    """A model that knows the task, and so can be fooled."""
    settings = dataclasses.replace(LEARNS, epochs=8)
    return train(toys.splits(64, 16), toys.classifier(dropout=0.0), settings=settings, device="cpu")


def fit(defence: Defence, settings: TrainingSettings = LEARNS, size: int = 32, **rest: Any) -> Any:
    return train(toys.splits(size, 16), toys.classifier(dropout=0.0), defence, settings=settings, device="cpu", **rest)


def made_by(defence: Any, model: Any, data: Dataset, epoch: int | None = None, seed: int = 0) -> Made:
    at = epoch if epoch is not None else getattr(defence, "after", getattr(defence, "start", 0))
    made = defence.examples(model.eval(), data, at, seed)
    assert isinstance(made, Made)
    return made


def adversarial_of(made: Made) -> list[Example]:
    return [example for example in made.examples if MADE_FROM in example.fields]


# ---------------------------------------------------------------------- what is made


def test_the_successes_are_what_the_attack_itself_finds_and_keep_their_label(learned: Any) -> None:
    data = toys.dataset("train", 24, 0)
    defence = defences.AdvAug(attack="deepwordbug", points=None)
    made = made_by(defence, learned, data)
    assert made.examples[:24] == data.examples
    by_id = {example.id: example for example in data}
    victim = wrap(learned, device="cpu")
    found = adversarial_of(made)
    assert found
    for example in found:
        original = by_id[str(example.fields[MADE_FROM])]
        assert example.label == original.label
        texts = [{"text": str(one.fields["text"])} for one in (original, example)]
        before, after = victim.scores(texts).argmax(axis=1)
        assert before == original.label != after
    notes = made.notes["attack"]
    assert notes["attacked"] == 24 == sum(notes[outcome] for outcome in ("succeeded", "failed", "skipped"))
    assert (notes["used"], notes["error"], notes["timed_out"]) == (len(found), 0, 0)
    assert notes["queries"] > 24


def test_draws_come_from_seed_epoch_and_example_and_from_nothing_else(learned: Any) -> None:
    data = toys.dataset("train", 24, 0)
    defence = defences.Adversarial(attack="deepwordbug", keep_failed=True)
    first = made_by(defence, learned, data, epoch=1)
    torch.manual_seed(99)
    assert made_by(defence, learned, data, epoch=1) == first
    reversed_data = dataclasses.replace(data, examples=data.examples[::-1])
    assert {e.id: e for e in made_by(defence, learned, reversed_data, epoch=1).examples} == {
        e.id: e for e in first.examples
    }
    assert made_by(defence, learned, data, epoch=2).examples != first.examples
    assert made_by(defence, learned, data, epoch=1, seed=1).examples != first.examples


def test_several_attacks_share_the_points_of_a_round(learned: Any) -> None:
    data = toys.dataset("train", 40, 0)
    defence = defences.Adversarial(attack="deepwordbug,leet", keep_failed=True)
    made = made_by(defence, learned, data, epoch=1)
    met = {str(e.fields[MADE_FROM]): e.id.rpartition("+")[2] for e in adversarial_of(made)}
    counts = {name: list(met.values()).count(name) for name in ("deepwordbug", "leet")}
    assert len(met) == 40
    assert min(counts.values()) > 8, "each point meets one of them, about as many each"
    each = made.notes["attack"]["each"]
    assert {name: sum(found.values()) for name, found in each.items()} == counts
    alone = {e.fields[MADE_FROM]: e.fields["text"] for e in adversarial_of(
        made_by(defences.Adversarial(attack="leet", keep_failed=True), learned, data, epoch=1))}  # fmt: skip
    for example in adversarial_of(made):
        if example.id.endswith("+leet"):
            assert example.fields["text"] == alone[example.fields[MADE_FROM]], "who shares the round changes no text"
    assert made_by(defence, learned, data, epoch=1) == made
    other = {e.fields[MADE_FROM]: e.id for e in adversarial_of(made_by(defence, learned, data, epoch=2))}
    assert any(not other[key].endswith(f"+{name}") for key, name in met.items()), "drawn anew each time"
    assert "each" not in made_by(defences.Adversarial(attack="leet"), learned, data).notes["attack"]


def test_parameters_of_several_attacks_and_presets() -> None:
    defence = defences.Adversarial(attack="deepwordbug,leet", attack_parameters="deepwordbug.max_edit_distance=7")
    assert defence._attacks["deepwordbug"].max_edit_distance == 7  # type: ignore[attr-defined]
    assert defences.AdvAug(preset="strict")._limits.similarity == 0.98
    with pytest.raises(UnknownName, match="strikt"):
        defences.AdvAug(preset="strikt")
    with pytest.raises(UsageError, match="each once"):
        defences.AdvAug(attack="leet,leet")
    with pytest.raises(UnknownName, match="pwws"):
        defences.AdvAug(attack="leet,deepwordbug", attack_parameters="pwws.table=x")
    with pytest.raises(UnknownName, match="colour"):
        defences.AdvAug(attack="leet,deepwordbug", attack_parameters="colour=3")


def test_points_are_a_share_of_every_class_drawn_anew_each_time(learned: Any) -> None:
    data = toys.dataset("train", 40, 0)
    defence = defences.Adversarial(attack="deepwordbug", points=10, keep_failed=True)
    rounds = [adversarial_of(made_by(defence, learned, data, epoch=epoch)) for epoch in (1, 2)]
    for found in rounds:
        assert len(found) == 10
        assert [example.label for example in found].count(1) == 5
    chosen = [{example.fields[MADE_FROM] for example in found} for found in rounds]
    assert chosen[0] != chosen[1]


def test_failed_and_skipped_attacks_stay_only_if_asked_for(learned: Any) -> None:
    data = toys.dataset("train", 24, 0)
    wrong = Example("train:wrong", {"text": "a lovely film"}, 0)
    data = dataclasses.replace(data, examples=(*data.examples, wrong))
    everything = made_by(defences.Adversarial(attack="deepwordbug", keep_failed=True), learned, data)
    successes = made_by(defences.Adversarial(attack="deepwordbug"), learned, data)
    assert everything.notes["attack"]["skipped"] >= 1
    assert len(adversarial_of(everything)) == 25
    assert len(adversarial_of(successes)) == successes.notes["attack"]["succeeded"] < 25
    (kept,) = [e for e in adversarial_of(everything) if e.fields[MADE_FROM] == "train:wrong"]
    assert kept.fields["text"] == "a lovely film"


def test_attacks_that_break_are_counted_and_never_used() -> None:
    model = toys.classifier(dropout=0.0)
    bad = model.tokenizer.convert_tokens_to_ids("stale")

    def breaks(_module: Any, inputs: Any) -> None:
        if bool((inputs[0] == bad).any()):
            raise RuntimeError("the memory is full")

    model.table.register_forward_pre_hook(breaks)
    data = toys.dataset("train", 24, 0)
    broken = {example.id for example in data if "stale" in example.texts["text"]}
    made = made_by(defences.Adversarial(attack="deepwordbug", keep_failed=True), model, data)
    assert made.notes["attack"]["error"] == len(broken) > 0
    assert broken.isdisjoint(example.fields[MADE_FROM] for example in adversarial_of(made))
    only = dataclasses.replace(data, examples=tuple(example for example in data if example.id in broken))
    with pytest.raises(TrainingError, match=r"deepwordbug ended in an error on all of .* memory is full"):
        made_by(defences.AdvAug(attack="deepwordbug"), model, only)


def test_no_success_is_said_and_training_goes_on(learned: Any, caplog: pytest.LogCaptureFixture) -> None:
    constant = toys.classifier(dropout=0.0)
    data = toys.dataset("train", 8, 0)
    with torch.no_grad():
        for value in constant.backbone.own_head().parameters():
            value.zero_()
    made = made_by(defences.AdvAug(attack="deepwordbug"), constant, data)
    assert tuple(made.examples) == data.examples
    assert made.notes["attack"]["succeeded"] == 0
    assert "succeeded on none of 8 training texts" in caplog.text


def test_the_premise_of_a_pair_is_left_alone_and_fields_nobody_reads_are_not_attacked() -> None:
    task = Classification(("no", "yes"), ("premise", "hypothesis"))
    model = toys.classifier(dropout=0.0)
    model.task = task
    examples = tuple(
        Example(f"train:{row}", {"premise": "the plot was dull", "hypothesis": "a cold film", "note": "very warm"}, 0)
        for row in range(4)
    )
    data = Dataset("pairs", "train", task, examples)
    defence = defences.Adversarial(attack="deepwordbug", attack_parameters="semantics=paper", keep_failed=True)
    for example in adversarial_of(made_by(defence, model, data)):
        assert example.fields["premise"] == "the plot was dull"
        assert set(example.fields) - {REPLACED} == {"premise", "hypothesis", MADE_FROM}


def test_luck_with_a_randomised_model_is_no_success(learned: Any) -> None:
    noisy = toys.classifier(dropout=0.0)
    noisy.load_state_dict(learned.state_dict())
    noisy.fill(noise=GaussianNoise(3.0, (0, 1)))
    data = toys.dataset("train", 32, 0)
    defence = defences.AdvAug(attack="deepwordbug", points=None)
    made, again = made_by(defence, noisy, data), made_by(defence, noisy, data)
    assert made == again
    run = attacks.DeepWordBug()(wrap(noisy, device="cpu"), data.examples, fresh=0, search_draws=0)
    assert 0 < made.notes["attack"]["succeeded"] < sum(result.outcome == "succeeded" for result in run)


# ---------------------------------------------------------------------- the run


class Watch:
    """A progress object that remembers everything it was told."""

    def __init__(self) -> None:
        self.work: list[tuple[str, int, int, str]] = []
        self.notes: list[str] = []

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None: ...

    def on_work(self, title: str, done: int, total: int, figures: str) -> None:
        self.work.append((title, done, total, figures))

    def on_note(self, message: str) -> None:
        self.notes.append(message)


def test_advaug_trains_from_the_start_again_on_originals_and_successes(tmp_path: Path) -> None:
    defence, watch = defences.AdvAug(attack="deepwordbug", after=6), Watch()
    settings = dataclasses.replace(LEARNS, epochs=8)
    model = fit(defence, settings, 64, folder=tmp_path / "run", progress=watch)
    rows = toys.rows(tmp_path / "run")
    (generated,) = [row for row in rows if "examples" in row]
    assert (generated["step"], generated["epoch"]) == (48, 6)
    attack: Any = generated["attack"]
    assert attack["attacked"] == 64
    assert attack["succeeded"] == generated["examples"] - 64 > 0
    attacked = [told for told in watch.work if told[0] == "deepwordbug before epoch 7"]
    assert attacked[-1][1:3] == (64, 64)

    # What was attacked is a training of six epochs, with its own schedule and its best weights.
    fine_tuned = fit(defences.Standard(), dataclasses.replace(settings, epochs=6), 64)
    expected = made_by(defence, fine_tuned, toys.splits(64, 16).train)
    written = [json.loads(line) for line in (tmp_path / "run/examples/6.jsonl").read_text().splitlines()]
    assert [row["fields"] for row in written] == [dict(example.fields) for example in expected.examples]

    rates = [(row["epoch"], row["learning_rate"]) for row in rows if "learning_rate" in row]
    for begins, ends in ((0, 6), (6, 8)):
        own = dataclasses.replace(settings, epochs=ends - begins)
        for epoch, rate in rates:
            if begins < epoch <= ends:
                steps = 8 if begins == 0 else -(-generated["examples"] // 8)
                assert rate == pytest.approx(own.rate(epoch - begins - 0.5 / steps), rel=1e-5)
    losses = {row["epoch"]: row["loss"] for row in rows if "loss" in row}
    assert min(loss for epoch, loss in losses.items() if 6 < epoch < 7) > losses[6.0]  # it knows nothing again
    defended = [row["dev_accuracy"] for row in rows if row["epoch"] > 6 and "dev_accuracy" in row]
    assert accuracy(model) == max(defended)


def accuracy(model: Any) -> float:
    dev = toys.splits(32, 16).dev
    return float((wrap(model, device="cpu").scores(dev.texts()).argmax(axis=1) == dev.label_indices()).mean())


def test_weights_that_were_not_defended_cannot_win(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Unlearns(defences.Adversarial):
        """After the attack it gets worse: the epoch before would be the best."""

        def losses(self, model: Any, batch: Any) -> Any:
            sign = 1.0 if not any(MADE_FROM in example.fields for example in batch.examples) else -3.0
            for terms in Defence.losses(self, model, batch):
                yield defences.Terms({"cross_entropy": sign * terms.total()})

    settings = dataclasses.replace(LEARNS, epochs=6, patience=1, schedule="constant")
    model = fit(Unlearns(attack="deepwordbug", start=4, keep_failed=True), settings, folder=tmp_path)
    evaluated = [row for row in toys.rows(tmp_path) if "dev_accuracy" in row]
    # Patience would have ended it before the attack; it ends nothing there.
    assert len(evaluated) >= 5
    assert accuracy(model) == max(row["dev_accuracy"] for row in evaluated[4:])
    assert [row for row in select_judged(toys.rows(tmp_path)) if "dev_accuracy" in row] == evaluated[4:]


def test_old_adversarial_examples_are_thrown_away(tmp_path: Path) -> None:
    defence = defences.Adversarial(attack="deepwordbug", start=1, every=2, keep_failed=True, points=8)
    fit(defence, folder=tmp_path)
    assert sorted(path.name for path in (tmp_path / "examples").glob("*.jsonl")) == ["1.jsonl", "3.jsonl"]
    rows = [row for row in toys.rows(tmp_path) if "examples" in row]
    assert [(row["epoch"], row["examples"]) for row in rows] == [(1, 40), (3, 40)]


@pytest.mark.parametrize(
    ("defence", "step"),
    [
        (defences.AdvAug(attack="deepwordbug", after=2), 8),
        (defences.Adversarial(attack="deepwordbug", start=1, every=2, keep_failed=True, points=8), 11),
        (defences.FLAT(attack="deepwordbug", start=1, every=2, keep_failed=True, points=8, anneal=0.03), 11),
    ],
    ids=["advaug as the attack is over", "adversarial between two attacks", "flat between two attacks"],
)
def test_a_run_that_was_stopped_ends_the_same_and_attacks_once(
    defence: Any, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(LEARNS, checkpoint_every=3, log_every=1)
    whole = fit(defence, settings, folder=tmp_path / "whole")

    class Stops(Watch):
        def on_step(self, at: int, total: int, metrics: dict[str, float]) -> None:
            if at == step + 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(defence, settings, folder=tmp_path / "run", progress=Stops())
    made = sorted(path.name for path in (tmp_path / "run/examples").glob("*.jsonl"))
    calls: list[int] = []
    original = type(defence).with_adversarial

    def counted(self: Any, model: Any, data: Any, epoch: int, seed: int, **rest: Any) -> Any:
        calls.append(epoch)
        return original(self, model, data, epoch, seed, **rest)

    monkeypatch.setattr(type(defence), "with_adversarial", counted)
    continued = fit(defence, settings, folder=tmp_path / "run")
    assert toys.same_bits(toys.weights(whole), toys.weights(continued))
    assert (tmp_path / "whole/train.jsonl").read_text() == (tmp_path / "run/train.jsonl").read_text()
    assert not {f"{epoch}.jsonl" for epoch in calls} & set(made)
    shutil.rmtree(tmp_path)


def test_an_attack_that_was_stopped_goes_on_where_it_was(learned: Any, tmp_path: Path) -> None:
    data, path = toys.dataset("train", 24, 0), tmp_path / "examples/1.part.jsonl"
    defence = defences.Adversarial(attack="deepwordbug", keep_failed=True)
    whole = made_by(defence, learned, data)

    class Stops(Watch):
        def on_work(self, title: str, done: int, total: int, figures: str) -> None:
            if done == 10:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), progress.watch(Stops()), unfinished.keep_in(path):
        made_by(defence, learned, data)
    with path.open("a") as stream:
        stream.write('{"id": "torn')
    again = Watch()
    with progress.watch(again), unfinished.keep_in(path):
        assert made_by(defence, learned, data) == whole
    assert [done for _, done, _, _ in again.work] == list(range(11, 25))
    assert not path.exists()


def test_without_an_attack_it_is_its_base_over_several_epochs() -> None:
    base = defences.FreeLB(steps=2)
    off = defences.AdvAug(attack="deepwordbug", points=0, base="freelb", base_parameters="steps=2")
    assert toys.same_bits(toys.weights(fit(off)), toys.weights(fit(base)))


def test_the_losses_are_those_of_the_base() -> None:
    model = toys.classifier(dropout=0.0).train()
    batch = batch_of(model)
    defence = defences.Adversarial(attack="deepwordbug", base="label_smoothing", base_parameters="epsilon=0.3")
    own = [terms.values for terms in defence.losses(model, batch)]
    theirs = [terms.values for terms in defences.LabelSmoothing(epsilon=0.3).losses(model, batch)]
    assert [dict(values) for values in own] == [dict(values) for values in theirs]
    assert defences.AdvAug(attack="deepwordbug", base="freelb").moves_inputs


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("cls", "parameters", "error", "message"),
    [
        (defences.AdvAug, {"attack": "textfoolr"}, UnknownName, "textfooler"),
        (defences.AdvAug, {"attack_parameters": "candidate=3"}, UnknownName, "parameter of textfooler"),
        (defences.AdvAug, {"attack_parameters": "semantics"}, UsageError, "key=value"),
        (defences.AdvAug, {"points": -1}, UsageError, "points"),
        (defences.AdvAug, {"budget": 0}, UsageError, "budget"),
        (defences.AdvAug, {"after": -1}, UsageError, "after"),
        (defences.AdvAug, {"mode": "again"}, UsageError, "mode"),
        (defences.AdvAug, {"base": "adversarial"}, UsageError, "attacks the training examples itself"),
        (defences.Adversarial, {"base": "freelbs"}, UnknownName, "freelb"),
        (defences.Adversarial, {"every": 0}, UsageError, "every"),
        (defences.Adversarial, {"start": -2}, UsageError, "start"),
    ],
)
def test_wrong_settings_are_refused(cls: Any, parameters: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        cls(**parameters)


@pytest.mark.parametrize(
    "defence",
    [defences.AdvAug(attack="deepwordbug", after=4), defences.Adversarial(attack="deepwordbug", start=7)],
    ids=["advaug", "adversarial"],
)
def test_too_few_epochs_are_refused_before_anything_is_written(defence: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only 4"):
        fit(defence, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_head_alone_cannot_be_trained_on_attacks() -> None:
    settings = dataclasses.replace(LEARNS, trains="head")
    with pytest.raises(UsageError, match="cannot train the head alone"):
        fit(defences.AdvAug(attack="deepwordbug"), settings)


def test_stretches_of_a_plan() -> None:
    plan = Plan(again=(2, 5))
    assert [plan.stretch(epoch, 6) for epoch in range(6)] == [(0, 2), (0, 2), (2, 5), (2, 5), (2, 5), (5, 6)]
    assert Plan().stretch(3, 6) == (0, 6)
