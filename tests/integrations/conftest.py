from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

WORDS = ["a", "the", "and", "of", "good", "great", "lovely", "bad", "dull", "film", "plot", "story"]


def _write_tiny_model(folder: Path) -> None:
    """A classifier with random weights, as transformers saves one."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)))
    tokenizer = BertTokenizer(str(folder / "vocab.txt"), model_max_length=32)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=32, id2label={0: "negative", 1: "positive"}, label2id={"negative": 0, "positive": 1},
        initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def tiny() -> Callable[[Path], None]:
    return _write_tiny_model
