"""Accuracy against the radius of a ball around the embeddings: closed forms, laws, and what is shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import certify_toys
import measure_toys
import numpy as np
import pytest
import torch
import training_toys as toys

from isthmus.core.errors import UsageError
from isthmus.core.statistics import wilson
from isthmus.core.types import Example, QuestionAnswering
from isthmus.data import Dataset, Splits
from isthmus.inference.two_step import TwoStep
from isthmus.measures import EmbeddingPGD, Subject
from isthmus.measures.base import Asked
from isthmus.models import ClassifierVictim, wrap
from isthmus.models.gaussian_noise import EMBEDDINGS, GaussianNoise


def linear():
    """A linear model, and texts labelled as it answers but for the last."""
    model = certify_toys.linear()
    sides = [certify_toys.distance(model, text) for text in certify_toys.TEXTS]
    labels = [int(side > 0) ^ (number == len(sides) - 1) for number, side in enumerate(sides)]
    examples = tuple(
        Example(f"test:{number}", {"text": text}, label)
        for number, (text, label) in enumerate(zip(certify_toys.TEXTS, labels, strict=True))
    )
    return model, Splits("toy", {"test": Dataset("toy", "test", certify_toys.TASK, examples)}), np.abs(sides[:-1])


def as_answered(model, data):
    """The texts with the model's own answers as labels."""
    answers = ClassifierVictim(model).scores(data.texts()).argmax(axis=1)
    examples = tuple(
        dataclasses.replace(each, label=int(label)) for each, label in zip(data.examples, answers, strict=True)
    )
    return Splits("toy", {"test": dataclasses.replace(data, examples=examples)})


def trained():
    """A tiny encoder whose answers are the labels."""
    model = toys.classifier(dropout=0.0)
    return model, as_answered(model, toys.dataset("test", 16, 0))


def test_a_linear_model_loses_a_text_as_soon_as_the_radius_exceeds_its_distance():
    model, data, distances = linear()
    radii = tuple(sorted(float(d * share) for d in distances for share in (0.999, 1.001)))
    found = EmbeddingPGD(radii=radii, restarts=1)(model, data)
    n = len(distances) + 1
    for radius in radii:
        expected = wilson(int((distances > radius).sum()), n)
        figure = found.figure(f"radius {radius:g}")
        assert (figure.estimate, figure.low, figure.high) == (expected.estimate, expected.low, expected.high)
    assert found.figure("clean accuracy").estimate == (n - 1) / n
    series, random = found.plots[0].series
    assert series.x == (0.0, *radii)
    assert list(series.y) == sorted(series.y, reverse=True)
    assert series.y[-1] == 0
    assert random.reference
    assert all(r >= s for r, s in zip(random.y, series.y, strict=True))
    assert found.notes == ()


def test_texts_of_every_length_keep_their_places():
    model, data = trained()
    found = EmbeddingPGD(radii=(0.5, 2.0), steps=4, restarts=1)(model, data)
    run = found.details["runs"][0]
    whole = dict(zip(run["ids"], run["right"], strict=True))
    assert all(shares[0] for shares in whole.values())
    assert 0 < np.array(run["right"])[:, 1:].mean() < 1
    for example in data["test"]:
        alone = Splits("toy", {"test": dataclasses.replace(data["test"], examples=(example,))})
        single = EmbeddingPGD(radii=(0.5, 2.0), steps=4, restarts=1)(model, alone)
        assert single.details["runs"][0]["right"][0] == whole[example.id]


def noisy(model, masking="gradient"):
    model.fill(noise=GaussianNoise(0.3, [EMBEDDINGS, 0]))
    model.deployment = TwoStep(masked=1, masking=masking, k0=3, k1=4)
    return model


@pytest.mark.parametrize("masking", ["gradient", "random"])
def test_a_randomised_defence_is_attacked_as_a_whole_and_judged_on_fresh_draws(masking):
    _, data = trained()
    few = Splits("toy", {"test": dataclasses.replace(data["test"], examples=data["test"].examples[:6])})
    settings = EmbeddingPGD(radii=(0.3, 3.0), steps=3, restarts=1, draws=4, fresh=10)
    found, again = (settings(noisy(trained()[0], masking), few) for _ in range(2))
    assert found.to_json() == again.to_json()
    shares = np.array(found.details["runs"][0]["right"])
    assert {round(float(share) * 10, 6) % 1 for share in shares.ravel()} == {0.0}, "shares of ten draws"
    assert ((shares > 0) & (shares < 1)).any()
    assert "averaged over 4 draws, and 10 others judge" in found.notes[0]
    assert found.figure("radius 3").estimate < found.figure("clean accuracy").estimate
    other = settings(noisy(trained()[0], masking), few, seed=1)
    assert other.details != found.details


def test_a_model_without_a_gradient_is_not_taken_for_a_robust_one():
    class Steps(torch.nn.Module):
        """Answers by a threshold, which has no slope."""

        def forward(self, pooled):
            side = (pooled[:, :1] > 0).float() + 0.0 * pooled[:, :1]
            return torch.cat([1 - side, side], dim=1)

    model, data, _ = linear()
    model.head = Steps()
    found = EmbeddingPGD(radii=(1e-3,), restarts=1)(model, as_answered(model, data["test"]))
    assert found.figure("radius 0.001").estimate == 1.0
    assert found.notes[0].startswith("model has no gradient at 6 of the 6 texts")


