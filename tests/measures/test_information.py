"""The information measures on tiny models that were really trained."""

import functools
import math

import measure_toys
import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.statistics import wilson
from isthmus.information.mutual_information import mean_spread
from isthmus.measures import AnchoredInformation, Information, InformationPlane, Subject, TradeOff
from isthmus.measures.base import AdversarialTexts, Asked, Facts, Robustness
from isthmus.measures.information import (
    AMONG,
    CLUB,
    ENTROPY_RATE,
    GAP,
    LABEL,
    LABEL_ENTROPY,
    LOSS,
    NCE,
    OTHERS,
    RATE,
    RATE_BITS,
    SPREAD,
    WORDS,
)
from isthmus.measures.trade_off import pool_rates
from isthmus.models.bottleneck import GaussianBottleneck
from isthmus.runs.folder import RunFolder
from isthmus.training import TrainingSettings
from isthmus.verbs.measure import MeasureRequest, measure
from isthmus.verbs.subject import make_subject

QUICK = {"fit_epochs": 2, "chunk": 8, "width": 16, "fit_on": 24}
KEPT = TrainingSettings(precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=4, snapshots=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("information")


@pytest.fixture(scope="module")
def vib(place) -> RunFolder:
    folder = measure_toys.toy_run(place, "vib", "vib", KEPT, beta=1e-2)
    measure_toys.add_attack(folder)
    return folder


@pytest.fixture(scope="module")
def plain(place) -> RunFolder:
    folder = measure_toys.toy_run(place, "plain")
    measure_toys.add_attack(folder, robust=0.25)
    return folder


def test_the_figures_of_a_plain_model():
    model, splits = toys.classifier(), toys.splits()
    found = Information(**QUICK)(model, splits, n=24)
    data = splits.dev.sample(24)
    inputs, labels = model.encode(data.texts()), torch.tensor(data.label_indices())
    with torch.no_grad():
        output = model(**inputs, hidden=True)
    loss = float(torch.nn.functional.cross_entropy(output.logits, labels))
    mask = inputs["attention_mask"]
    assert found.figure(SPREAD, "dev").estimate == pytest.approx(float(mean_spread(output.hidden[0], mask)), rel=1e-4)
    assert found.figure(LOSS, "dev").estimate == pytest.approx(loss, rel=1e-4)
    shares = labels.bincount() / len(labels)
    assert found.figure(LABEL_ENTROPY, "dev").estimate == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-5)
    label = found.figure(LABEL, "dev")
    assert label.estimate == pytest.approx(found.figure(LABEL_ENTROPY, "dev").estimate - loss, abs=1e-5)
    assert label.low < label.estimate < label.high
    assert found.figure(NCE, "dev").high <= math.log(8) + 1e-6
    assert (found.details["fits"], found.details["fit_on"]) == (3, 24)
    assert "InfoNCE: the mean of 3 critics, each fitted on 24 training texts" in " ".join(found.notes)
    one = Information(**QUICK, fits=1)(model, splits, n=24)
    assert "one critic, fitted on 24 training texts; the interval counts texts and not" in " ".join(one.notes)
    lengths = [each.figure(NCE, "dev").high - each.figure(NCE, "dev").low for each in (found, one)]
    assert lengths[0] != lengths[1]
    assert {figure.of for figure in found.figures} == {"train", "dev"}
    assert {figure.name for figure in found.figures} == {SPREAD, CLUB, GAP, WORDS, NCE, LABEL, LOSS, LABEL_ENTROPY}
    assert Information(**QUICK)(model, splits, n=24) == found  # the same numbers again


def test_the_figures_of_a_bottleneck():
    model = toys.classifier()
    torch.manual_seed(0)
    model.fill(bottleneck=GaussianBottleneck(model.pooled_size)).eval()
    found = Information(fitted=False, draws=200)(model, toys.splits(), n=24, splits=("dev",))
    data = toys.splits().dev.sample(24)
    with torch.no_grad():
        latent = model(**model.encode(data.texts())).latent
    nats = found.figure(RATE).estimate
    assert nats == pytest.approx(float(latent.rate().mean()), rel=1e-4)
    assert found.figure(RATE_BITS).estimate == pytest.approx(nats / math.log(2))
    assert found.figure(ENTROPY_RATE).estimate == pytest.approx(-float(latent.deviation.log().sum(-1).mean()), rel=1e-4)
    assert found.figure(AMONG).estimate <= min(math.log(24), found.figure(OTHERS).estimate)
    # The mean over draws is the expectation that the bound is about: Jensen puts it under that of one averaged answer.
    labels = torch.tensor(data.label_indices())
    stream = torch.Generator().manual_seed(5)
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(
                model.head(latent.mean + latent.deviation * torch.randn(latent.mean.shape, generator=stream)), labels
            )
            for _ in range(400)
        ]
    assert found.figure(LOSS).estimate == pytest.approx(float(torch.stack(losses).mean()), abs=0.02)


