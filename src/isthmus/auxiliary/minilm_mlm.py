"""MiniLM as a masked language model: the ``minilm`` encoder plus 3.5 MB of trained differences that ship with isthmus.

    W' = W + (code − 1.5) · scale_row,  code in 0 … 3        (all six linear maps of a layer)
    E' = E, but E'[mask] = E[mask] + m                        (input side)
    logits = LayerNorm(gelu(h D + d)) · (E + U V)ᵀ + b        (h: the last hidden state)

Biases and layer norms are replaced. The encoder alone has no such ability: it was trained to embed sentences, and its
state at a blank says little. The differences were trained for it on rows of at most 128 tokens, so longer ones are not
to be fed. Of masked tokens in held-out English text the right one was among the first ten for 70 % (mean over 25 sets
of reviews, news, encyclopaedia, dialogue and questions); a full fine-tuning of the encoder reached 73 %.

The weights are our own work, but some of the text they were trained on (IMDB and Rotten Tomatoes reviews, AG News,
among others) is licensed for research only: see ``minilm_mlm.NOTICE`` beside the file before commercial use, or name
another masked language model.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.core.errors import ModelError
from isthmus.models.transformers_files import read_config, read_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MAX_TOKENS = 128
"""Longest row the differences were trained on, special tokens included."""

_LINEAR = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "f1": "intermediate.dense",
    "f2": "output.dense",
}
_NORMS = {"ln1": "attention.output.LayerNorm", "ln2": "output.LayerNorm"}
_MASK = 103
_HEAD = "cls.predictions"


def load_minilm_mlm(encoder: str | Path = "minilm") -> PreTrainedModel:
    """The ``minilm`` asset as a ``BertForMaskedLM``, on the CPU, in float32."""
    from transformers import BertForMaskedLM

    config = read_config(encoder)
    config.tie_word_embeddings = False
    model, _ = read_weights(BertForMaskedLM, encoder, config)
    if model.config.vocab_size != 30522 or model.config.hidden_size != 384 or model.config.num_hidden_layers != 6:
        raise ModelError(f"{str(encoder)!r} is not all-MiniLM-L6-v2, to which the shipped masked-LM weights belong")
    state = model.state_dict()
    with torch.inference_mode():
        changed = _restore_changed(state, _differences())
    model.load_state_dict({**state, **{name: value.clone() for name, value in changed.items()}})
    return model


def _differences() -> dict[str, Tensor]:
    from safetensors.torch import load

    content = resources.files(__package__).joinpath("minilm_mlm.safetensors").read_bytes()
    return {name: value if value.dtype == torch.uint8 else value.float() for name, value in load(content).items()}


def _restore_changed(state: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Restore every parameter that differs from the encoder's."""
    new: dict[str, Tensor] = {}
    for layer in range(6):
        target = f"bert.encoder.layer.{layer}"
        for short, name in _LINEAR.items():
            weight, of = state[f"{target}.{name}.weight"], f"layers.{layer}.{short}"
            codes = _two_bits(given[f"{of}.codes"]).reshape(weight.shape)
            new[f"{target}.{name}.weight"] = weight + (codes - 1.5) * given[f"{of}.scale"][:, None]
            new[f"{target}.{name}.bias"] = given[f"{of}.bias"]
        for short, name in _NORMS.items():
            _copy_norm(new, given, f"{target}.{name}", f"layers.{layer}.{short}")
    _copy_norm(new, given, "bert.embeddings.LayerNorm", "eln")
    _copy_norm(new, given, f"{_HEAD}.transform.LayerNorm", "heads.last.ln")
    table = state["bert.embeddings.word_embeddings.weight"]
    new[f"{_HEAD}.transform.dense.weight"] = _read_rows(given, "heads.last.dense.weight")
    new[f"{_HEAD}.transform.dense.bias"] = given["heads.last.dense.bias"]
    new[f"{_HEAD}.decoder.weight"] = table + _read_rows(given, "heads.last.U") @ given["heads.last.Vv"]
    new[f"{_HEAD}.decoder.bias"] = new[f"{_HEAD}.bias"] = given["heads.last.bias"]
    blank = table.clone()
    blank[_MASK] += given["maskvec"]
    new["bert.embeddings.word_embeddings.weight"] = blank
    return new


def _two_bits(packed: Tensor) -> Tensor:
    """Unpack four codes of two bits from each byte, the lowest bits first."""
    return torch.stack([(packed >> shift) & 3 for shift in (0, 2, 4, 6)], dim=1).flatten().float()


def _read_rows(given: dict[str, Tensor], name: str) -> Tensor:
    return given[f"{name}.q8"] * given[f"{name}.s"][:, None]


def _copy_norm(new: dict[str, Tensor], given: dict[str, Tensor], target: str, source: str) -> None:
    for part in ("weight", "bias"):
        new[f"{target}.{part}"] = given[f"{source}.{part}"]