def test_a_gradient_that_points_the_wrong_way_is_told_apart_by_random_directions():
    class Trap(torch.autograd.Function):
        """Passes on what it reads, and a gradient that leads away from the boundary."""

        @staticmethod
        def forward(ctx, given):
            return given

        @staticmethod
        def backward(ctx, slope):
            return -slope

    class Head(torch.nn.Linear):
        def forward(self, pooled):
            return super().forward(Trap.apply(pooled))

    model, _, _ = linear()
    head = Head(3, 2)
    head.load_state_dict(model.head.state_dict())
    model.head = head
    texts = [f"{a} {b} {c}" for a in certify_toys.WORDS[:6] for b in certify_toys.WORDS for c in ("very", "plot")]
    sides = [certify_toys.distance(model, text) for text in texts]
    examples = tuple(
        Example(f"test:{number}", {"text": text}, int(side > 0))
        for number, (text, side) in enumerate(zip(texts, sides, strict=True))
    )
    data = Splits("toy", {"test": Dataset("toy", "test", certify_toys.TASK, examples)})
    found = EmbeddingPGD(radii=(20.0,), restarts=1)(model, data)
    assert found.figure("radius 20").estimate == 1.0
    assert found.figure("radius 20, random direction").estimate < 0.9
    assert any("random directions turn more texts than the gradient" in note for note in found.notes)


def test_radii_are_chosen_by_the_length_of_embeddings_unless_given():
    model, data = trained()
    scaled, _ = trained()
    found = EmbeddingPGD(steps=2, restarts=1)(model, data, n=2).details["runs"][0]["radii"]
    with torch.no_grad():
        scaled.table.weight.mul_(10)
    larger = EmbeddingPGD(steps=2, restarts=1)(scaled, data, n=2).details["runs"][0]["radii"]
    assert larger == pytest.approx([10 * radius for radius in found], rel=0.05)
    assert found == sorted(found)


def test_a_normaliser_reads_before_there_are_embeddings():
    from isthmus.defences import Normalise

    model = certify_toys.network("cnn")
    texts = ("the f\u200bilm was fine", "the film was fine")
    examples = tuple(Example(f"test:{number}", {"text": text}, number) for number, text in enumerate(texts))
    data = Dataset("toy", "test", certify_toys.TASK, examples)
    Normalise().prepare(model, data)
    assert type(wrap(model)).__name__ == "NormalisedVictim"
    run = EmbeddingPGD(radii=(0.1,), steps=2)(model, Splits("toy", {"test": data})).details["runs"][0]
    assert sorted(shares[0] for shares in run["right"]) == [0.0, 1.0], "one text to the model, and two labels"


def test_a_vote_over_synonyms_has_no_ball(tmp_path):
    from isthmus.defences import SAFER

    _, data, _ = linear()
    model = certify_toys.network("cnn")
    certify_toys.table().write(tmp_path / "table.json")
    SAFER(table=str(tmp_path / "table.json"), draws=3).prepare(model, ())
    with pytest.raises(UsageError, match="no ball to attack"):
        EmbeddingPGD(radii=(0.1,))(model, data)


def test_questions_are_refused():
    model = toys.classifier()
    model.task = QuestionAnswering()
    with pytest.raises(UsageError, match="attacks classifiers"):
        EmbeddingPGD().measure(Subject("toy", lambda: model, asked=Asked()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"radii": ()}, "positive"), ({"radii": (0.1, -1.0)}, "positive"), ({"radii": (np.nan,)}, "positive"),
     ({"steps": 0}, "steps"), ({"step": 0.01}, "at least 0.1"), ({"restarts": 0}, "restarts"), ({"draws": 0}, "draws"),
     ({"fresh": 0}, "fresh"), ({"tokens": "none"}, "tokens")],
    ids=["no radii", "negative", "nan", "steps", "step", "restarts", "draws", "fresh", "tokens"],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        EmbeddingPGD(**settings)


def test_the_command_compares_runs_in_one_figure_and_reads_them_again(tmp_path, capsys):
    from isthmus.cli.app import run

    measure_toys.toy_run(tmp_path, "one")
    measure_toys.toy_run(tmp_path, "two", seed=1)
    request = ("measure", str(tmp_path / "one"), str(tmp_path / "two"), "--measure", "embedding_pgd", "--n", "12", "-P",
               "radii=0.2,0.8,3", "-P", "steps=4", "-P", "restarts=1", "--device", "cpu", "-q")  # fmt: skip
    assert run([*request, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out.strip().splitlines()[-1])["measurements"]
    assert [series["name"] for series in found["plots"][0]["series"]] == [
        "one", "two", "one: random direction", "two: random direction"
    ]  # fmt: skip
    assert {Path(path).suffix for path in found["files"]} == {".svg", ".png"}
    assert run(list(request)) == 0
    shown = capsys.readouterr().out
    assert "radius 0.8" in shown
    assert "measured before" in shown
    from isthmus.report.page import render
    from isthmus.report.view import read_run
    from isthmus.runs.folder import RunFolder

    page = render(read_run(RunFolder(tmp_path / "one")))
    assert "Accuracy under ascent on the embeddings" in page
