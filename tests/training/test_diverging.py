"""A loss that stops being a number: training stops, says which term and step, and loses nothing learnt before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys
from safetensors.torch import load_file

from isthmus import defences
from isthmus.core.errors import TrainingError
from isthmus.training import TrainingSettings, train

SETTINGS = TrainingSettings(
    precision="fp32", epochs=3, batch_size=8, learning_rate=1e-2, warmup=0.0, log_every=1, checkpoint_every=2
)
DRIVERS = {"trainer": SETTINGS, "resident": replace(SETTINGS, trains="head")}


def trained(settings: TrainingSettings, defence: Any, folder: Path | None, progress: Any = None) -> Any:
    data = toys.splits(32, 8)
    model = toys.classifier(dropout=0.0)
    return train(data, model, defence, settings=settings, folder=folder, progress=progress, device="cpu")


class Breaks(toys.Recorder):
    """Makes a weight infinite after some step, as an update that overflowed would."""

    def __init__(self, step: int, model: list[Any]) -> None:
        super().__init__()
        self.step, self.model = step, model

    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        super().on_step(step, total, metrics)
        if step == self.step:
            with torch.no_grad():
                self.model[0].head.weight[0, 0] = torch.inf


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_last_good_checkpoint_is_kept_and_the_same_command_goes_on_from_it(
    driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[Any] = []
    make = toys.classifier

    def keep(**sizes: Any) -> Any:
        models.append(make(**sizes))
        return models[-1]

    monkeypatch.setattr(toys, "classifier", keep)
    defence, settings = defences.VUB(beta=1e-2), DRIVERS[driver]
    with pytest.raises(TrainingError, match="cross_entropy became nan at step 8") as caught:
        trained(settings, defence, tmp_path, Breaks(7, models))
    stage = tmp_path / "checkpoints" / "epoch-0"
    assert str(stage / "checkpoint-6") in str(caught.value)
    assert "until step 6" in str(caught.value)
    assert sorted(path.name for path in stage.iterdir()) == ["checkpoint-4", "checkpoint-6"]
    kept = load_file(stage / "checkpoint-6" / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in kept.values())
    assert max(row["step"] for row in toys.rows(tmp_path)) == 7
    # The cause is gone, so that the same command ends where an undisturbed training ends.
    models.clear()
    progress = toys.Recorder()
    continued = trained(settings, defence, tmp_path, progress)
    assert progress.calls[0][0] == 7
    whole = trained(settings, defence, None)
    assert toys.same_bits(toys.weights(continued), toys.weights(whole))
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_training_that_always_breaks_says_so_again(driver: str, tmp_path: Path) -> None:
    settings = replace(DRIVERS[driver], learning_rate=1e30, checkpoint_every=1, max_grad_norm=0.0)
    said = []
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"became (nan|inf) at step \d+") as caught:
            trained(settings, defences.VIB(), tmp_path)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "is kept in" in said[0]


@pytest.mark.parametrize(
    ("defence", "term"),
    [
        (defences.InfoBERT(beta=3e38), "bottleneck"),
        (defences.VIB(beta=3e38), "rate"),
        (defences.InfoBERT(alpha=3e38, beta=0.0), "the gradient norm"),  # the term itself is less than one
    ],
    ids=["infobert-beta", "vib", "infobert-alpha"],
)
def test_the_term_is_named(defence: Any, term: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=rf"{term} became -?inf at step 1\. .*No checkpoint"):
        trained(SETTINGS, defence, tmp_path)
    with pytest.raises(TrainingError, match=rf"{term} became -?inf at step 1\. .*defence\.$"):
        trained(SETTINGS, defence, None)
