"""Several draws of a row in one pass: its copies share all layers up to the first noise.

    embeddings, blocks 0 … l   [rows]          l the first block with noise
    blocks l + 1 …             [rows · copies] copy j of row r is row r · copies + j

Rows may have different numbers of copies: then a tensor says of every copy which row it is one of. What an encoder
hands to its later blocks beside the hidden states (masks, position biases) is repeated as it passes, so no encoder has
to know. Whether one does something else with its rows afterwards (classifiers that look for the last token in the ids)
shows in the number of rows that come out, and such a model reads every copy from the start.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isthmus.models.slots import Noise

Copies = int | Tensor
"""So many of every row, or [copies] the row that each copy is one of."""


class Watch:
    """The state of one pass through an encoder: inputs, current block, and whether rows are copied yet.

    Blocks are counted as they are called (ALBERT calls one block many times).
    """

    def __init__(self, noise: Noise | None, attention_mask: Tensor | None, copies: Copies = 1) -> None:
        self.noise, self.attention_mask = noise, attention_mask
        self.copies: Copies = copies if noise is not None and noise.stochastic else 1
        self.layer, self.rows = -1, 0
        self._entered: list[Tensor] = []

    @property
    def entered(self) -> Tensor:
        """The first word embeddings that were looked up (encoder-decoders look up twice)."""
        return self._entered[0]

    @property
    def split(self) -> bool:
        """Whether rows have been copied."""
        return self.rows > 0

    def enter(self, _module: nn.Module, _given: Any, output: Tensor) -> None:
        """Record the word embeddings."""
        self._entered.append(output)

    def before(self, _module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Repeat the block's inputs that still belong to uncopied rows."""
        if not self.split or self.rows == 1:  # What belongs to a single row is broadcast.
            return None
        return tuple(self._repeat(value) for value in given), {
            name: self._repeat(value) for name, value in named.items()
        }

    def _repeat(self, value: Any) -> Any:
        # Matrices of numbers may be tables that all rows share (relative positions); integers are masks.
        per_row = (
            isinstance(value, Tensor)
            and value.dim() > 1
            and len(value) == self.rows
            and (value.dim() > 2 or not value.is_floating_point())
        )
        return repeat_rows(value, self.copies) if per_row else value

    def after(self, _module: nn.Module, _given: Any, output: Any) -> Any:
        """Add noise to the output of a chosen block."""
        self.layer += 1
        if self.noise is None or self.layer not in self.noise.layers:
            return output
        if isinstance(output, tuple):
            return (self._perturb(output[0]), *output[1:])
        return self._perturb(output)

    def _perturb(self, hidden: Tensor) -> Tensor:
        assert self.noise is not None
        if are_several(self.copies) and not self.split:
            self.rows = len(hidden)
            hidden = repeat_rows(hidden, self.copies)
        mask = self.attention_mask
        if mask is not None and self.split:
            mask = repeat_rows(mask, self.copies)
        perturbed: Tensor = self.noise(self.layer, hidden, mask)
        return perturbed


def are_several(copies: Copies) -> bool:
    """Whether there is more than one copy."""
    return not isinstance(copies, int) or copies > 1


def number_of(copies: Copies, rows: int) -> int:
    """Number of copies of all rows together."""
    return rows * copies if isinstance(copies, int) else len(copies)


def repeat_rows(value: Tensor | None, copies: Copies) -> Any:
    """Repeat every row as often as it has copies; None stays None."""
    if value is None:
        return None
    return value.repeat_interleave(copies, dim=0) if isinstance(copies, int) else value[copies]


def rows_of(mask: Tensor, hidden: Tensor) -> Tensor:
    """The mask, repeated if its rows have been copied."""
    return mask if len(mask) == len(hidden) else torch.repeat_interleave(mask, len(hidden) // len(mask), dim=0)
