"""The limit: the rows an attack really sent, sorted by length, in full batches, forward pass only.

Nothing an attack engine does can be faster on the same model and processor: no tokenising, no candidates, no search,
and every row known before the first is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speed.record import Clock, Record, peak_memory_mb
from speed.victims import Sent

if TYPE_CHECKING:
    import torch

Rows = list[NDArray[np.int64]]
CPU_BATCHES = (16, 32, 64)
GPU_BATCHES = (512, 1024, 2048, 4096)


class Packed(NamedTuple):
    """One batch; the mask is None where no row is shorter than the others."""

    ids: torch.Tensor
    mask: torch.Tensor | None


def unpadded(sent: Sequence[Sent]) -> Rows:
    """The rows of all batches, without their padding."""
    return [row[:length] for batch in sent for row, length in zip(batch.ids, batch.lengths, strict=True)]


def save_rows(path: Path, sent: Sequence[Sent]) -> None:
    rows = unpadded(sent)
    lengths = np.array([len(row) for row in rows], dtype=np.int32)
    np.savez_compressed(path, tokens=np.concatenate(rows).astype(np.int32), lengths=lengths)


def load_rows(path: Path) -> Rows:
    with np.load(path) as saved:
        return [row.astype(np.int64) for row in np.split(saved["tokens"], np.cumsum(saved["lengths"])[:-1])]


def pack(rows: Rows, size: int, device: str = "cpu") -> Iterator[Packed]:
    """Batches of `size` rows in order of length."""
    import torch

    ordered = sorted(rows, key=len)
    start = 0
    while start < len(ordered):
        stop = min(start + size, len(ordered))
        length = len(ordered[stop - 1])
        ids = np.zeros((stop - start, length), dtype=np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(ordered[start:stop]):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        uneven = None if mask.all() else torch.from_numpy(mask).to(device)
        yield Packed(torch.from_numpy(ids).to(device), uneven)
        start = stop


def load_stock(folder: str, precision: str, device: str = "cpu") -> torch.nn.Module:
    """The model as transformers has it, with nothing of isthmus around it."""
    import torch
    from transformers import AutoModelForSequenceClassification

    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    return AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval().to(device)


def measure_cpu(model_folder: str, rows: Rows, recipe: str, precision: str, repeats: int) -> Record:
    """The best batch size of `CPU_BATCHES`, and the least processor time of `repeats` runs of it."""
    import torch

    model = load_stock(model_folder, precision)
    best = Record("ideal", recipe, precision, cpu_s=float("inf"))
    with torch.inference_mode():
        for size in CPU_BATCHES:
            batches = list(pack(rows, size))
            for _ in range(repeats):
                with Clock() as clock:
                    for batch in batches:
                        model(input_ids=batch.ids, attention_mask=batch.mask)
                if clock.cpu_s < best.cpu_s:
                    best = _record("ideal", recipe, precision, clock, rows, batches)
                    best.notes["batch"] = size
    best.peak_memory_mb = peak_memory_mb()
    return best


def measure_gpu(model_folder: str, rows: Rows, recipe: str, precision: str) -> Record:
    """Rows per second with the batches already on the GPU: the raw rate of the model."""
    import torch

    model = load_stock(model_folder, precision, "cuda")
    best = Record("raw forward", recipe, precision, wall_s=float("inf"), clock="wall")
    with torch.inference_mode():
        for size in GPU_BATCHES:
            batches = list(pack(rows, size, "cuda"))
            for _ in range(2):  # The first pass chooses kernels.
                torch.cuda.synchronize()
                with Clock() as clock:
                    for batch in batches:
                        model(input_ids=batch.ids, attention_mask=batch.mask)
                    torch.cuda.synchronize()
            if clock.wall_s < best.wall_s:
                best = _record("raw forward", recipe, precision, clock, rows, batches)
                best.clock, best.notes["batch"] = "wall", size
    best.notes["gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return best


def _record(side: str, recipe: str, precision: str, clock: Clock, rows: Rows, batches: list[Packed]) -> Record:
    return Record(
        side,
        recipe,
        precision,
        wall_s=clock.wall_s,
        cpu_s=clock.cpu_s,
        model_s=clock.cpu_s,
        rows=len(rows),
        batches=len(batches),
        tokens=sum(map(len, rows)),
        padded_tokens=sum(batch.ids.numel() for batch in batches),
    )
