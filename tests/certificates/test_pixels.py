"""Cohen's certificate on pixels: closed forms of a linear classifier, and what is held against it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isthmus.certificates import Gaussian, Synonym
from isthmus.core.errors import UsageError
from isthmus.core.types import Example, ImageClassification
from isthmus.models import ImageClassifier, wrap
from isthmus.models.gaussian_noise import GaussianNoise
from isthmus.models.image_backbones import FeatureBackbone

SHAPE = (12,)


def linear() -> tuple[ImageClassifier, torch.Tensor]:
    """Two classes apart by a plane through 0, and the normal of it."""
    model = ImageClassifier(FeatureBackbone(SHAPE), ImageClassification(("a", "b"), ("features",), SHAPE))
    normal = torch.linspace(-1, 1, 12)
    with torch.no_grad():
        model.head.weight.copy_(torch.stack([-normal, normal]))
        model.head.bias.zero_()
    return model.eval(), normal / normal.norm()


def examples(normal: torch.Tensor, distances: list[float]) -> list[Example]:
    aside = torch.ones(12) / 12  # Along the plane.
    return [Example(str(n), {"features": (d * normal + aside).numpy()}, 1) for n, d in enumerate(distances)]


def test_the_radius_of_a_linear_classifier_is_its_distance():
    model, normal = linear()
    distances = [0.1, 0.25, 0.4]
    found = list(Gaussian(sigma=0.25, n=20_000)(model, examples(normal, distances)))
    for result, distance in zip(found, distances, strict=True):
        assert result.outcome == "certified"
        assert 0.85 * distance < result.strength <= distance  # A bound from below, near the truth.


def test_noise_of_the_model_itself_adds_to_that_of_the_certificate():
    model, normal = linear()
    model.fill(noise=GaussianNoise(0.3, [-1]))
    (found,) = Gaussian(sigma=0.4, n=20_000)(model, examples(normal, [0.5]))
    assert 0.9 * 0.5 < found.strength <= 0.5


def test_results_do_not_depend_on_the_other_images():
    model, normal = linear()
    chosen = examples(normal, [-0.01, 0.2, 0.3, 0.05, 0.6])
    method = Gaussian(sigma=0.2, n=200, n0=30)
    together = [result.to_row() for result in method(model, chosen)]
    alone = [result.to_row() for one in chosen for result in method(model, [one])]
    assert together == alone
    assert together[0]["outcome"] in ("abstained", "wrong")
    other = [result.to_row() for result in method(model, chosen, seed=1)]
    assert [row["votes"] for row in other] != [row["votes"] for row in together]


def test_what_is_about_words_is_refused():
    model, normal = linear()
    with pytest.raises(UsageError, match="about words"):
        list(Synonym()(model, examples(normal, [0.1])))
    with pytest.raises(UsageError, match="are about texts: leave them out"):
        Gaussian(pgd=3)(model, examples(normal, [0.1]))


def test_from_the_command_line_with_attacks_held_against_it(tmp_path: Path, capsys: Any) -> None:
    from isthmus.cli.app import run

    generator, labels = np.random.default_rng(0), np.arange(80) % 2
    images = generator.uniform(0, 0.3, (80, 4, 4))
    images[np.arange(80), 2 * labels] += 0.4
    np.savez(tmp_path / "data.npz", x_train=images, y_train=labels, x_test=images[:30], y_test=labels[:30])
    given = ["--data", str(tmp_path / "data.npz"), "--backbone", "mlp", "--epochs", "6", "-q"]
    folder = str(tmp_path / "run")
    assert run(["train", *given, "--defence", "gaussian_noise", "-P", "sigma=0.1", "--out", folder]) == 0
    assert run(["attack", folder, "--attack", "fgsm", "-P", "epsilon=0.3", "--n", "30", "-q"]) == 0
    command = ["certify", folder, "--certificate", "gaussian", "-P", "sigma=0.1", "-P", "n=100", "--n", "20", "-q"]
    assert run(command) == 0
    rows = [json.loads(line) for line in (tmp_path / "run/certificates/gaussian.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    assert any(row["strength"] for row in rows)
    header = json.loads((tmp_path / "run/certificates/gaussian.json").read_text())
    assert "on the pixels" in header["statement"]["classifier"]
    challenges = (tmp_path / "run/certificates/gaussian.challenges.jsonl").read_text().splitlines()
    moved = {str(each) for each in np.load(tmp_path / "run/attacks/fgsm.npz")["ids"]}
    assert {json.loads(line)["example"] for line in challenges} <= moved
    for line in challenges:
        row = json.loads(line)
        assert "perturbed" not in row
        assert row["needs"] > 0.3
    before = (tmp_path / "run/certificates/gaussian.jsonl").read_bytes()
    assert run(command) == 0
    assert (tmp_path / "run/certificates/gaussian.jsonl").read_bytes() == before
    capsys.readouterr()
    assert run(["certify", folder, "--certificate", "synonym"]) == 2
    assert "holds images" in " ".join(capsys.readouterr().err.split())
    assert wrap(linear()[0]).labels == ("a", "b")
