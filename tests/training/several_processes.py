"""One of several processes that train together; run as a script with a folder to write to."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import training_toys as toys

import isthmus.training.fit
from isthmus.training import TrainingSettings, train

TOGETHER = TrainingSettings(
    epochs=2, batch_size=4, learning_rate=0.3, log_every=1, checkpoint_every=3, group_by_length=False, patience=5
)
"""In two processes a step takes eight examples."""
ALONE = replace(TOGETHER, batch_size=8)


def run(folder: Path, settings: TrainingSettings, defence: object) -> torch.nn.Module:
    isthmus.training.fit.make_optimizer = toys.plain_descent
    data = toys.splits(32, 15)
    return train(data, toys.classifier(dropout=0.0), defence, settings=settings, folder=folder, device="cpu")


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    for name, defence in (("ascent", toys.Ascent(steps=3, size=0.5, start=0.0)), ("examples", toys.FreshWords())):
        model = run(root / name, TOGETHER, defence)
        reduced = [parameter.detach().clone() for parameter in model.parameters()]
        for parameter in reduced:
            torch.distributed.all_reduce(parameter, op=torch.distributed.ReduceOp.MAX)
        assert all(torch.equal(mine, most) for mine, most in zip(model.parameters(), reduced, strict=True))
    torch.distributed.destroy_process_group()
