"""Passes rows of many lengths through a model at once on a CPU: no padding, and the bits that each row gets alone.

An attack asks for a few rows of each length. Batched by length, most products are too small to pay; padded to one
length, sums end in other bits. So the blocks of the encoder read one long sequence:

    rows [rows, longest, width]  ->  tokens [1, tokens, width]  ->  blocks  ->  rows [rows, longest, width]

Linear layers, norms and activations treat every token by itself. Attention alone looks along a row: it is computed for
all rows of one length at a time (`_attend`), in the shapes that a batch of that length would have. What stands before
the blocks and behind them sees rows as usual, padding included, and must not look at the padding: classifiers that
pool the first token do not.

Whether all that holds for a model, its attention and this machine is found out by trying (`PackingTrial`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.core.errors import IsthmusError
from isthmus.core.types import Floats, TokenBatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MOST_TOKENS = 1024
"""Tokens of one pass: beyond that nothing is gained, caches overflow, and memory is asked of the system every time."""
ROUND = 16
"""Tokens of a pass are a multiple of this: a library plans for every new shape, which costs more than a few tokens."""
WORTH_TRYING = 12
"""Rows from which on it pays to find out whether lengths may share a pass: the trial costs about as much as thirty rows
do, and a dozen rows of as many lengths, batched by length and filled up, cost that, too."""
_NAME = "isthmus_packed"
_TRIED = ((3, 1), (4, 2), (8, 1), (15, 2), (16, 1), (17, 2), (24, 1), (33, 2), (48, 1))
"""Length and number of the rows on which it is tried: as many tokens as a dozen texts have."""


@dataclass(frozen=True)
class Packing:
    """The places of rows in the sequence: all rows of one length, then those of the next."""

    groups: tuple[tuple[int, int], ...]
    """(length, rows)."""
    filled: int
    """Rows that the layers behind the blocks see: those of `groups`, the last of them repeated."""

    @property
    def tokens(self) -> int:
        """Number of tokens of all rows."""
        return sum(length * count for length, count in self.groups)

    def pack(self, rows: Tensor) -> Tensor:
        """[rows, longest, width] -> [1, tokens, width]."""
        # Each [rows of one length * length, width]: padding is cut off, and rows lie one after the other.
        parts = [rows[start : start + count, :length].flatten(0, 1) for start, length, count in self.places()]
        parts.append(rows.new_zeros(-self.tokens % ROUND, rows.shape[-1]))  # up to a multiple of ROUND
        return torch.cat(parts)[None]

    def unpack(self, tokens: Tensor) -> Tensor:
        """[1, tokens, width] -> [filled, longest, width], zero where there is no token."""
        longest = max(length for length, _ in self.groups)
        rows, at = tokens.new_zeros(self.filled, longest, tokens.shape[-1]), 0
        for start, length, count in self.places():
            rows[start : start + count, :length] = tokens[0, at : at + length * count].view(count, length, -1)
            at += length * count
        last = sum(count for _, count in self.groups)
        rows[last:] = rows[last - 1]
        return rows

    def places(self) -> Iterator[tuple[int, int, int]]:
        """For each length: (first row, length, number of rows)."""
        start = 0
        for length, count in self.groups:
            yield start, length, count
            start += count


_packing: ContextVar[Packing] = ContextVar("packing")


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, scaling: float | None = None, **__: Any
) -> tuple[Tensor, None]:
    """Attention along each row: [1, heads, tokens, width] -> [1, tokens, heads, width]."""
    del module
    heads, tokens, width = query.shape[1:]
    found, at = query.new_empty(1, tokens, heads, width), 0
    for length, count in _packing.get().groups:
        stop = at + length * count
        # [heads, rows * length, width] -> [rows, heads, length, width]
        asked, offered, given = (
            each[0, :, at:stop].reshape(heads, count, length, width).transpose(0, 1) for each in (query, key, value)
        )
        seen = torch.nn.functional.scaled_dot_product_attention(asked, offered, given, scale=scaling)
        found[0, at:stop].view(count, length, heads, width).copy_(seen.transpose(1, 2))
        at = stop
    found[0, at:] = 0
    return found, None


@functools.cache
def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, lambda *_, **__: None)


def can_pack(model: PreTrainedModel, blocks: Sequence[nn.Module], depth: int) -> bool:
    """Whether packing is worth a trial: each block is called once, and its attention can be replaced."""
    return len(blocks) == depth > 0 and model.config._attn_implementation == "sdpa"


@contextlib.contextmanager
def read_packed(model: PreTrainedModel, blocks: Sequence[nn.Module], packing: Packing) -> Iterator[None]:
    """Inside, the model's blocks read rows packed as `packing` says."""
    _register()

    def enter(_module: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if args:
            return (packing.pack(args[0]), *args[1:]), given
        return args, {**given, "hidden_states": packing.pack(given["hidden_states"])}

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (packing.unpack(output[0]), *output[1:])
        return packing.unpack(output)

    before, token = model.config._attn_implementation, _packing.set(packing)
    hooks = [
        blocks[0].register_forward_pre_hook(enter, with_kwargs=True),
        blocks[-1].register_forward_hook(leave, prepend=True),
    ]
    model.config._attn_implementation = _NAME
    try:
        yield
    finally:
        model.config._attn_implementation = before
        _packing.reset(token)
        for hook in hooks:
            hook.remove()


def in_passes(batches: Sequence[TokenBatch], least: int, pad: int) -> Iterator[tuple[TokenBatch, int, Packing]]:
    """Join batches of one length each, without masks, into passes: padded rows, their number, and their places.

    The order of rows stays. Rows beyond those that count repeat the last, for layers that read one vector a row.
    """
    joined: list[TokenBatch] = []
    for batch in batches:
        size = batch.ids.shape[1]
        most = max(1, MOST_TOKENS // max(1, size))
        for start in range(0, len(batch.ids), most):
            part = _slice(batch, start, start + most)
            if joined and sum(each.ids.size for each in joined) + part.ids.size > MOST_TOKENS:
                yield _join(joined, least, pad)
                joined = []
            joined.append(part)
    if joined:
        yield _join(joined, least, pad)


def _slice(batch: TokenBatch, start: int, stop: int | None) -> TokenBatch:
    own = slice(start, stop)
    types, keys = (None if batch.types is None else batch.types[own]), (None if batch.keys is None else batch.keys[own])
    return TokenBatch(batch.ids[own], None, types, keys)


def _join(batches: list[TokenBatch], least: int, pad: int) -> tuple[TokenBatch, int, Packing]:
    count = sum(len(batch.ids) for batch in batches)
    while sum(batch.ids.size for batch in batches) < least:  # The blocks need at least that many tokens.
        batches = [*batches, _slice(batches[-1], -1, None)]
    held, longest = sum(len(batch.ids) for batch in batches), max(batch.ids.shape[1] for batch in batches)
    filled = max(held, least)
    ids = np.full((filled, longest), pad, np.int64)  # [filled, longest]: held rows, then copies of the last of them
    types = None if batches[0].types is None else np.zeros((filled, longest), np.int64)
    at = 0
    for batch in batches:
        place = slice(at, at + len(batch.ids)), slice(0, batch.ids.shape[1])
        ids[place] = batch.ids
        if types is not None:
            types[place] = batch.types
        at += len(batch.ids)
    for array in (ids, types):
        if array is not None:
            array[held:] = array[held - 1]
    keys = None
    if batches[0].keys is not None:
        keys = np.concatenate([np.asarray(batch.keys) for batch in batches])
        keys = np.concatenate([keys, np.repeat(keys[-1:], filled - held)])
    groups = tuple((batch.ids.shape[1], len(batch.ids)) for batch in batches)
    return TokenBatch(ids, None, types, keys), count, Packing(groups, filled)


class PackingTrial:
    """Finds out once whether a model's rows may share passes, when there are enough rows to pay for the trial.

    `apart` answers batches of one length each, `together` the same batches in passes.
    """

    def __init__(
        self,
        apart: Callable[[Sequence[TokenBatch]], Floats],
        together: Callable[[Sequence[TokenBatch]], Floats],
        vocabulary: int,
        max_tokens: int,
    ) -> None:
        self._ways, self._vocabulary, self._max_tokens = (apart, together), vocabulary, max_tokens
        self._rows = 0
        self.holds: bool | None = None
        """None: not tried yet."""

    def allows(self, batches: Sequence[TokenBatch]) -> bool:
        """Whether these batches may share passes."""
        self._rows += sum(len(batch.ids) for batch in batches)
        if self.holds is None and self._rows >= WORTH_TRYING:
            self.holds = False  # While it is tried.
            self.holds = self._try()
        return bool(self.holds) and all(batch.mask is None for batch in batches)

    def _try(self) -> bool:
        """Compare rows in one pass with the same rows in batches of their length, and some of them alone."""
        apart, together = self._ways
        draw, low, high = np.random.default_rng(0), self._vocabulary // 4, self._vocabulary // 2
        sizes = [(rows, length) for length, rows in _TRIED if length <= self._max_tokens]
        rows = [TokenBatch(draw.integers(low, high, size)) for size in sizes]
        try:
            with torch.inference_mode():
                expected = apart(rows)
                alone = [together([TokenBatch(each.ids[:1])]) for each in rows[:3]]
                # Where the first row of each batch lies among the answers to all.
                firsts = np.cumsum([0, *(len(each.ids) for each in rows)])[: len(alone)]
                return np.array_equal(together(rows), expected) and np.array_equal(
                    np.concatenate(alone), expected[firsts]
                )
        except (IsthmusError, RuntimeError, IndexError, ValueError, KeyError, TypeError, AttributeError):
            return False  # Its blocks or its attention are called otherwise.
