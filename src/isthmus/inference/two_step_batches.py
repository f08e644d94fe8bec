"""Rows for two-step inference: draws of each, a choice of them, and batches of similar lengths merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isthmus.arithmetic.randomness import mix64
from isthmus.arithmetic.transfer import Inputs, index_tensor, pick_rows
from isthmus.core.types import Ints

_WASTE = 1.25
"""Padded tokens for each that is needed, up to which texts of several lengths share a second step on a GPU."""


def repeat_draws(inputs: Inputs, draws: int) -> Inputs:
    """Repeat every row, each copy with its own key."""
    if draws == 1:
        return inputs
    assert inputs.keys is not None
    rows = torch.arange(inputs.rows * draws, device=inputs.ids.device)
    keys = mix64(inputs.keys[: inputs.rows].view(-1, 1) + torch.arange(draws, device=inputs.keys.device)).view(-1)
    return pick_rows(inputs, rows // draws)._replace(keys=keys)


def merge_batches(parts: Sequence[tuple[Ints, Inputs]], pad: int) -> list[tuple[Ints, Inputs]]:
    """Merge the rows of several batches, with the places of their answers, into few batches with little padding."""
    found, group = list[tuple[Ints, Inputs]](), list[tuple[Ints, Inputs]]()
    for places, inputs in sorted(parts, key=lambda part: part[1].ids.shape[1]):
        if inputs.embeddings is not None:
            found.append((places, inputs))
            continue
        trial = [*group, (places, inputs)]
        needed = sum(each.ids.numel() for _, each in trial)
        if group and sum(len(each.ids) for _, each in trial) * inputs.ids.shape[1] > _WASTE * needed:
            found.append(_make_one(group, pad))
            trial = [(places, inputs)]
        group = trial
    return [*found, _make_one(group, pad)] if group else found


def _make_one(group: Sequence[tuple[Ints, Inputs]], pad: int) -> tuple[Ints, Inputs]:
    """Merge batches into one, padded on the right."""
    if len(group) == 1:
        return group[0]
    parts = [inputs for _, inputs in group]
    length = max(inputs.ids.shape[1] for inputs in parts)

    def padded(values: Sequence[Tensor], fill: int) -> Tensor:
        pad_ = torch.nn.functional.pad
        return torch.cat([pad_(value, (0, length - value.shape[1]), value=fill) for value in values])

    masks = [torch.ones_like(inputs.ids) if inputs.mask is None else inputs.mask for inputs in parts]
    types = None
    if any(inputs.types is not None for inputs in parts):
        types = padded([torch.zeros_like(each.ids) if each.types is None else each.types for each in parts], 0)
    keys = [inputs.keys for inputs in parts if inputs.keys is not None]
    rows = padded([inputs.ids for inputs in parts], pad)
    together = Inputs(sum(inputs.rows for inputs in parts), rows, padded(masks, 0), types, torch.cat(keys))
    return np.concatenate([places for places, _ in group]), together


def take_rows(inputs: Inputs, rows: np.ndarray[Any, Any]) -> Inputs:
    """Select rows, on the device they are on."""
    return pick_rows(inputs, index_tensor(rows.astype(np.int64), inputs.ids.device))
