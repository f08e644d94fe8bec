"""What is noted at the end of an epoch: right, for every encoder, and without a trace in the weights."""

import contextlib
import functools
import math

import pytest
import question_toys
import torch
import training_toys as toys

from isthmus.core.errors import RunError, UsageError
from isthmus.defences import VIB, Standard
from isthmus.information.mutual_information import mean_spread, rate
from isthmus.models import load_model
from isthmus.training import TrainingSettings
from isthmus.training import train as train_anywhere
from isthmus.training.encoded import EncodedExamples
from isthmus.training.encoding import encode_examples
from isthmus.training.epoch_information import Tally, of_classifier
from isthmus.training.snapshots import load_snapshot

train = functools.partial(train_anywhere, device="cpu")
QUICK = {"precision": "fp32", "epochs": 2, "batch_size": 8, "learning_rate": 1e-2, "log_every": 2}


def information(log, split):
    return [row[f"{split}_information"] for row in log if f"{split}_information" in row]


@pytest.mark.parametrize("trains", ["all", "head"])
@pytest.mark.parametrize("defence", [Standard(), VIB(beta=1e-2)], ids=["standard", "vib"])
def test_it_leaves_no_trace_in_weights_or_log(tmp_path, trains, defence):
    found = {}
    for count in (0, 16):
        settings = TrainingSettings(**QUICK, trains=trains, information=count, evaluate_every=3)
        model = train(toys.splits(), toys.classifier(), defence, settings=settings, folder=tmp_path / str(count))
        found[count] = toys.weights(model), toys.rows(tmp_path / str(count))
    assert toys.same_bits(found[0][0], found[16][0])
    log = [{key: value for key, value in row.items() if not key.endswith("_information")} for row in found[16][1]]
    assert log == found[0][1]
    for split in ("train", "dev"):
        rows = information(found[16][1], split)
        assert len(rows) == 2  # once per epoch, not at every evaluation
        names = {"spread", "label_information", "loss"} | ({"rate", "entropy_rate"} if defence.name == "vib" else set())
        assert all(set(row) == names for row in rows)
        assert all(row["label_information"] <= math.log(2) + 1e-9 for row in rows)


def test_a_model_that_draws_outside_training_is_left_where_it_was(tmp_path):
    """Noise draws from a counted stream; looking at the model must not move the count."""
    from isthmus.models.bottleneck import GaussianBottleneck

    found = []
    for count in (0, 16):
        model = toys.classifier()
        torch.manual_seed(0)
        model.fill(bottleneck=GaussianBottleneck(model.pooled_size, inference="sample"))
        settings = TrainingSettings(**QUICK, information=count)
        found.append(toys.weights(train(toys.splits(), model, settings=settings)))
    assert toys.same_bits(*found)


def test_the_last_epoch_s_figures_are_those_of_the_model(tmp_path):
    settings = TrainingSettings(**{**QUICK, "epochs": 1}, information=20)
    splits = toys.splits()
    model = train(splits, toys.classifier(), VIB(beta=1e-2), settings=settings, folder=tmp_path)
    log = toys.rows(tmp_path)
    for split, data in (("dev", splits.dev), ("train", splits.train.sample(20))):
        (row,) = information(log, split)
        inputs = model.encode(data.texts())
        labels = torch.tensor(data.label_indices())
        with torch.no_grad():
            output = model(**inputs, hidden=True)
        loss = float(torch.nn.functional.cross_entropy(output.logits, labels))
        shares = torch.bincount(labels).double() / len(labels)
        assert row["spread"] == pytest.approx(float(mean_spread(output.hidden[0], inputs["attention_mask"])), rel=1e-4)
        assert row["rate"] == pytest.approx(float(output.latent.rate().mean()), rel=1e-4)
        assert row["rate"] == pytest.approx(float(rate(output.latent.mean, output.latent.deviation).mean()), rel=1e-4)
        assert row["entropy_rate"] == pytest.approx(-float(output.latent.deviation.log().sum(-1).mean()), rel=1e-4)
        assert row["loss"] == pytest.approx(loss, rel=1e-4)
        assert row["label_information"] == pytest.approx(float(-(shares * shares.log()).sum()) - loss, abs=1e-5)


