import json

import pytest
import training_toys as toys
from children import ALONE, BY_PROCESS, NEAR, SHARED_DEFENCES, InHalves, descend

from isthmus.models import load_model


@pytest.mark.parametrize("name", SHARED_DEFENCES)
def test_two_processes_train_to_the_weights_of_one(name, children, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    alone = descend(tmp_path, ALONE, SHARED_DEFENCES[name])
    together = children / "together" / name
    both = load_model(together / "model")
    assert toys.largest_difference(toys.weights(alone), toys.weights(both)) < 1e-6
    assert toys.largest_difference(toys.weights(alone), toys.weights(toys.classifier())) > 1e-2
    rows, expected = toys.rows(together), toys.rows(tmp_path)
    assert [row.keys() for row in rows] == [row.keys() for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert toys.flat(row) == pytest.approx(toys.flat(other), rel=1e-4, abs=1e-6)
    assert not (together / "checkpoints").exists()


@pytest.mark.parametrize("name", BY_PROCESS)
def test_two_processes_take_the_mean_of_what_each_half_has_by_itself(name, children, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    halved = InHalves(BY_PROCESS[name])
    alone = toys.weights(descend(tmp_path, ALONE, halved))
    assert halved.taken == [8] * 8
    both = toys.weights(load_model(children / "together" / name / "model"))
    assert alone.keys() >= both.keys()
    assert toys.largest_difference(both, alone) < 1e-5
    rows, expected = (
        [row for row in toys.rows(folder) if "gradient_shares" not in row]
        for folder in (children / "together" / name, tmp_path)
    )
    for row, other in zip(rows, expected, strict=True):
        assert toys.flat(row) == pytest.approx(toys.flat(other), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", NEAR)
def test_a_step_in_bf16_is_close_to_one_in_fp32(name, children):
    found = json.loads((children / "bf16" / "gradients.json").read_text())[name]
    assert found["cosine"] > 0.97
    assert found["length"] == pytest.approx(1, abs=0.1)
