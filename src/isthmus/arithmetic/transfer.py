"""Copies token batches to a model's device and numbers back, without waiting for a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from isthmus.arithmetic.machine import fewest_rows, full_float32
from isthmus.core.errors import VictimError
from isthmus.core.types import Floats, Pending, TokenBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Inputs(NamedTuple):
    """A token batch on the model's device."""

    rows: int  # without the rows that only fill up
    ids: Tensor
    mask: Tensor | None
    types: Tensor | None
    keys: Tensor | None
    embeddings: Tensor | None = None  # read in place of the table's rows for `ids`


@contextmanager
def any_shape() -> Iterator[None]:
    """Inside, cuDNN's attention (it plans again for every shape) and TF32 (it is not float32) are switched off."""
    enabled = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        with full_float32():
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled)


def attention_mask(model: PreTrainedModel, mask: Tensor | None) -> Tensor | None:
    """The attention mask, in its final form if the model's attention takes that, so that the host need not wait.

    A mask in its final form is taken as it is; a plain one is looked at first, which waits for the GPU.
    """
    if mask is None or not mask.is_cuda or not takes_final_masks(model):
        return mask
    return mask[:, None, None, :].bool().expand(-1, 1, mask.shape[1], -1)  # [batch, 1, length, length], no copy


def takes_final_masks(model: PreTrainedModel) -> bool:
    """Whether the model's attention takes a boolean mask [batch, 1, length, length] unchanged."""
    home = sys.modules[type(model.base_model).__module__]
    windows = hasattr(home, "create_bidirectional_sliding_window_mask")  # Its layers need masks of two kinds.
    return model.config._attn_implementation == "sdpa" and hasattr(home, "create_bidirectional_mask") and not windows


def on_device(batches: Sequence[TokenBatch], device: torch.device, model: nn.Module | None = None) -> list[Inputs]:
    """Copy batches to a device; on a CPU small batches are filled up to the size that keeps the bits of a large one.

    How far is known better where the model is.
    """
    if device.type == "cuda":
        return _through_pinned_memory(batches, device)
    least = fewest_rows(model) if device.type == "cpu" else 1
    return [
        Inputs(
            len(batch.ids),
            _tensor(batch.ids, least),
            *(None if array is None else _tensor(array, least) for array in (batch.mask, batch.types, batch.keys)),
        )
        for batch in batches
    ]


def _through_pinned_memory(batches: Sequence[TokenBatch], device: torch.device) -> list[Inputs]:
    """Copy everything in one transfer from pinned memory; many small ones would cost more than they move."""
    arrays = [(batch.ids, batch.mask, batch.types, batch.keys) for batch in batches]
    given = [array for group in arrays for array in group if array is not None]
    host = torch.empty(sum(array.size for array in given), dtype=torch.int64, pin_memory=True)
    view, start = host.numpy(), 0
    for array in given:
        view[start : start + array.size] = _view_as_signed(array).reshape(-1)
        start += array.size
    parts = iter(torch.split(host.to(device, non_blocking=True), [array.size for array in given]))
    return [
        Inputs(len(ids), next(parts).view(ids.shape), *(a if a is None else next(parts).view(a.shape) for a in others))
        for ids, *others in arrays
    ]


def index_tensor(array: NDArray[np.int64], device: torch.device, least: int = 1) -> Tensor:
    """Copy indices to a device, filled up to `least` of them, without waiting for a GPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(fill_up(array, least)))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def pick_rows(inputs: Inputs, rows: Tensor, least: int = 1) -> Inputs:
    """Select these rows of a batch; the last is repeated until there are enough."""
    count = len(rows)
    if count < least:
        rows = torch.cat([rows, rows[-1:].expand(least - count)])
    return Inputs(count, *(None if value is None else value[rows] for value in inputs[1:]))  # type: ignore[arg-type]


def copy_rows(inputs: Inputs, copies: int) -> Inputs:
    """Repeat every row, filler rows too, once for each of its copies; ``inputs.keys`` has a key for each copy."""
    if copies == 1:
        return inputs._replace(rows=len(inputs.ids))
    rows = torch.arange(len(inputs.ids) * copies, device=inputs.ids.device) // copies  # 0, 0, …, 1, 1, …
    return pick_rows(inputs._replace(keys=None), rows)._replace(keys=inputs.keys)


def make_failure(batches: int, error: Exception) -> VictimError:
    """Make the error that stopped a model; if memory ran out, torch's cached memory is freed first.

    The engine then tries again with fewer rows at a time.
    """
    if isinstance(error, torch.OutOfMemoryError) and torch.cuda.is_available():
        torch.cuda.empty_cache()
    return VictimError(f"the model failed on {batches} batches of token ids: {error}")


def _view_as_signed(array: NDArray[Any]) -> NDArray[np.int64]:
    return array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64, copy=False)


def _tensor(array: NDArray[Any], least: int) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(fill_up(_view_as_signed(array), least)))


def fill_up(array: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Repeat the last row until there are `least` rows."""
    if 0 < len(array) < least:
        return np.concatenate([array, np.repeat(array[-1:], least - len(array), axis=0)])
    return array


def pending(scores: Tensor) -> Pending:
    """Start copying numbers to the host; on a GPU the result waits for them."""
    if scores.device.type != "cuda":
        ready: Floats = scores.cpu().numpy()
        return lambda: ready
    host = torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
    host.copy_(scores, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def wait() -> Floats:
        done.synchronize()
        return host.numpy()

    return wait
