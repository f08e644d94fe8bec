"""A batch, and the gradients that a defence leaves behind."""

from __future__ import annotations

from typing import Any

import torch
import training_toys as toys
from torch import Tensor

from isthmus.defences import Batch, Defence


def batch_of(model: Any, size: int = 6) -> Batch:
    data = toys.dataset("train", size, 0)
    inputs = model.encode([example.texts for example in data])
    return Batch(inputs, torch.tensor([example.label for example in data]), seed=5)


def gradients(defence: Defence, model: Any, batch: Batch, seed: int = 3) -> dict[str, Tensor]:
    """Gradients of all parameters after the generator was walked."""
    model.zero_grad()
    torch.manual_seed(seed)
    for terms in defence.losses(model, batch):
        terms.total().backward(retain_graph=terms.retain_graph)
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def close(a: dict[str, Tensor], b: dict[str, Tensor], tolerance: float = 1e-6) -> bool:
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=tolerance, rtol=1e-5) for name in a)
