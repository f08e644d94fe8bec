"""Hidden states of texts and adversarial texts: identities, and what is drawn of them."""

import dataclasses
import json

import measure_toys
import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus.core.errors import UsageError
from isthmus.core.types import QuestionAnswering
from isthmus.measures import LatentDistance, Subject
from isthmus.measures.base import AdversarialTexts, Asked
from isthmus.models import Classifier
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.report.measure import figure as plots
from isthmus.verbs.measure import MeasureRequest, measure

DATA = toys.dataset("test", 12, 0)


def changed(data=DATA):
    """Every text with another last word."""
    texts = [{"text": example.texts["text"].rsplit(" ", 1)[0] + " stale"} for example in data]
    return dataclasses.replace(
        data, examples=tuple(dataclasses.replace(e, fields=t) for e, t in zip(data.examples, texts, strict=True))
    )


def subject(model, adversarial, benign=DATA, name="toy", **asked):
    made = Subject(name, lambda: model, asked=Asked(**asked))
    made.adversarial = lambda _: AdversarialTexts("pwws", adversarial, benign)
    return made


def of(measurement, name, vector="sentence", run=0):
    return np.array(measurement.details["runs"][run][name][vector])[:, 0]


def test_the_same_texts_are_nowhere_apart():
    found = LatentDistance().measure(subject(toys.classifier(), DATA))
    for vector in ("sentence", "tokens"):
        assert of(found, "distance", vector).tolist() == [0, 0, 0]
        assert of(found, "cosine", vector) == pytest.approx(1)
        assert (of(found, "other_distance", vector)[1:] > 0).all()
    # At the embedding block [CLS] is the same in every text.
    assert of(found, "other_distance", "sentence")[0] == pytest.approx(0, abs=1e-6)


def test_it_is_the_distance_of_the_states():
    model, pairs = toys.classifier(), changed()
    found = LatentDistance().measure(subject(model, pairs, n=12))

    def states(data, row):
        with torch.no_grad():
            hidden = model(**model.encode([data[row].texts]), hidden=True).hidden
        return [layer[0] for layer in hidden]

    first, mean, cosine = np.zeros(3), np.zeros(3), np.zeros(3)
    for row in range(12):
        for layer, (a, b) in enumerate(zip(states(DATA, row), states(pairs, row), strict=True)):
            first[layer] += float((a[0] - b[0]).norm()) / 12
            mean[layer] += float((a.mean(0) - b.mean(0)).norm() / a.mean(0).norm()) / 12
            cosine[layer] += float(torch.cosine_similarity(a[0], b[0], dim=0)) / 12
    assert of(found, "distance") == pytest.approx(first, abs=1e-5)
    assert of(found, "relative", "tokens") == pytest.approx(mean, rel=1e-4)
    assert of(found, "cosine") == pytest.approx(cosine, abs=1e-5)
    last = found.figure("distance, last layer, sentence vector")
    assert last.low <= last.estimate == pytest.approx(first[-1], abs=1e-5)
    share = found.figure("distance as a share of that to another text, sentence vector")
    assert share.estimate == pytest.approx(first[-1] / of(found, "other_distance")[-1], rel=1e-4)


@pytest.mark.parametrize("backbone", ["lstm", "cnn"])
def test_layers_may_differ_in_width(backbone):
    texts = [example.texts["text"] for example in (*DATA, *changed())]
    options = {"vectors": None, "width": 8, "hidden": 6}
    model = Classifier.create(backbone, DATA.labels, texts=texts, options=options).eval()
    found = LatentDistance().measure(subject(model, changed(), n=12))

    def means(data, row):
        with torch.no_grad():
            return [layer[0].mean(0) for layer in model(**model.encode([data[row].texts]), hidden=True).hidden]

    pairs = [list(zip(means(DATA, row), means(changed(), row), strict=True)) for row in range(12)]
    assert len({a.shape for a, _ in pairs[0]}) > 1
    expected = np.mean([[float((a - b).norm()) for a, b in pair] for pair in pairs], axis=0)
    cosines = np.mean([[float(torch.cosine_similarity(a, b, dim=0)) for a, b in pair] for pair in pairs], axis=0)
    for vector in ("sentence", "tokens"):  # there is no [CLS]
        assert of(found, "distance", vector) == pytest.approx(expected, abs=1e-5)
        assert of(found, "cosine", vector) == pytest.approx(cosines, abs=1e-5)


