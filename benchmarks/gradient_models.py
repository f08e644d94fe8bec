"""Two small networks for MNIST, and what both sides of `gradient_attacks.py` are given. Needs torch and numpy alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

NAMES = ("mlp", "cnn")


def network(name: str) -> nn.Module:
    """784-512-256-10, or two convolutions of 5 x 5 with pooling and a layer of 64."""
    if name == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def load(name: str, folder: Path) -> nn.Module:
    """The trained network, ready to be attacked."""
    model = network(name)
    model.load_state_dict(torch.load(folder / f"{name}.pt", weights_only=True))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model.eval()


def images(data: Path, split: str, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Pixels from 0 to 1 [n, 1, 28, 28], and labels."""
    with np.load(data / f"{split}.npz") as found:
        pixels = torch.from_numpy(found["images"][:limit]).float().div(255).unsqueeze(1)
        return pixels, torch.from_numpy(found["labels"][:limit].astype(np.int64))


def train(name: str, data: Path, folder: Path, epochs: int, limit: int) -> None:
    """Plain training on the first `limit` images, once; Adam, batches of 128."""
    if (folder / f"{name}.pt").exists():
        return
    torch.manual_seed(0)
    model = network(name)
    pixels, labels = images(data, "train", limit)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(pixels)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(pixels[rows]), labels[rows]).backward()
            optimiser.step()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / f"{name}.pt")


def timed(work: Callable[[], Any], times: int = 1) -> tuple[Any, float]:
    """What it returns, and the processor seconds of this process; of several times the shortest."""
    shortest = float("inf")
    for _ in range(times):
        began = time.process_time()
        found = work()
        shortest = min(shortest, time.process_time() - began)
    return found, shortest


# Equal settings for all sides: start, steps, step size, c.
CASES: dict[str, dict[str, Any]] = {
    "fgsm": {"epsilon": 0.1},
    "bim": {"epsilon": 0.1, "steps": 20, "step_size": 0.01},
    "pgd": {"epsilon": 0.1, "steps": 40, "step_size": 0.01},
    "pgd_l2": {"epsilon": 1.5, "steps": 40, "step_size": 0.1},
    "deepfool": {"steps": 50, "overshoot": 0.02},
    "cw": {"c": 1.0, "steps": 100, "learning_rate": 0.05},
    "cw_search": {"c": 1.0, "searches": 4, "steps": 100, "learning_rate": 0.05, "abort_early": False},
}
TIMED = ("pgd", "deepfool", "cw")
