"""Forward passes recorded as CUDA graphs: one per shape, replayed in microseconds instead of launched in milliseconds.

Python takes longer to start a small encoder's kernels than a large GPU takes to run them. A recording starts them all
at once, but only for the shape it was made with; so rows are filled up to one of a few numbers, and whoever packs the
batches keeps to few lengths. A shape is recorded when it comes for the second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Forward = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
Shape = tuple[int, int, bool, bool]

_FEWEST_ROWS = 32
_MOST_SHAPES = 160


def _rounded(rows: int) -> int:
    """The next number of the form 2^k, 5/4 2^k, 3/2 2^k or 7/4 2^k: at most a quarter of the rows only fill up."""
    step = max(8, 1 << max(0, (rows - 1).bit_length() - 3))
    return max(_FEWEST_ROWS, -(-rows // step) * step)


@dataclass(frozen=True, slots=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, Tensor | None, Tensor | None]
    output: Tensor


class Recordings:
    """The recordings of one model's forward pass; call it like the pass itself."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.seen: dict[Shape, _Recording | None] = {}
        self.usable = True
        self.pool: Any = None

    def __call__(self, ids: Tensor, mask: Tensor | None, types: Tensor | None) -> Tensor:
        """The output for these rows."""
        rows, length = ids.shape
        shape = (_rounded(rows), length, mask is not None, types is not None)
        recording = self.seen.get(shape)
        if recording is None:
            if not self.usable or shape not in self.seen or len(self.seen) > _MOST_SHAPES:
                self.seen[shape] = None
                return self.forward(ids, mask, types)
            recording = self._record(shape, ids.device)
            if recording is None:
                return self.forward(ids, mask, types)
        for static, given in zip(recording.inputs, (ids, mask, types), strict=True):
            if static is not None and given is not None:
                static[:rows].copy_(given)
        recording.graph.replay()
        # Recordings share their memory: the next replay may overwrite this one's output.
        return recording.output[:rows].clone()

    def _record(self, shape: Shape, device: torch.device) -> _Recording | None:
        rows, length, masked, typed = shape
        # Rows that only fill up must not be all padding, or attention would divide by zero.
        inputs = (
            torch.zeros(rows, length, dtype=torch.int64, device=device),
            torch.ones(rows, length, dtype=torch.int64, device=device) if masked else None,
            torch.zeros(rows, length, dtype=torch.int64, device=device) if typed else None,
        )
        try:
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            self._warm_up(inputs)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                output = self.forward(*inputs)
        except (RuntimeError, ValueError):
            # Some architectures look at their input while they run, which cannot be recorded.
            self.usable = False
            return None
        self.seen[shape] = recording = _Recording(graph, inputs, output)
        return recording

    def _warm_up(self, inputs: tuple[Tensor, Tensor | None, Tensor | None]) -> None:
        """Run twice on a stream of its own, as recording asks for: kernels are chosen and workspaces taken."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.forward(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
