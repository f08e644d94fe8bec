"""Masked language models: what could stand in a blank."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.core.errors import ModelError, UsageError, VictimError
from isthmus.core.types import Floats, Ints, TokenBatch
from isthmus.models._hub import read_config, read_tokenizer, read_weights
from isthmus.models.minilm_mlm import MAX_TOKENS, load_minilm_mlm
from isthmus.models.storage import token_limit

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TOKENS_AT_ONCE = 8192


def load_masked_lm(name: str = "minilm") -> TransformerMaskedLM:
    """The masked language model of that name (an asset, a folder, a hub name), loaded once for the whole process."""
    return _loaded(name)


@functools.cache
def _loaded(name: str) -> TransformerMaskedLM:
    return TransformerMaskedLM(name)


class TransformerMaskedLM:
    """Any ``AutoModelForMaskedLM`` folder or hub name as `MaskedLM`, and ``minilm`` with the head isthmus ships."""

    def __init__(self, name: str | Path = "minilm", *, device: str | None = None) -> None:
        self._name = str(name)
        self._tokenizer = read_tokenizer(name)
        if self._tokenizer.mask_token_id is None:
            raise ModelError(f"the tokenizer of {str(name)!r} has no mask token, so it cannot fill blanks")
        model, self.max_tokens = _read(name, self._tokenizer)
        self.model = model.eval().requires_grad_(False)
        self.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def name(self) -> str:
        """As it was asked for."""
        return self._name

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its own tokenizer."""
        return self._tokenizer

    def fill(self, batch: TokenBatch, positions: Ints, k: int) -> tuple[Ints, Floats]:
        """The `k` likeliest tokens at each row's position, the likeliest first, and their probabilities."""
        rows, length = batch.ids.shape
        if len(positions) != rows or np.any((positions < 0) | (positions >= length)):
            raise UsageError(f"one position from 0 to {length - 1} for each of {rows} rows, not {list(positions)[:5]}")
        if length > self.max_tokens:
            raise UsageError(f"{self.name} reads at most {self.max_tokens} tokens, not {length}: cut a window")
        size = int(self.model.config.vocab_size)
        if not 1 <= k <= size:
            raise UsageError(f"k is between 1 and the size of the vocabulary, {size}, not {k}")
        tokens, chances = np.empty((rows, k), dtype=np.int64), np.empty((rows, k), dtype=np.float32)
        step = max(_TOKENS_AT_ONCE // max(length, 1), 1)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            with torch.inference_mode():
                best = torch.softmax(self._logits(batch, positions, part), dim=-1).topk(k)
            tokens[part], chances[part] = best.indices.cpu().numpy(), best.values.cpu().numpy()
        if not np.isfinite(chances).all():
            raise VictimError(f"the masked language model {self.name} returned NaN")
        return tokens, chances

    def _logits(self, batch: TokenBatch, positions: Ints, part: slice) -> Tensor:
        device = self.model.device
        names = {"input_ids": batch.ids, "attention_mask": batch.mask, "token_type_ids": batch.types}
        given = {name: torch.from_numpy(array[part]).to(device) for name, array in names.items() if array is not None}
        wanted = torch.from_numpy(np.ascontiguousarray(positions[part])).to(device)
        with self._only_at(wanted):
            logits: Tensor = self.model(**given).logits
        return logits[:, 0].float()

    @contextmanager
    def _only_at(self, positions: Tensor) -> Iterator[None]:
        """Let the head see one position of each row: its vocabulary-wide product is most of the cost."""

        def select(_module: Any, _inputs: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            output["last_hidden_state"] = hidden[torch.arange(len(hidden), device=hidden.device), positions][:, None]
            return output

        hook = self.model.base_model.register_forward_hook(select)
        try:
            yield
        finally:
            hook.remove()


def _read(name: str | Path, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, int]:
    """The model, and the longest row it may be fed."""
    from transformers import AutoModelForMaskedLM

    if str(name) == "minilm" and not Path(name).is_dir():
        return load_minilm_mlm(), MAX_TOKENS
    config = read_config(name)
    model, missing = read_weights(AutoModelForMaskedLM, name, config)
    if missing:
        raise ModelError(
            f"{str(name)!r} is an encoder without a masked-language-model head ({sorted(missing)[0]} is missing)"
        )
    return model, token_limit(tokenizer, config)