def test_what_is_not_there_is_said():
    with pytest.raises(UsageError, match="chunk is 1; it must be at least 2"):
        Information(chunk=1)
    with pytest.raises(UsageError, match="train it with -S snapshots=true"):
        Information(fitted=False)(toys.classifier(), toys.splits(), n=4, every_epoch=True)
    with pytest.raises(UsageError, match="train again with -S information=256"):
        InformationPlane()(toys.classifier(), toys.splits())
    with pytest.raises(UsageError, match="attack the model first"):
        AnchoredInformation()(toys.classifier(), toys.splits())
    with pytest.raises(UnknownName, match="split in toy"):
        Information()(toys.classifier(), toys.splits(), splits=("tset",))


def test_every_epoch_that_was_kept(vib):
    (found,) = measure(
        MeasureRequest(
            (str(vib.path),), ("information",), {"fitted": "no"}, Asked(n=16, every_epoch=True), device="cpu"
        )
    )
    plot = next(each for each in found.measurement.plots if each.name == "rate-r-nats")
    assert {series.name for series in plot.series} == {"train", "dev", "test"}
    assert all(series.x == (1.0, 2.0) and len(series.y_bounds) == 2 for series in plot.series)
    assert set(found.measurement.details["epochs"]) == {"1", "2"}
    assert any("those of 2 epochs are drawn" in note for note in found.measurement.notes)
    # One of the epochs is the model itself.
    own = found.measurement.figure(RATE, "dev").estimate
    (dev,) = [series for series in plot.series if series.name == "dev"]
    assert any(value == pytest.approx(own, rel=1e-5) for value in dev.y)


def test_epochs_that_were_not_kept_are_missed_before_anything_is_measured(plain, monkeypatch):
    monkeypatch.setattr(Information, "_look", lambda *_: pytest.fail("something was computed in vain"))
    with pytest.raises(UsageError, match="kept no weights of single epochs"):
        measure(MeasureRequest((str(plain.path),), ("information",), asked=Asked(every_epoch=True), device="cpu"))


def test_the_plane_of_the_log_and_of_the_snapshots_agree(vib):
    asked = Asked(n=48, splits=("train", "dev"))
    from_log = InformationPlane().measure(make_subject(vib, asked, "cpu"))
    from_weights = InformationPlane().measure(make_subject(vib, Asked(n=48, every_epoch=True), "cpu"))
    for one, other in zip(from_log.plots[0].series, from_weights.plots[0].series, strict=True):
        assert (one.name, one.labels) == (other.name, other.labels) == (one.name, ("1", "2"))
        assert one.x == pytest.approx(other.x, rel=1e-4)
        assert one.y == pytest.approx(other.y, abs=1e-4)
    assert from_log.plots[0].x_label == "rate R (nats)"
    bits = InformationPlane(bits=True).measure(make_subject(vib, asked, "cpu")).plots[0].series[0]
    assert bits.x == pytest.approx([value / math.log(2) for value in from_log.plots[0].series[0].x])
    own = InformationPlane(across="entropy_rate", up="inverse_loss").measure(make_subject(vib, asked, "cpu")).plots[0]
    losses = [row["train_information"]["loss"] for row in vib.train_log() if "train_information" in row]
    assert own.series[0].y == pytest.approx([1 / loss for loss in losses])
    assert own.x_label == "H(R) - H(Z|X) (nats)"


def test_a_model_without_a_bottleneck_has_its_spread(plain):
    found = InformationPlane().measure(make_subject(plain, Asked(), "cpu"))
    assert found.plots[0].x_label == "spread U"
    with pytest.raises(UsageError, match="only a model with a Gaussian bottleneck"):
        InformationPlane(across="rate").measure(make_subject(plain, Asked(), "cpu"))


def test_information_of_anchored_words_and_the_difference_between_runs(vib, plain):
    method = AnchoredInformation(fit_epochs=2, chunk=4, rounds=4)
    subject = make_subject(vib, Asked(n=12), "cpu")
    alone = method.measure(subject)
    assert {(figure.name[:8], figure.of) for figure in alone.figures} == {
        ("anchored", "benign"), ("anchored", "adversarial"), ("other wo", "benign"), ("other wo", "adversarial"),
    }  # fmt: skip
    assert all(figure.high <= math.log(4) + 1e-6 for figure in alone.figures)
    subject.others = (make_subject(vib, Asked(n=12), "cpu"),)
    same = method.measure(subject)
    differences = [figure for figure in same.figures if figure.name.startswith("difference")]
    assert len(differences) == 4
    assert all(figure.estimate == figure.low == figure.high == 0 for figure in differences)  # a run less itself
    subject.others = (make_subject(plain, Asked(n=12), "cpu"),)
    other = method.measure(subject)
    assert any(figure.estimate != 0 for figure in other.figures if figure.name.startswith("difference"))
    assert len(other.plots[0].series) == 2


