import os
import socket
import subprocess
import sys

import pytest
import several_processes
import training_toys as toys

from isthmus.models import load_model


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two processes over gloo, on the CPU."""
    root = tmp_path_factory.mktemp("together")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, several_processes.__file__, str(root)]
    processes = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return root


@pytest.mark.parametrize(
    ("name", "defence"), [("ascent", toys.Ascent(steps=3, size=0.5, start=0.0)), ("examples", toys.FreshWords())]
)
def test_two_processes_train_to_the_weights_of_one(name, defence, together, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.training.fit.make_optimizer", toys.plain_descent)
    alone = several_processes.run(tmp_path, several_processes.ALONE, defence)
    both = load_model(together / name / "model")
    assert toys.largest_difference(toys.weights(alone), toys.weights(both)) < 1e-6
    assert toys.largest_difference(toys.weights(alone), toys.weights(toys.classifier())) > 1e-2
    rows, expected = toys.rows(together / name), toys.rows(tmp_path)
    assert [row.keys() for row in rows] == [row.keys() for row in expected]
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-6)
    assert not (together / name / "checkpoints").exists()
