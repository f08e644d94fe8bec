"""The two loss terms of variational word masks besides the task's.

    entropy      H̄ = mean over texts of the mean over words of  -φ log φ - (1 - φ) log(1 - φ)
    importance   L_imp = mean over texts that have replaced words of  Σ |φ(word) - φ(its replacement)|

Special tokens and padding are no words. The importance of a word is the maximum over its sub-words. Both read the
network of the mask once more, without dropout; neither needs another pass through the encoder.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from isthmus.core.types import Example
from isthmus.defences.base import Batch
from isthmus.defences.parts.attacked_examples import MADE_FROM, REPLACED
from isthmus.models.importance import pieces_of
from isthmus.models.masking import mask_of_words
from isthmus.models.word_mask import VariationalWordMask

if TYPE_CHECKING:
    from isthmus.models import Classifier

WordPair = tuple[str, str]


def mean_entropy(model: Classifier, mask: VariationalWordMask, batch: Batch) -> Tensor:
    """H̄ of a batch; texts without words are left out."""
    ids = batch.inputs["input_ids"]
    words = mask_of_words(model, ids, batch.inputs.get("attention_mask"))
    gap = _gap(model, mask, ids, batch.inputs.get("token_type_ids"))
    entropy = (functional.softplus(gap) - gap * torch.sigmoid(gap)).masked_fill(~words, 0.0)
    count = words.sum(dim=1)
    return (entropy.sum(dim=1) / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)


def read_replacements(example: Example) -> list[WordPair]:
    """The words that an attack replaced in this example, with their replacements; none for an original."""
    # An original may have a column of that name, with anything in it.
    text = example.fields.get(REPLACED) if MADE_FROM in example.fields else None
    return [(str(before), str(after)) for before, after in json.loads(str(text))] if text else []


def importance_difference(
    model: Classifier, mask: VariationalWordMask, examples: Sequence[Example], *, over_all: bool = False
) -> Tensor | None:
    """L_imp of a batch; None if none of its words was replaced. `over_all` divides by all texts instead."""
    pairs = [read_replacements(example) for example in examples]
    words = list(dict.fromkeys(word for row in pairs for pair in row for word in pair))
    numbers = {word: number for number, word in enumerate(words)}
    pieces = pieces_of(model, words)
    known = [[pair for pair in row if all(pieces[numbers[word]] for word in pair)] for row in pairs]
    count = sum(map(bool, known))
    if not count:
        return None
    phi = _importance(model, mask, pieces)
    places = _send([[numbers[word] for word in pair] for row in known for pair in row], phi.device)
    difference = (phi[places[:, 0]] - phi[places[:, 1]]).abs().sum()
    return difference / (len(examples) if over_all else count)


def _importance(model: Classifier, mask: VariationalWordMask, pieces: Sequence[Sequence[int]]) -> Tensor:
    """φ of words given by their sub-words, differentiable [words]."""
    longest = max(map(len, pieces))
    pad = model.tokenizer.pad_token_id or 0
    ids = _send([[*row, *[pad] * (longest - len(row))] for row in pieces], model.device)
    there = _send([[place < len(row) for place in range(longest)] for row in pieces], model.device)
    if mask.after_block and (first := _first_token(model)) is not None:
        # Each word as if it were a text of its own.
        gap = _gap(model, mask, functional.pad(ids, (1, 0), value=first), None)[:, 1:]
    else:
        gap = _gap(model, mask, ids, None)
    return torch.sigmoid(gap).masked_fill(~there, 0.0).amax(dim=1)


def _send(values: list[list[int]], device: torch.device) -> Tensor:
    """Copy numbers to the device, without waiting for it."""
    return torch.tensor(values).to(device, non_blocking=True)


def _first_token(model: Classifier) -> int | None:
    tokenizer = model.tokenizer
    found = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    return None if found is None else int(found)


def _gap(model: Classifier, mask: VariationalWordMask, ids: Tensor, types: Tensor | None) -> Tensor:
    """log φ / (1 - φ) at every position."""
    block = model.backbone.embedding_block() if mask.after_block else None
    if block is None:
        return mask.gap_of(ids)
    given = {"token_type_ids": types} if types is not None and model.backbone.accepts_types else {}
    with without_dropout(block):
        return mask.gap(block(input_ids=ids, **given))


@contextlib.contextmanager
def without_dropout(module: nn.Module) -> Iterator[None]:
    """Inside, a module is in evaluation mode."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
