"""The special tokens of a tokenizer around a row's content: ``prefix A suffix``, or ``prefix A middle B suffix``.

It is learnt by asking the tokenizer; so is the number of content tokens that fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from isthmus.core.types import Ints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Template:
    """The special tokens before, between and after the content of a row."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, fields: int, max_tokens: int) -> None:
        texts = ("a b", "c d")[:fields]
        bare = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
        encoding = tokenizer(*texts, return_token_type_ids=True)
        ids, types = list(encoding["input_ids"]), list(encoding["token_type_ids"])
        self.specials: list[list[int]] = []
        self.special_types: list[list[int]] = []
        self.field_types: list[int] = []
        at = 0
        for content in bare:
            start = _find_content(ids, content, at)
            self.specials.append(ids[at:start])
            self.special_types.append(types[at:start])
            self.field_types.append(types[start])
            at = start + len(content)
        self.specials.append(ids[at:])
        self.special_types.append(types[at:])
        kinds = [*self.field_types, *(kind for types in self.special_types for kind in types)]
        # A model that is not told takes every token to be of kind 0.
        self.uses_types = "token_type_ids" in tokenizer.model_input_names and any(kinds)
        self.added = sum(map(len, self.specials))
        self.room = max_tokens - self.added  # content tokens that fit

    def truncate(self, lengths: Ints) -> Ints:
        """Content lengths [rows, fields] after truncation, the longer field first."""
        if lengths.shape[1] == 1:
            return np.minimum(lengths, self.room)
        if not (lengths.sum(axis=1) > self.room).any():
            return lengths
        low, high = lengths.min(axis=1), lengths.max(axis=1)
        # The longer field shrinks to the length of the shorter; if that is not enough, each gets half.
        kept_high = np.where(low > self.room, low, np.maximum(low, self.room - low))
        kept_high = np.minimum(kept_high, high)
        halved = low + kept_high > self.room
        kept_low = np.where(halved, self.room // 2, low)
        kept_high = np.where(halved, self.room // 2 + self.room % 2, kept_high)
        swapped = lengths[:, 0] > lengths[:, 1]
        first = np.where(swapped, kept_high, kept_low)
        second = np.where(swapped, kept_low, kept_high)
        over = lengths.sum(axis=1) > self.room
        return np.where(over[:, None], np.stack([first, second], axis=1), lengths)


def _find_content(ids: list[int], content: list[int], at: int) -> int:
    for start in range(at, len(ids) - len(content) + 1):
        if ids[start : start + len(content)] == content:
            return start
    raise ValueError("the tokenizer changes a text's ids when it adds special tokens")
