"""Tokenised examples, and mini-batches padded to their longest row only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import DataError
from isthmus.core.types import Example
from isthmus.defences.base import Batch

if TYPE_CHECKING:
    import torch

    from isthmus.models import Classifier

TokenColumn = NDArray[Any]
_CHUNK = 256
"""Texts tokenised at once; they are padded to the longest of the chunk for a moment."""
BLOCK = 16
"""Batches for a GPU are padded to multiples of this many tokens: every new length costs it time, padding hardly any."""


@dataclass(frozen=True)
class Padding:
    """The padding of rows to a common length."""

    values: Mapping[str, int]
    on_the_left: bool


class EncodedExamples:
    """Examples and their token rows; a map-style data set for the Trainer."""

    block = 1
    """Batches are padded to multiples of this many tokens; 1 pads to the longest row and no further."""
    limit: int | None = None
    """Longest input the model reads, which padding does not exceed."""

    def __init__(self, model: Classifier, examples: Sequence[Example], fields: Sequence[str]) -> None:
        self.examples = tuple(examples)
        self.padding = Padding(
            {"input_ids": model.tokenizer.pad_token_id or 0, "token_type_ids": model.tokenizer.pad_token_type_id},
            model.tokenizer.padding_side == "left",
        )
        self.labels: list[Any] = [_read_label(example, len(model.labels)) for example in self.examples]
        self.rows: list[dict[str, TokenColumn]] = []
        for start in range(0, len(self.examples), _CHUNK):
            self.rows += _encode(model, self.examples[start : start + _CHUNK], fields)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The token rows of an example (the Trainer groups by the length of ``input_ids``), and the example."""
        return {**self.rows[index], "label": self.labels[index], "example": self.examples[index]}

    def collate(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Make the batch that the data loader passes to the training step."""
        import torch

        return {
            "inputs": {name: self._pad([item[name] for item in items], name) for name in self.rows[0]},
            "labels": torch.tensor([item["label"] for item in items], dtype=torch.int64),
            "examples": tuple(item["example"] for item in items),
        }

    def _pad(self, rows: Sequence[TokenColumn], name: str) -> torch.Tensor:
        import torch

        length = self.padded_length(max(1, *(len(row) for row in rows)))
        padded = np.full((len(rows), length), self.padding.values.get(name, 0), dtype=np.int64)
        for target, row in zip(padded, rows, strict=True):
            start = length - len(row) if self.padding.on_the_left else 0
            target[start : start + len(row)] = row
        return torch.from_numpy(padded)

    def in_blocks_on(self, device: torch.device, limit: int) -> Self:
        """Pad to few different lengths if `device` gains by it: on a GPU."""
        self.block, self.limit = BLOCK if device.type == "cuda" else 1, limit
        return self

    def padded_length(self, length: int) -> int:
        """Length after padding of a batch whose longest row has `length`."""
        blocks = -(-length // self.block) * self.block
        return blocks if self.limit is None else max(length, min(blocks, self.limit))

    def batches(self, size: int, device: torch.device, *, part: int = 0, parts: int = 1) -> Iterator[Batch]:
        """The examples of one of `parts` in batches of similar length, for evaluation."""
        for batch, _ in self.numbered_batches(size, device, part=part, parts=parts):
            yield batch

    def numbered_batches(
        self, size: int, device: torch.device, *, part: int = 0, parts: int = 1
    ) -> Iterator[tuple[Batch, list[int]]]:
        """Yield the batches with the numbers of their examples."""
        order = sorted(range(len(self)), key=lambda index: len(self.rows[index]["input_ids"]))[part::parts]
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            batch = self.collate([self[index] for index in rows])
            inputs = {name: tensor.to(device) for name, tensor in batch["inputs"].items()}
            yield Batch(inputs, batch["labels"].to(device)), rows


def _encode(model: Classifier, examples: Sequence[Example], fields: Sequence[str]) -> list[dict[str, TokenColumn]]:
    """Tokenise `examples`, without padding."""
    texts = [_read_texts(example, fields) for example in examples]
    try:
        encoded = {name: column.numpy() for name, column in model.encode(texts).items()}
    except (TypeError, ValueError) as error:
        if len(examples) == 1:
            raise DataError(f"the tokenizer cannot read example {examples[0].id}: {error}") from error
        # One of them is to blame: say which.
        return [row for example in examples for row in _encode(model, [example], fields)]
    filled = encoded["attention_mask"].astype(bool)
    return [{name: column[row][filled[row]] for name, column in encoded.items()} for row in range(len(texts))]


def _read_texts(example: Example, fields: Sequence[str]) -> dict[str, str]:
    chosen = {name: example.fields.get(name) for name in fields}
    texts = {name: value for name, value in chosen.items() if isinstance(value, str)}
    if len(texts) != len(chosen):
        missing = next(name for name in chosen if name not in texts)
        raise DataError(f"example {example.id} has no text in the field {missing!r}")
    return texts


def _read_label(example: Example, classes: int) -> int:
    if not isinstance(example.label, int) or not 0 <= example.label < classes:
        raise DataError(
            f"example {example.id} has the label {example.label!r}; the model has classes 0 to {classes - 1}"
        )
    return example.label