def test_other_texts_are_other_texts():
    """Pairs of two texts, each changed into the other: as far apart as random other texts, to the last bit."""
    two = dataclasses.replace(DATA, examples=DATA.examples[:2])
    crossed = dataclasses.replace(DATA, examples=DATA.examples[1::-1])
    found = LatentDistance().measure(subject(toys.classifier(), crossed, two))
    assert of(found, "distance").tolist() == of(found, "other_distance").tolist()
    share = found.figure("distance as a share of that to another text, mean over tokens")
    assert share.estimate == pytest.approx(1)


def test_noise_is_shared_unless_told_otherwise():
    model = toys.classifier()
    model.fill(noise=GaussianNoise(0.5, (0,)))
    assert of(LatentDistance().measure(subject(model, DATA)), "distance").tolist() == [0, 0, 0]
    apart = of(LatentDistance(same_draws=False).measure(subject(model, DATA)), "distance")
    assert apart[0] == 0
    assert (apart[1:] > 0).all()
    again = of(LatentDistance(same_draws=False).measure(subject(model, DATA)), "distance")
    assert apart.tolist() == again.tolist()


def test_one_pair_has_nothing_to_be_compared_with():
    one = dataclasses.replace(DATA, examples=DATA.examples[:1])
    found = LatentDistance().measure(subject(toys.classifier(), changed(one), one))
    assert "other_distance" not in found.details["runs"][0]
    assert [series.reference for series in found.plots[0].series] == [False]
    assert any("no other text" in note for note in found.notes)


def test_runs_are_drawn_over_each_other(tmp_path):
    first = subject(toys.classifier(0), changed(), name="standard")
    first.others = (subject(toys.classifier(1), changed(), name="defended"),)
    found = LatentDistance().measure(first)
    assert len(found.plots) == 4
    names = ["standard", "defended", "standard: another text", "defended: another text"]
    for plot in found.plots:
        assert [series.name for series in plot.series] == names
        assert plot.series[0].x == (0.0, 1.0, 2.0)
        assert all(low <= y <= high for s in plot.series for y, (low, high) in zip(s.y, s.y_bounds, strict=True))
    assert plots.save(found.plots[0], tmp_path / "figure")[1].stat().st_size > 1000


def test_what_cannot_be_compared():
    model = toys.classifier()
    with pytest.raises(UsageError, match="does not say which texts"):
        LatentDistance().measure(subject(model, changed(), None))
    model.task = QuestionAnswering()
    with pytest.raises(UsageError, match="task is qa"):
        LatentDistance().measure(subject(model, changed()))


def test_pairs_come_from_an_attack_of_the_run_or_from_a_file(tmp_path):
    run = measure_toys.toy_run(tmp_path)
    measure_toys.add_attack(run)
    request = MeasureRequest((str(run.path),), ("latent_distance",), asked=Asked(n=8), device="cpu")
    (found,) = measure(request)
    assert found.measurement.details["runs"][0]["attack"] == "pwws"
    assert measure(request)[0].was_there
    rows = [
        {"text": b.texts["text"], "label": ("bad", "good")[int(a.label)], "original_text": a.texts["text"]}
        for a, b in zip(DATA, changed(), strict=True)
    ]
    path = tmp_path / "adversarial.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (by_file,) = measure(dataclasses.replace(request, parameters={"attack": str(path)}))
    assert by_file.measurement.details["runs"][0]["pairs"] == 8
    path.write_text("".join(json.dumps({"text": row["text"], "label": row["label"]}) + "\n" for row in rows))
    with pytest.raises(UsageError, match="does not say which texts"):
        measure(dataclasses.replace(request, parameters={"attack": str(path)}, asked=Asked(n=7)))
