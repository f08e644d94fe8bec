"""Tiny random encoders of every architecture, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForTextEncoding, PreTrainedTokenizerFast

WORDS = [
    "a",
    "an",
    "the",
    "film",
    "movie",
    "fine",
    "dull",
    "moving",
    "quiet",
    "story",
    "was",
    "is",
    "not",
    "very",
    "long",
    "too",
    "and",
    "but",
    "nobody",
    "saw",
    "it",
    "twice",
]
PIECES = ["##s", "##ly", "##ing", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
VOCABULARY = [*SPECIALS, *WORDS, *PIECES, *"abcdefghijklmnopqrstuvwxyz.,!?'"]

SMALL: dict[str, Any] = {
    "vocab_size": len(VOCABULARY) + 3,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
    "pad_token_id": 0,
}

CONFIGS = {
    "bert": lambda: transformers.BertConfig(**SMALL),
    "roberta": lambda: transformers.RobertaConfig(**SMALL, type_vocab_size=1),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=SMALL["vocab_size"], dim=32, n_layers=3, n_heads=2, hidden_dim=48, max_position_embeddings=66
    ),
    "deberta-v2": lambda: transformers.DebertaV2Config(
        **{**SMALL, "position_buckets": 8, "norm_rel_ebd": "layer_norm"},
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    ),
    "mpnet": lambda: transformers.MPNetConfig(**SMALL),
    "electra": lambda: transformers.ElectraConfig(**SMALL, embedding_size=16),
    "albert": lambda: transformers.AlbertConfig(**SMALL, embedding_size=16),
    "xlnet": lambda: transformers.XLNetConfig(
        vocab_size=SMALL["vocab_size"], d_model=32, n_layer=3, n_head=2, d_inner=48, pad_token_id=0
    ),
    "t5": lambda: transformers.T5Config(
        vocab_size=SMALL["vocab_size"], d_model=32, d_kv=16, d_ff=48, num_layers=3, num_heads=2, pad_token_id=0
    ),
}


def tiny_tokenizer(cls: bool = True) -> PreTrainedTokenizerFast:
    """Sub-words; every text begins with a token for the whole of it, or, as T5's do, with its first word."""
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(VOCABULARY)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if cls else "$A </s>",
        pair="<s> $A </s> $B:1 </s>:1" if cls else "$A </s> $B:1 </s>:1",
        special_tokens=[("<s>", 2), ("</s>", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="<pad>",
        unk_token="<unk>",
        sep_token="</s>",
        mask_token="<mask>",
        **({"cls_token": "<s>"} if cls else {}),
    )


def save_encoder(architecture: str, folder: Path, cls: bool = True) -> Path:
    """The folder a user would have, with random weights."""
    auto: Any = AutoModelForTextEncoding if architecture == "t5" else AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(1)
        auto.from_config(CONFIGS[architecture]()).save_pretrained(folder)
    tiny_tokenizer(cls).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny encoder with random weights."""
    made: dict[str, Path] = {}

    def make(architecture: str) -> Path:
        if architecture not in made:
            made[architecture] = save_encoder(architecture, tmp_path_factory.mktemp(architecture))
        return made[architecture]

    return make
