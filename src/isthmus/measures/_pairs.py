"""Texts and their attacked versions, position by position, and controls that show the effect of noise."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.core.seeds import numpy_stream
from isthmus.core.types import Texts
from isthmus.measures.base import TextPair
from isthmus.text.words import Words

if TYPE_CHECKING:
    from isthmus.models import Classifier


def is_aligned(pair: TextPair) -> bool:
    """Whether both texts have the same number of words in every field, so that they can be compared by position."""
    return list(pair.original) == list(pair.perturbed) and all(
        len(Words.of(text)) == len(Words.of(pair.perturbed[name])) for name, text in pair.original.items()
    )


def pair_words(texts: Texts) -> list[str]:
    """The words of all fields, in reading order."""
    return [word for text in texts.values() for word in Words.of(text)]


def count_changes(pair: TextPair) -> int:
    """Number of positions with another word."""
    return sum(a != b for a, b in zip(pair_words(pair.original), pair_words(pair.perturbed), strict=True))


def replace_at_random(pair: TextPair, pool: Sequence[str], seed: int) -> dict[str, str]:
    """Replace as many words at random as the attack changed, by words of `pool`."""
    stream = numpy_stream(seed, "replaced at random", pair.id)
    places = set(stream.permutation(len(pair_words(pair.original)))[: count_changes(pair)].tolist())
    found, start = {}, 0
    for name, text in pair.original.items():
        words = Words.of(text)
        own = [place - start for place in sorted(places) if start <= place < start + len(words)]
        found[name] = str(words.replace({place: pool[int(stream.integers(len(pool)))] for place in own}))
        start += len(words)
    return found


def with_random_weights(model: Classifier, seed: int) -> Classifier:
    """A copy of the network with random weights."""
    import torch

    other = copy.deepcopy(model)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed % 2**63)
        for module in other.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
        mask = other.slots.word_mask
        if mask is not None:  # It keeps what its weights made of the vocabulary.
            other.fill(word_mask=type(mask)(**mask.config()))
    return other.eval()