def test_parts_of_several_processes_add_up():
    model, data = toys.classifier(), toys.dataset("train", 21, 0)
    encoded = EncodedExamples(model, data.examples, data.fields)

    def tally(part, parts):
        noted = of_classifier(model, encoded, 8, contextlib.nullcontext, 0, part, parts)
        with noted.watching(True) as found:
            noted._pass_sample(found)
        return found

    whole = tally(0, 1).figures()
    parts = [tally(part, 3).sums() for part in range(3)] + [Tally(16, 2).sums()]  # the last had no batch
    together = tally(0, 1).figures(lambda _: torch.stack(parts).sum(dim=0))
    assert together == pytest.approx(whole, rel=1e-6)


def test_the_training_goes_on_as_it_was():
    model = toys.classifier().train()
    noted = of_classifier(model, EncodedExamples(model, toys.dataset("train", 4, 0).examples, ("text",)), 8,
                          contextlib.nullcontext, 0, 0, 1)  # fmt: skip
    before = torch.random.get_rng_state()
    with noted.watching(True) as watch:
        pass
    noted.row(watch)
    assert model.training
    assert torch.equal(before, torch.random.get_rng_state())
    assert not model.backbone.blocks()[0]._forward_pre_hooks
    with noted.watching(False) as watch:
        assert watch is None
    assert noted.row(None) == {}


def test_of_answers_to_questions_the_spread_is_noted(tmp_path):
    found = {}
    for count in (0, 10):
        settings = TrainingSettings(**QUICK, information=count)
        data = question_toys.splits()
        model = train(data, question_toys.answerer(), settings=settings, folder=tmp_path / str(count))
        found[count] = toys.weights(model)
    assert toys.same_bits(found[0], found[10])
    log = toys.rows(tmp_path / "10")
    assert [set(row) for split in ("dev", "train") for row in information(log, split)] == [{"spread"}] * 4
    model = train(question_toys.splits(), question_toys.answerer(), folder=tmp_path / "one",
                  settings=TrainingSettings(**{**QUICK, "epochs": 1}))  # fmt: skip
    encoded = encode_examples(model, data.dev.examples, data.dev.fields)
    (batch,) = encoded.batches(10_000, model.device)
    with torch.no_grad():
        hidden = model(**batch.inputs, hidden=True).hidden[0]
    (row,) = information(toys.rows(tmp_path / "one"), "dev")
    assert row["spread"] == pytest.approx(float(mean_spread(hidden, batch.inputs["attention_mask"])), rel=1e-4)


@pytest.mark.parametrize("trains", ["all", "head"])
def test_snapshots_are_the_weights_of_every_epoch(tmp_path, trains):
    settings = TrainingSettings(**QUICK, trains=trains, snapshots=True)
    splits = toys.splits()
    train(splits, toys.classifier(), VIB(beta=1e-2), settings=settings, folder=tmp_path)
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == ["1.safetensors", "2.safetensors"]
    accuracy = {round(row["epoch"]): row["dev_accuracy"] for row in toys.rows(tmp_path) if "dev_accuracy" in row}
    losses = {round(row["epoch"]): row["dev_loss"] for row in toys.rows(tmp_path) if "dev_loss" in row}
    model = load_model(tmp_path / "model")
    final = toys.weights(model)
    labels = torch.tensor(splits.dev.label_indices())
    for epoch in (1, 2):
        load_snapshot(model, tmp_path / "snapshots" / f"{epoch}.safetensors")
        with torch.no_grad():
            logits = model(**model.encode(splits.dev.texts())).logits
        assert float((logits.argmax(-1) == labels).float().mean()) == pytest.approx(accuracy[epoch])
        assert float(torch.nn.functional.cross_entropy(logits, labels)) == pytest.approx(losses[epoch], rel=1e-4)
    best = max(accuracy, key=lambda epoch: (accuracy[epoch], -epoch))
    load_snapshot(model, tmp_path / "snapshots" / f"{best}.safetensors")
    assert toys.same_bits(toys.weights(model), final)
    other = toys.classifier(width=8)
    with pytest.raises(RunError, match="does not fit"):
        load_snapshot(other, tmp_path / "snapshots" / "1.safetensors")
    # Another training in the folder does not inherit them.
    train(splits, toys.classifier(), settings=TrainingSettings(**QUICK), folder=tmp_path)
    assert not list((tmp_path / "snapshots").glob("*"))


@pytest.mark.parametrize("change", [{"information": -1}, {"information": 1.5}, {"snapshots": 3}])
def test_wrong_settings_are_refused(change):
    with pytest.raises(UsageError, match=next(iter(change))):
        TrainingSettings(**change)
