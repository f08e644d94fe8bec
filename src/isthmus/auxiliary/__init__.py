"""Auxiliary models of attacks: sentence encoders and masked language models.

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isthmus.auxiliary.masked_lm import TransformerMaskedLM, load_masked_lm
    from isthmus.auxiliary.sentence_encoder import TransformerSentenceEncoder, load_encoder

_HOMES = {
    "TransformerMaskedLM": "masked_lm",
    "TransformerSentenceEncoder": "sentence_encoder",
    "load_encoder": "sentence_encoder",
    "load_masked_lm": "masked_lm",
}

__all__ = ["TransformerMaskedLM", "TransformerSentenceEncoder", "load_encoder", "load_masked_lm"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
