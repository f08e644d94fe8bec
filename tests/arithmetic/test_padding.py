"""Lengths are mixed on a CPU only where that is known to change nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from isthmus.arithmetic.padding import BLOCKS, padding_keeps_bits
from isthmus.core.types import Pending, TokenBatch
from isthmus.models import Classifier, ClassifierVictim

LABELS = ("negative", "positive")


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "deberta-v2", "mpnet", "electra", "cnn"])
def test_a_victim_that_says_so_keeps_its_bits(architecture: str, encoder: Callable[[str], Path]) -> None:
    if architecture == "cnn":
        model = Classifier.create("cnn", LABELS, texts=["a fine film"] * 9, options={"vectors": None, "width": 50})
        size = len(model.tokenizer)
    else:
        model, size = Classifier.create(encoder(architecture), LABELS), 50
    victim = ClassifierVictim(model)
    block = victim.padding_block
    assert block in (1, *BLOCKS)
    if block == 1:
        return
    draw = np.random.default_rng(1)
    for low in (1, block + 1, 3 * block + 1):
        high = low + block - 2
        rows = [draw.integers(5, size, draw.integers(low, high + 1)) for _ in range(20)]
        longest = max(map(len, rows))
        ids = np.array([np.pad(row, (0, longest - len(row))) for row in rows])
        mask = np.array([np.arange(longest) < len(row) for row in rows]).astype(np.int64)
        padded = victim.launch([TokenBatch(ids, mask)])()
        alone = victim.launch([TokenBatch(row[None]) for row in rows])()
        assert np.array_equal(padded, alone)


def test_one_bit_is_enough_to_tell() -> None:
    def launch(batches: Sequence[TokenBatch]) -> Pending:
        sums = [
            (batch.ids if batch.mask is None else batch.ids * batch.mask).sum(axis=1) / np.float32(1e4)
            for batch in batches
        ]
        scores = np.concatenate(sums).astype(np.float32)[:, None]
        if nudged and any(batch.mask is not None for batch in batches):
            scores[4] = np.nextafter(scores[4], np.float32(2))
        return lambda: scores

    nudged = False
    assert padding_keeps_bits(launch, 16, 100, 64)
    nudged = True
    assert not padding_keeps_bits(launch, 16, 100, 64)
    assert padding_keeps_bits(launch, 16, 100, 8)  # too short to be padded at all
