"""The limit: the rows an attack really sent, sorted by length, in full batches, forward pass only.

No tokenising, no candidates, no search, and every row known before the first is scored. Where an attack also asks a
sentence encoder or a masked language model, their rows are part of it (the masked model without its head).

Where isthmus computes linear layers by oneDNN (`isthmus.arithmetic.products`) it is taken twice: with torch's
own products, as TextAttack has them, and with those of isthmus, where nothing but packing can be better.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.arithmetic.products import lay_out, pays
from speed.record import Clock, Record, peak_memory_mb
from speed.victims import Sent

if TYPE_CHECKING:
    import torch

Rows = list[NDArray[np.int64]]
Models = Mapping[str, Callable[[], "torch.nn.Module"]]
"""victim, encoder, masked_lm -> loads it, on the device it is to be measured on."""
CPU_BATCHES = (16, 32, 64)
OWN = "ideal, oneDNN"
"""The side whose linear layers are computed as isthmus does, where that is another way than torch's own."""
GPU_BATCHES = (512, 1024, 2048, 4096)


class Packed(NamedTuple):
    """One batch; the mask is None where no row is shorter than the others."""

    ids: torch.Tensor
    mask: torch.Tensor | None


def unpadded(sent: Sequence[Sent]) -> Rows:
    """The rows of all batches, without their padding."""
    return [row[:length] for batch in sent for row, length in zip(batch.ids, batch.lengths, strict=True)]


def save_rows(path: Path, sent: Mapping[str, Sequence[Sent]]) -> None:
    """The rows of every model that was asked."""
    arrays: dict[str, NDArray[np.int32]] = {}
    for name, rows in ((name, unpadded(batches)) for name, batches in sent.items()):
        if rows:
            arrays[f"{name}.tokens"] = np.concatenate(rows).astype(np.int32)
            arrays[f"{name}.lengths"] = np.array([len(row) for row in rows], dtype=np.int32)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load_rows(path: Path) -> dict[str, Rows]:
    with np.load(path) as saved:
        names = [key.removesuffix(".lengths") for key in saved if key.endswith(".lengths")]
        return {
            name: [
                row.astype(np.int64)
                for row in np.split(saved[f"{name}.tokens"], np.cumsum(saved[f"{name}.lengths"])[:-1])
            ]
            for name in names
        }


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
    model: torch.nn.Module = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval()
    return model.to(device)


def measure_cpu(models: Models, rows: Mapping[str, Rows], recipe: str, precision: str, repeats: int) -> list[Record]:
    """For each model the best batch size of `CPU_BATCHES`, and the least processor time of `repeats` runs of it.

    One record for each way of computing products that this processor has.
    """
    import torch

    loaded = {name: models[name]() for name in rows}
    totals = []
    ways: dict[str, Callable[[torch.nn.Module], contextlib.AbstractContextManager[object]]]
    ways = {
        "ideal": contextlib.nullcontext,
        **({OWN: lay_out} if pays(torch.bfloat16 if precision == "bf16" else torch.float32) else {}),
    }
    for side, way in ways.items():
        found = list[Record]()
        for name, own in rows.items():
            with way(loaded[name]):
                found.append(_best_on_cpu(side, loaded[name], own, recipe, precision, repeats))
        total = _joined(found, list(rows))
        total.peak_memory_mb = peak_memory_mb()
        totals.append(total)
    return totals


def _best_on_cpu(side: str, model: torch.nn.Module, rows: Rows, recipe: str, precision: str, repeats: int) -> Record:
    import torch

    best = Record(side, recipe, precision, cpu_s=float("inf"))
    with torch.inference_mode():
        for size in CPU_BATCHES:
            batches = list(pack(rows, size))
            for _ in range(repeats):
                with Clock() as clock:
                    for batch in batches:
                        model(input_ids=batch.ids, attention_mask=batch.mask)
                if clock.cpu_s < best.cpu_s:
                    best = _record(side, recipe, precision, clock, rows, batches)
                    best.notes["batch"] = size
    return best


def measure_gpu(models: Models, rows: Mapping[str, Rows], recipe: str, precision: str) -> Record:
    """Rows per second with the batches already on the GPU: the raw rate of the models."""
    import torch

    found = [_best_on_gpu(models[name](), own, recipe, precision) for name, own in rows.items()]
    total = _joined(found, list(rows))
    total.clock = "wall"
    total.notes["gpu_memory_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return total


def _best_on_gpu(model: torch.nn.Module, rows: Rows, recipe: str, precision: str) -> Record:
    import torch

    best = Record("raw forward", recipe, precision, wall_s=float("inf"), clock="wall")
    with torch.inference_mode():
        for size in GPU_BATCHES:
            clock, batches = _twice_on_gpu(model, list(pack(rows, size, "cuda")))
            if clock.wall_s < best.wall_s:
                best = _record("raw forward", recipe, precision, clock, rows, batches)
                best.clock, best.notes["batch"] = "wall", size
    return best


def _twice_on_gpu(model: torch.nn.Module, batches: list[Packed]) -> tuple[Clock, list[Packed]]:
    import torch

    for _ in range(2):  # The first pass chooses kernels.
        torch.cuda.synchronize()
        with Clock() as clock:
            for batch in batches:
                model(input_ids=batch.ids, attention_mask=batch.mask)
            torch.cuda.synchronize()
    return clock, batches


def replay_gpu(model: torch.nn.Module, batches: Sequence[Sequence[int]], padded: int, recipe: str) -> Record:
    """TextAttack's own batches, each padded to `padded` tokens as it does, forward only; ids are drawn at random."""
    import torch

    draw = np.random.default_rng(0)
    with torch.inference_mode():
        ready = []
        for lengths in batches:
            ids = draw.integers(1000, 30_000, (len(lengths), padded))
            mask = np.arange(padded) < np.array(lengths)[:, None]
            ready.append(Packed(torch.from_numpy(ids).cuda(), torch.from_numpy(mask.astype(np.int64)).cuda()))
        clock, _ = _twice_on_gpu(model, ready)
    record = Record("TextAttack's batches, forward only", recipe, "fp32", wall_s=clock.wall_s, clock="wall")
    record.rows, record.batches, record.model_s = sum(map(len, batches)), len(batches), clock.wall_s
    record.tokens = sum(itertools.chain.from_iterable(batches))
    record.padded_tokens = record.rows * padded
    return record


def _joined(records: Sequence[Record], names: Sequence[str]) -> Record:
    """The models one after the other; rows and batches are the victim's, which comes first."""
    total = records[0]
    for name, other in zip(names[1:], records[1:], strict=True):
        total.notes |= {f"{name} rows": other.rows, f"{name} s": other.seconds}
        total.wall_s, total.cpu_s = total.wall_s + other.wall_s, total.cpu_s + other.cpu_s
        total.model_s += other.model_s
    return total


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
