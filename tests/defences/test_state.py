"""What a step leaves behind: random streams, and everything that a training must be continued with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import training_toys as toys
from defence_toys import batch_of, gradients

from isthmus import defences
from isthmus.arithmetic.randomness import Stream
from isthmus.defences import Defence
from isthmus.training import TrainingSettings, train

SEVERAL_PASSES: dict[str, Defence] = {
    "freelb": defences.FreeLB(),
    "pgd": defences.PGD(clean=0.5),
    "smart": defences.SMART(steps=2),
    "alum": defences.ALUM(),
    "infobert": defences.InfoBERT(),
    "infobert-paper-freelb": defences.InfoBERT(mode="paper", adversary="freelb"),
    "infobert-auxiliary-pgd": defences.InfoBERT(p_t_given_x="auxiliary", adversary="pgd"),
    "vub-freelb": defences.VUB(adversary="freelb"),
    "vib-pgd": defences.VIB(adversary="pgd"),
}


@pytest.mark.parametrize("name", SEVERAL_PASSES)
def test_a_step_leaves_the_streams_where_one_pass_leaves_them(name: str) -> None:
    """So that dropout in later steps does not depend on how many passes earlier ones took."""
    defence = SEVERAL_PASSES[name]
    model = toys.classifier(dropout=0.3).train()
    defence.prepare(model, toys.dataset("train", 8, 0))
    batch = batch_of(model)
    streams = [module for module in model.modules() if isinstance(module, Stream)]
    torch.manual_seed(3)
    model(**batch.inputs)
    state, counts = torch.get_rng_state(), [stream.count for stream in streams]
    for stream in streams:
        stream.count = 0
    gradients(defence, model, batch, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert [stream.count for stream in streams] == counts


class Stops:
    def on_step(self, step: int, total: int, metrics: dict[str, float]) -> None:
        if step == 6:
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["smart", "infobert-auxiliary-pgd", "vub-freelb"])
def test_an_interrupted_training_continues_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """Teacher, critic, fitted density and the count of draws are in the checkpoint."""
    settings = TrainingSettings(
        precision="fp32", epochs=2, batch_size=8, learning_rate=1e-2, log_every=1, checkpoint_every=5
    )

    def trained(folder: Path, progress: Any = None) -> dict[str, torch.Tensor]:
        data, defence = toys.splits(32, 8), SEVERAL_PASSES[name]
        options: dict[str, Any] = {"settings": settings, "progress": progress, "device": "cpu"}
        return toys.weights(train(data, toys.classifier(), defence, folder=folder, **options))

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "stopped", Stops())
    assert (tmp_path / "stopped" / "checkpoints" / "epoch-0" / "checkpoint-5").is_dir()
    continued, whole = trained(tmp_path / "stopped"), trained(tmp_path / "whole")
    assert toys.same_bits(continued, whole)
    assert toys.rows(tmp_path / "stopped") == toys.rows(tmp_path / "whole")