def test_the_others_are_the_true_complement(monkeypatch):
    """Every token is in exactly one of the two groups, and the critic sees no other."""
    from isthmus.information import fitted_estimators

    seen = []
    honest = fitted_estimators.Nce.values

    def watch(self, features, chosen, seed, rounds=8):
        seen.append(chosen)
        return honest(self, features, chosen, seed, rounds)

    monkeypatch.setattr(fitted_estimators.Nce, "values", watch)
    splits = toys.splits()
    subject = Subject.of(toys.classifier(), splits)
    subject.adversarial = lambda name: AdversarialTexts("x", splits.dev[:10], splits.dev[10:20])
    found = AnchoredInformation(fit_epochs=1, chunk=4, rounds=1, fits=1).measure(subject)
    assert (fitted_estimators.BELOW_ZERO in found.notes) == any(figure.estimate < 0 for figure in found.figures)
    for anchored, others in (seen[:2], seen[2:]):
        assert torch.equal(anchored, ~others)
        assert 0 < int(anchored.sum()) < len(anchored)


def test_adversarial_texts_of_a_file(vib, place):
    import json

    path = place / "adversarial.jsonl"
    rows = [{"text": example.texts["text"], "label": "good"} for example in toys.dataset("test", 12, 3)]

    def measured(count):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
        parameters = {"on": str(path), "fit_epochs": "1", "chunk": "4", "rounds": "1"}
        (found,) = measure(MeasureRequest((str(vib.path),), ("anchored_information",), parameters, device="cpu"))
        return found.was_there, found.measurement.details["n"]

    assert measured(12) == (False, {"benign": 12, "adversarial": 12})
    assert measured(12) == (True, {"benign": 12, "adversarial": 12})
    assert measured(9) == (False, {"benign": 9, "adversarial": 9})  # the same name, other texts


def test_adversarial_texts_of_the_rows_of_another_run(vib, plain):
    elsewhere = make_subject(vib, Asked(), "cpu").adversarial(str(plain.attacks_path / "pwws.jsonl"))
    own = make_subject(plain, Asked(), "cpu").adversarial("pwws")
    assert len(own.adversarial) > 0
    assert elsewhere.adversarial.examples == own.adversarial.examples
    assert elsewhere.benign.examples == own.benign.examples


# ---------------------------------------------------------------------- trade-off


def outcome(n: int, clean: float, robust: float, name: str = "pwws") -> Robustness:
    order = np.arange(n) / n
    return Robustness(name, order < robust, order < clean)


def runs(values, outcomes, **facts) -> Subject:
    found = []
    for number, (value, each) in enumerate(zip(values, outcomes, strict=True)):
        subject = Subject(f"run-{number}", facts=Facts("vib", {"beta": value}, {"epochs": 3}, number, **facts))
        subject.robustness = functools.partial(lambda each, name: each, each)
        found.append(subject)
    found[0].others = tuple(found[1:])
    return found[0]


def test_runs_of_one_value_are_pooled_and_ordered():
    subject = runs([0.1, 0.001, 0.1], [outcome(50, 0.8, 0.6), outcome(50, 0.9, 0.2), outcome(50, 0.7, 0.5)])
    found = TradeOff().measure(subject)
    series, each = found.plots[0].series
    assert (each.small, each.x, each.y) == (True, (0.8, 0.7), (0.6, 0.5))
    assert series.labels == ("0.001", "0.1")
    assert series.x == pytest.approx((0.9, 0.75))
    assert series.y == pytest.approx((0.2, 0.55))
    one = found.figure("vib, beta 0.001", "robust accuracy")
    assert (one.low, one.high) == (wilson(10, 50).low, wilson(10, 50).high)
    assert found.figure("vib, beta 0.1", "runs").estimate == 2
    assert [row["seed"] for row in found.details["runs"]] == [0, 1, 2]


def test_seeds_widen_the_interval_and_never_narrow_it():
    apart = pool_rates([outcome(1000, 0.2, 0).clean, outcome(1000, 0.8, 0).clean])
    assert apart.low == 0.0
    assert apart.high == 1.0
    alike = pool_rates([outcome(100, 0.5, 0).clean] * 5)
    assert (alike.low, alike.high) == (wilson(50, 100).low, wilson(50, 100).high)


