"""Makes batches of token rows of equal length from texts; they need no padding and no mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Ints, Texts, TokenBatch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ROWS_PER_BATCH = 64


def columns_of(texts: Sequence[Texts], fields: Sequence[str] | None = None) -> list[list[str]]:
    """Turn texts into one list per field, in reading order; all need as many fields as the first (or as `fields`)."""
    names = tuple(fields or (texts[0] if texts else ("text",)))
    for text in texts:
        if len(text) != len(names):
            raise UsageError(
                f"this model reads {len(names)} text field{'s' * (len(names) > 1)} ({', '.join(names)}), "
                f"the input has {len(text)} ({', '.join(text)})"
            )
    return [list(column) for column in zip(*(text.values() for text in texts), strict=True)] or [[] for _ in names]


def batches_of(
    tokenizer: PreTrainedTokenizerBase,
    columns: Sequence[list[str]],
    max_tokens: int,
    keys: NDArray[np.uint64] | None = None,
    *,
    most: int = _ROWS_PER_BATCH,
) -> Iterator[tuple[NDArray[np.int64], TokenBatch]]:
    """Make batches of at most `most` rows of equal length, the shortest first, each with the positions of its rows."""
    if not columns[0]:
        return
    try:
        encoded = tokenizer(*columns, truncation="longest_first", max_length=max_tokens)
    except (TypeError, UnicodeError, ValueError) as error:
        raise VictimError(f"the tokenizer cannot read one of {len(columns[0])} texts: {error}") from error
    types = encoded.get("token_type_ids")
    lengths = np.array([len(row) for row in encoded["input_ids"]])
    for length in np.unique(lengths):
        same = np.flatnonzero(lengths == length)
        for start in range(0, len(same), most):
            rows = same[start : start + most]
            yield (
                rows,
                TokenBatch(
                    ids=_stack(encoded["input_ids"], rows),
                    types=None if types is None else _stack(types, rows),
                    keys=None if keys is None else keys[rows],
                ),
            )


def _stack(rows: Sequence[Sequence[int]], chosen: NDArray[np.int64]) -> Ints:
    return np.array([rows[index] for index in chosen], dtype=np.int64)
