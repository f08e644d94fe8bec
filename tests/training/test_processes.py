import pytest
import training_toys as toys
from children import ALONE, SHARED_DEFENCES, descend

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
        assert row == pytest.approx(other, rel=1e-4, abs=1e-6)
    assert not (together / "checkpoints").exists()
