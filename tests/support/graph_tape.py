"""A stand-in for CUDA graphs on the CPU: what torch computes while one is recorded is played again, on the same memory.

What Python did meanwhile is not repeated, as with a real graph: a number that was looked at, a generator that was
seeded, or a choice that was made stays as it was when the recording was made. So does the memory: a tensor that is put
in the place of another is not seen. Recording leaves weights, buffers and torch's random stream as they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isthmus.training import captured, lean, resident


def tensors_in(values: Any) -> list[Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, Tensor)]


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Tape(TorchDispatchMode):
    """A recording, and the mode in which it is made."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.jobs: list[Callable[[], None]] = []
        self.kept: list[Any] = []
        self.old: dict[int, tuple[Tensor, Tensor]] = {}
        """What lay in memory from before the recording that the recording writes to."""
        self.own: set[int] = set()
        self.replays = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        if func._schema.is_mutable:
            for each in given:
                if place(each) not in self.own and place(each) not in self.old:
                    whole = torch.empty(0, dtype=torch.uint8).set_(each.untyped_storage())
                    self.old[place(each)] = whole, whole.clone()
        found = func(*args, **kwargs)
        before = {place(each) for each in given}
        fresh = [(at, each) for at, each in enumerate(tree_leaves(found)) if isinstance(each, Tensor)]
        fresh = [(at, each) for at, each in fresh if place(each) not in before]
        self.own |= {place(each) for _, each in fresh}
        self.kept.append((args, kwargs, found))

        def job() -> None:
            again = tree_leaves(func(*args, **kwargs))
            for at, each in fresh:
                each.copy_(again[at])

        if fresh or func._schema.is_mutable:
            self.jobs.append(job)
        return found

    def put_back(self) -> None:
        for whole, value in self.old.values():
            whole.copy_(value)

    def replay(self) -> None:
        self.replays += 1
        with torch.no_grad():
            for job in self.jobs:
                job()

    def pool(self) -> None: ...


@contextlib.contextmanager
def recording(tape: Tape, **_: Any) -> Iterator[None]:
    """What `torch.cuda.graph` is; torch's random stream is a place in the recording, as on a GPU."""
    get, put = torch.get_rng_state, torch.set_rng_state
    state, marks = get(), list[Tensor]()

    def mark() -> int:
        number = len(marks)
        marks.append(get())
        tape.jobs.append(lambda: marks.__setitem__(number, get()))
        return number

    def back(number: int) -> None:
        put(marks[number])
        tape.jobs.append(lambda: put(marks[number]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_rng_state", mark)
        patch.setattr(torch, "set_rng_state", back)
        with tape:
            yield
    tape.put_back()
    put(state)


def play_on_cpu(patch: pytest.MonkeyPatch, tapes: list[Tape]) -> None:
    """Record the steps of every training on the CPU that a GPU would record."""

    def new() -> Tape:
        tapes.append(Tape())
        return tapes[-1]

    def is_recordable(model: Any, defence: Any, device: Any, accumulation: int) -> bool:
        return usual(model, defence, torch.device("cuda"), accumulation)

    usual = captured.is_recordable
    for loop in (lean, resident):
        patch.setattr(loop, "is_recordable", is_recordable)
        patch.setattr(loop, "own_stream", lambda device, wanted: contextlib.nullcontext())
    patch.setattr(captured, "_refusing_waits", contextlib.nullcontext)
    patch.setattr(torch.cuda, "CUDAGraph", new)
    patch.setattr(torch.cuda, "graph", lambda tape, **rest: recording(tape, **rest))
    patch.setattr(torch.cuda, "current_stream", lambda device: None)
    patch.setattr(torch.cuda, "set_stream", lambda stream: None)
    patch.setattr(torch.cuda, "get_rng_state", lambda device: torch.get_rng_state())
    patch.setattr(torch.cuda, "set_rng_state", lambda state, device: torch.set_rng_state(state))
    # As on a GPU, where the mask is made in its final form and is not looked at.
    patch.setattr(
        "isthmus.models.backbones.attention_mask",
        lambda _, mask: mask[:, None, None, :].bool().expand(-1, 1, mask.shape[1], -1),
    )
    # oneDNN's layouts have no memory that could be seen, and belong to the CPU.
    patch.setattr("isthmus.models.masking.lay_out", lambda model, inputs: contextlib.nullcontext())
