"""Finds out by trial whether padding changes the bits of a result.

Rows of different lengths can share a batch if the shorter ones are padded. Sums over more numbers, zeros though they
are, may be taken in another order and end in other bits. Inside a block of as many numbers as the processor adds up at
once they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from isthmus.core.types import Pending, TokenBatch

BLOCKS = (16, 8)
"""Numbers that processors add up at once."""


def padding_keeps_bits(
    launch: Callable[[Sequence[TokenBatch]], Pending], block: int, vocabulary: int, max_tokens: int, pad: int = 0
) -> bool:
    """Whether rows padded inside a block (say 16k + 1 to 16k + 15 tokens) get the bits that they get unpadded.

    Where arithmetic is strict (`isthmus.arithmetic.machine`) and padding does change bits, it changes those of most
    rows, so a few rows tell.
    """
    draw = np.random.default_rng(0)
    for first in (3, block + 1, 2 * block + 1):
        longest = block * (first // block) + block - 1
        if longest > max_tokens:
            break
        lengths = (first, (first + longest) // 2, longest - 1, longest)
        alone = [draw.integers(vocabulary // 4, vocabulary // 2, (3, length)) for length in lengths]
        ids = np.full((3 * len(lengths), longest), pad, np.int64)
        mask = np.zeros_like(ids)
        for index, rows in enumerate(alone):
            place = slice(3 * index, 3 * index + 3), slice(0, rows.shape[1])
            ids[place], mask[place] = rows, 1
        padded = launch([TokenBatch(ids, mask)])()
        if not np.array_equal(padded, launch([TokenBatch(rows) for rows in alone])()):
            return False
    return True
