"""Rows of many lengths in one pass get the bits that they get in batches of their own length."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoder_toys import tiny_tokenizer
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    MPNetConfig,
    RobertaConfig,
)

from isthmus.arithmetic.packed import MOST_TOKENS, Packing, in_passes
from isthmus.auxiliary import TransformerMaskedLM, TransformerSentenceEncoder
from isthmus.core.types import TokenBatch
from isthmus.models.stock import from_transformers
from isthmus.models.victims import ClassifierVictim

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 160,
    "initializer_range": 0.3,
    "num_labels": 3,
}
ENCODERS = {
    "bert": BertConfig(**SIZES),
    "electra": ElectraConfig(**SIZES, embedding_size=32),
    "roberta": RobertaConfig(**SIZES, pad_token_id=1),
    "distilbert": DistilBertConfig(
        **{"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "num_labels": 3}
    ),
    "mpnet": MPNetConfig(**SIZES),
    "albert": AlbertConfig(**SIZES, embedding_size=32),
}


def victim_of(kind: str) -> ClassifierVictim:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(ENCODERS[kind])
    return ClassifierVictim(from_transformers(model, tiny_tokenizer()))


def rows_of(lengths: list[tuple[int, int]]) -> list[TokenBatch]:
    draw = np.random.default_rng(3)
    return [TokenBatch(draw.integers(5, 59, (count, length))) for length, count in lengths]


def many(victim: ClassifierVictim) -> None:
    """Let it believe that enough rows came for a trial."""
    if (trial := victim._trial(exact=False)) is not None:
        trial.allows([TokenBatch(np.zeros((1000, 3), np.int64))])


def packs(victim: ClassifierVictim) -> bool:
    trial = victim._trial(exact=False)
    return trial is not None and bool(trial.holds)


LENGTHS = [(3, 1), (4, 3), (5, 1), (9, 7), (17, 2), (31, 1), (64, 5), (100, 1)]


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_pass_of_all_lengths_gives_the_bits_of_batches_of_one(kind: str) -> None:
    victim, batches = victim_of(kind), rows_of(LENGTHS)
    encoder: Any = victim.model.backbone.model
    attention = encoder.config._attn_implementation
    apart = victim.launch(batches)()
    asked = victim.passes
    many(victim)
    assert victim.passes == asked  # A trial is not a query.
    assert packs(victim) is (kind in ("bert", "electra", "roberta", "distilbert"))
    assert np.array_equal(victim.launch(batches)(), apart)
    for at, batch in ((0, batches[0]), (4, batches[2]), (len(apart) - 1, batches[-1])):
        assert np.array_equal(victim.launch([batch])()[0], apart[at])
    assert encoder.config._attn_implementation == attention  # As it was.


def test_a_pass_that_fails_leaves_the_model_as_it_was() -> None:
    victim = victim_of("bert")
    many(victim)
    assert packs(victim)
    before = victim.launch(rows_of(LENGTHS))()
    with pytest.raises(Exception, match="the model failed on 1 batches"):
        victim.launch([TokenBatch(np.array([[5, 6, 999]]))])
    assert np.array_equal(victim.launch(rows_of(LENGTHS))(), before)


def test_few_rows_are_tried_nothing() -> None:
    victim = victim_of("bert")
    victim.launch(rows_of(LENGTHS[:3]))
    assert not packs(victim)
    victim.launch(rows_of(LENGTHS[:4]))
    assert packs(victim)


def test_segments_and_keys_go_along() -> None:
    batches = [
        TokenBatch(np.array([[5, 6, 7]]), None, np.array([[0, 1, 1]]), np.array([3], np.uint64)),
        TokenBatch(np.array([[5, 6, 7, 8]] * 2), None, np.array([[0, 0, 1, 1]] * 2), np.array([4, 5], np.uint64)),
    ]
    ((batch, count, packing),) = in_passes(batches, 4, 0)
    assert count == 3
    assert packing == Packing(((3, 1), (4, 2)), 4)
    assert batch.ids.tolist() == [[5, 6, 7, 0], [5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8]]
    assert batch.types is not None
    assert batch.types.tolist() == [[0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert batch.keys is not None
    assert batch.keys.tolist() == [3, 4, 5, 5]


def test_one_short_row_is_repeated_until_the_blocks_have_enough_tokens() -> None:
    ((batch, count, packing),) = in_passes([TokenBatch(np.array([[5, 6, 7]]))], 16, 0)
    assert count == 1
    assert sum(length * rows for length, rows in packing.groups) >= 16
    assert len(batch.ids) == packing.filled == 16


def test_passes_hold_a_bounded_number_of_tokens() -> None:
    batches = rows_of([(100, 50), (120, 30), (150, 1)])
    passes = list(in_passes(batches, 4, 0))
    assert [row for batch, count, _ in passes for row in batch.ids[:count, 0].tolist()] == [
        row for batch in batches for row in batch.ids[:, 0].tolist()
    ]
    assert len(passes) > 3
    assert all(sum(length * rows for length, rows in each.groups) <= MOST_TOKENS for *_, each in passes)


def test_packing_there_and_back() -> None:
    packing = Packing(((2, 3), (4, 1)), 6)
    rows = torch.arange(6 * 4 * 2.0).view(6, 4, 2)
    back = packing.unpack(packing.pack(rows))
    assert torch.equal(back[:3, :2], rows[:3, :2])
    assert torch.equal(back[3], rows[3])
    assert not back[:3, 2:].any()
    assert torch.equal(back[4:], back[3].expand(2, 4, 2))


@pytest.mark.parametrize("first", [False, True])
def test_sentence_vectors_have_the_same_bits_in_passes(first: bool, encoder: Callable[[str], Path]) -> None:
    ours, batches = TransformerSentenceEncoder(encoder("bert"), device="cpu"), rows_of(LENGTHS[:6])
    ours._first = first
    apart = ours.launch(batches)()
    assert ours._trial is not None
    ours._trial.allows([TokenBatch(np.zeros((1000, 3), np.int64))])
    assert ours._trial.holds
    assert np.array_equal(ours.launch(batches)(), apart)


def test_blanks_have_the_same_bits_in_passes(encoder: Callable[[str], Path], tmp_path: Path) -> None:
    torch.manual_seed(2)
    AutoModelForMaskedLM.from_pretrained(encoder("bert")).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    ours, batches = TransformerMaskedLM(tmp_path, device="cpu"), rows_of(LENGTHS[:6])
    count = sum(len(batch.ids) for batch in batches)
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(count), 2))  # Two blanks in every row.
    places, tokens = rows % 3, rows % 7 + 5
    allowed = np.ones(int(ours.model.config.vocab_size), bool)
    apart = (*ours.launch_fill(batches, rows, places, 4, allowed)(),
             ours.launch_likelihood(batches, rows, places, tokens)())  # fmt: skip
    assert ours._trial is not None
    ours._trial.allows([TokenBatch(np.zeros((1000, 3), np.int64))])
    assert ours._trial.holds
    together = (*ours.launch_fill(batches, rows, places, 4, allowed)(),
                ours.launch_likelihood(batches, rows, places, tokens)())  # fmt: skip
    assert all(np.array_equal(one, other) for one, other in zip(apart, together, strict=True))