def test_runs_that_cannot_be_compared_are_refused():
    with pytest.raises(UsageError, match="say which with -P attack=NAME"):
        TradeOff().measure(runs([1, 2], [outcome(9, 1, 1), outcome(9, 1, 1, "bae")]))
    with pytest.raises(UnknownName, match="Did you mean 'beta'"):
        TradeOff(over="betta").measure(runs([1], [outcome(9, 1, 1)]))
    found = TradeOff(over="epochs").measure(runs([1, 2], [outcome(9, 1, 1), outcome(12, 1, 1)]))
    assert "9 to 12 examples" in found.notes[0]


def test_two_seeds_are_said_to_be_few():
    few, enough = (TradeOff().measure(runs([0.1] * count, [outcome(50, 0.8, 0.6)] * count)) for count in (2, 3))
    assert "Two seeds" in few.notes[0]
    assert not enough.notes


def test_a_static_set_has_its_clean_accuracy_elsewhere():
    subject = runs([0.1], [None])
    found = {"anli": Robustness("anli", np.arange(10) < 3), "test": Robustness("test", np.arange(40) < 30)}
    subject.robustness = lambda name: found[name]
    with pytest.raises(UsageError, match="with -P clean=NAME"):
        TradeOff(attack="anli").measure(subject)
    one = TradeOff(attack="anli", clean="test").measure(subject)
    assert [figure.estimate for figure in one.figures] == [0.75, 0.3, 1]


def test_outcomes_of_an_evaluation_are_read(plain):
    import json

    from isthmus.core.files import write_json

    plain.evaluations_path.mkdir(exist_ok=True)
    rows = [
        {"id": "a", "outcome": "right", "label": 1, "original": {"scores": {"mean": [0.2, 0.8]}}},
        {"id": "b", "outcome": "wrong", "label": 0, "original": {"scores": {"mean": [0.9, 0.1]}}},
        {"id": "c", "outcome": "error", "label": 0, "original": {"scores": {"mean": [0.4, 0.6]}}},
    ]
    (plain.evaluations_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_json(plain.evaluations_path / "others.json", {"schema": 1, "summary": {"headline": "mean"}})
    found = make_subject(plain, Asked(), "cpu").robustness("others")
    assert found.robust.tolist() == [True, False, False]
    assert found.clean.tolist() == [True, True, False]
    with pytest.raises(UnknownName, match="attack or evaluation"):
        make_subject(plain, Asked(), "cpu").robustness("pws")
    assert make_subject(plain, Asked(), "cpu").robustness("pwws").name == "pwws"
    del rows[1]["original"]
    (plain.evaluations_path / "others.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert make_subject(plain, Asked(), "cpu").robustness("others").clean is None


def test_of_answers_to_questions_tokens_are_measured():
    import question_toys

    model, data = question_toys.answerer(), question_toys.splits()
    found = Information(**{**QUICK, "fit_on": 8})(model, data, n=6, splits=("dev",))
    assert {figure.name for figure in found.figures} == {SPREAD, CLUB, GAP, WORDS, NCE}


def test_the_sweep_by_command(vib, place, capsys, monkeypatch):
    import json
    import shutil

    from isthmus.cli.app import run
    from isthmus.core.records import read_record, write_record

    monkeypatch.setenv("COLUMNS", "80")
    folders = []
    for beta, robust in ((1e-1, 0.75), (1e-3, 0.25)):
        folder = RunFolder(shutil.copytree(vib.path, place / f"sweep-{beta}"))
        record = read_record(folder.record_path)
        record["defence"]["parameters"]["beta"] = beta
        write_record(folder.record_path, record)
        folder.measures_path.unlink(missing_ok=True)
        measure_toys.add_attack(folder, robust=robust)
        folders.append(str(folder.path))
    arguments = ["measure", *folders, "--measure", "trade_off", "-P", "over=beta", "-P", "attack=pwws", "--json"]
    assert run(arguments) == 0
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["measurements"]
    assert not found["was_there"]
    assert [each["estimate"] for each in found["figures"] if each["of"] == "robust accuracy"] == [
        pytest.approx(6 / 24), pytest.approx(16 / 24)
    ]  # fmt: skip
    assert [path.endswith((".svg", ".png")) for path in found["files"]] == [True, True]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["measurements"][0]["was_there"]
    # More examples under attack: the same command takes it again.
    measure_toys.add_attack(RunFolder(folders[1]), robust=0.5, n=32)
    assert run(arguments) == 0
    assert not json.loads(capsys.readouterr().out.splitlines()[-1])["measurements"][0]["was_there"]
    assert run([*arguments[:-3], "-P", "attack=bae"]) == 2
    assert "no attack in" in capsys.readouterr().err
    assert run(["report", folders[0]]) == 0
    assert "trade_off</h3>" in RunFolder(folders[0]).report_path.read_text()
