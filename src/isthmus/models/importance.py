"""The importance of each word in a model with variational word masks (the defence `flat`).

    phi(word) = max over its sub-words of phi(sub-word),     0 < phi < 1

Around 0.5 a word does not matter, near 1 the model relies on it, near 0 it reads past it. Special tokens are never
masked: theirs is 1.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus.core.errors import ModelError
from isthmus.core.types import Floats

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from isthmus.models.classifier import Classifier

_ANCHOR = "the"
"""A word before the word: byte-level tokenizers write a word in the middle of a text otherwise than at its start."""


class WordImportance(NamedTuple):
    """The learned importance of every entry of a vocabulary."""

    tokens: tuple[str, ...]
    """As the tokenizer writes them, by id; empty where the model's table is larger than the tokenizer."""
    values: Floats
    """[vocabulary]."""
    special: NDArray[np.bool_]
    """True at special tokens and where there is no token."""


def word_importance(model: Classifier) -> WordImportance:
    """The importance that `model` has learned for every entry of its vocabulary."""
    values = _factors(model).float().cpu().numpy()
    tokens = [""] * len(values)
    for token, index in model.tokenizer.get_vocab().items():
        if index < len(tokens):
            tokens[index] = token
    special = model.special_ids.cpu().numpy() | np.array([not token for token in tokens])
    return WordImportance(tuple(tokens), np.where(special, np.float32(1), values), special)


def importance_of(model: Classifier, words: Sequence[str]) -> Floats:
    """The importance of words: the maximum over their sub-words; NaN if the tokenizer returns none."""
    values, found = _factors(model).float().cpu(), np.full(len(words), np.nan, np.float32)
    for number, pieces in enumerate(pieces_of(model, words)):
        if pieces:
            found[number] = float(values[pieces].max())
    return found


def pieces_of(model: Classifier, words: Sequence[str]) -> list[list[int]]:
    """The sub-words of each word in the middle of a text, without special tokens."""
    if not words:
        return []
    tokenizer: PreTrainedTokenizerBase = model.tokenizer
    rows = tokenizer([_ANCHOR, *(f"{_ANCHOR} {word}" for word in words)], add_special_tokens=False)["input_ids"]
    anchor, *rest = (list(map(int, row)) for row in rows)
    # Not by the model's own table of them: on a GPU a look at it waits.
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id, tokenizer.mask_token_id}
    found = []
    for word, row in zip(words, rest, strict=True):
        own = row[len(anchor) :]
        if row[: len(anchor)] != anchor:
            own = tokenizer(word, add_special_tokens=False)["input_ids"]
        found.append([index for index in own if index not in special])
    return found


def fold_word_mask(model: Classifier) -> Classifier:
    """A copy of the model without word masks, whose embedding table includes the importance.

    It answers as `model` does outside training. Of a transformers classifier the copy is a stock one, so that
    `Classifier.save` writes a folder that transformers, and tools that export such folders, read without isthmus.
    """
    _factors(model)
    folded = copy.deepcopy(model).eval()
    with torch.no_grad():
        folded.table.weight.copy_(model.read_table())
    folded.slots.word_mask = None
    return folded


def _factors(model: Classifier) -> Tensor:
    mask = model.slots.word_mask
    if mask is None:
        raise ModelError("this model has no word masks, so it has learned no importance of words: train it with flat")
    if not mask.scales_words:
        raise ModelError(
            "this model's word masks depend on the position of a word, so no word has a single importance: train it "
            "with flat in its default mode"
        )
    return mask.factors()
