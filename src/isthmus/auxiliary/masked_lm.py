"""Masked language models: they predict the words of blanks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.packed import MOST_TOKENS, Packing, PackingTrial, can_pack, in_passes, read_packed
from isthmus.arithmetic.products import lay_out
from isthmus.arithmetic.transfer import any_shape, attention_mask, index_tensor, on_device, pending
from isthmus.auxiliary.minilm_mlm import MAX_TOKENS, load_minilm_mlm
from isthmus.core.errors import ModelError, UsageError, VictimError
from isthmus.core.types import Bools, Filling, Floats, Ints, Pending, TokenBatch
from isthmus.models.backbones import encoder_blocks
from isthmus.models.pretrained import token_limit
from isthmus.models.transformers_files import read_config, read_tokenizer, read_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_AT_ONCE = {False: (8192, 1024), True: (1 << 18, 1 << 13)}
"""Tokens and blanks of one forward pass, on a CPU and on a GPU: a blank takes as many numbers as there are tokens."""
_SHORTEST = 4
"""Tokens of a short row; it bounds the number of rows, and so of blanks, in a pass."""


def load_masked_lm(name: str = "minilm") -> TransformerMaskedLM:
    """The masked language model `name` (an asset, a folder, a hub name), loaded once per process."""
    return _load_masked_lm(name)


@functools.cache
def _load_masked_lm(name: str) -> TransformerMaskedLM:
    return TransformerMaskedLM(name)


class TransformerMaskedLM:
    """Any ``AutoModelForMaskedLM`` folder or hub name as `MaskedLM`, and ``minilm`` with the head isthmus ships."""

    def __init__(self, name: str | Path = "minilm", *, device: str | None = None) -> None:
        self._name = str(name)
        self._tokenizer = read_tokenizer(name)
        if self._tokenizer.mask_token_id is None:
            raise ModelError(f"the tokenizer of {str(name)!r} has no mask token, so it cannot fill blanks")
        model, self.max_tokens = _read_model(name, self._tokenizer)
        self.model = model.eval().requires_grad_(False)
        self._masks: dict[int, Tensor] = {}
        self.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def name(self) -> str:
        """The name it was loaded by."""
        return self._name

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's own tokenizer."""
        return self._tokenizer

    def fill(self, batch: TokenBatch, positions: Ints, k: int) -> tuple[Ints, Floats]:
        """The `k` most likely tokens at each row's position, the most likely first, and their probabilities."""
        rows, length = batch.ids.shape
        if len(positions) != rows or np.any((positions < 0) | (positions >= length)):
            raise UsageError(f"one position from 0 to {length - 1} for each of {rows} rows, not {list(positions)[:5]}")
        if length > self.max_tokens:
            raise UsageError(f"{self.name} reads at most {self.max_tokens} tokens, not {length}: cut a window")
        size = int(self.model.config.vocab_size)
        if not 1 <= k <= size:
            raise UsageError(f"k is between 1 and the size of the vocabulary, {size}, not {k}")
        tokens, chances = self.launch_fill([batch], np.arange(rows), positions, k, np.ones(size, bool))()
        if not np.isfinite(chances).all():
            raise VictimError(f"the masked language model {self.name} returned NaN")
        return tokens, chances

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.model.device.type)

    def launch_fill(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, k: int, allowed: Bools) -> Filling:
        """Launch the search for the `k` most likely allowed tokens at every blank (see `TokenMaskedLM`)."""
        tokens, chances = list[Tensor](), list[Tensor]()
        with torch.inference_mode(), any_shape(), lay_out(self.model):
            forbidden = self._forbidden(allowed)
            order, all_logits = self._logits(batches, rows, places)
            for logits, _ in all_logits:
                total = logits.logsumexp(dim=-1, keepdim=True)
                best = logits.masked_fill_(forbidden, -torch.inf).topk(k)
                tokens.append(best.indices)
                chances.append((best.values - total).exp())
            found = pending(torch.cat(tokens)) if tokens else (lambda: np.empty((0, k), np.float32))
            weights = pending(torch.cat(chances)) if chances else (lambda: np.empty((0, k), np.float32))
        return lambda: (found().astype(np.int64, copy=False)[order], weights()[order])

    def launch_likelihood(self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, tokens: Ints) -> Pending:
        """Launch the computation of a token's log-probability at every blank (see `TokenMaskedLM`)."""
        values = list[Tensor]()
        with torch.inference_mode(), any_shape(), lay_out(self.model):
            order, all_logits = self._logits(batches, rows, places)
            for logits, own in all_logits:
                wanted = index_tensor(tokens[own], logits.device)
                values.append(logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(dim=-1))
            found = pending(torch.cat(values)) if values else (lambda: np.empty(0, np.float32))
        return lambda: found()[order]

    def _forbidden(self, allowed: Bools) -> Tensor:
        """Mask of the tokens that are not allowed, on the device; cached, since few such sets exist."""
        key = hash(allowed.tobytes())
        if key not in self._masks:
            forbidden = np.ones(int(self.model.config.vocab_size), bool)
            forbidden[: len(allowed)] = ~allowed[: len(forbidden)]
            self._masks[key] = torch.from_numpy(forbidden).to(self.model.device)
        return self._masks[key]

    def _logits(
        self, batches: Sequence[TokenBatch], rows: Ints, places: Ints
    ) -> tuple[Ints, Iterator[tuple[Tensor, Ints]]]:
        """The order of the blanks, and their logits [blanks, vocabulary] in parts, with the numbers of their blanks."""
        by_row = np.argsort(rows, kind="stable")
        order = np.empty_like(by_row)
        order[by_row] = np.arange(len(by_row))
        return order, self._in_parts(batches, rows, places, by_row)

    def _in_parts(
        self, batches: Sequence[TokenBatch], rows: Ints, places: Ints, by_row: Ints
    ) -> Iterator[tuple[Tensor, Ints]]:
        first, starts = 0, rows[by_row]
        for part, count, packing in self._parts(batches, rows):
            blanks = np.searchsorted(starts, (first, first + count))
            own = by_row[blanks[0] : blanks[1]]
            if len(own):
                yield self._forward(part, rows[own] - first, places[own], packing), own
            first += count

    def _parts(self, batches: Sequence[TokenBatch], rows: Ints) -> Iterator[tuple[TokenBatch, int, Packing | None]]:
        """The batches in parts of a few thousand tokens and blanks, each with the number of its rows."""
        most_tokens, most_blanks = _AT_ONCE[self.model.device.type == "cuda"]
        blanks = np.bincount(rows, minlength=sum(len(batch.ids) for batch in batches))
        light = len(blanks) > 0 and blanks.max() * MOST_TOKENS <= most_blanks * _SHORTEST
        if light and self._trial is not None and self._trial.allows(batches):
            yield from in_passes(batches, fewest_rows(self.model), self._tokenizer.pad_token_id or 0)
            return
        first = 0
        for batch in batches:
            count, length = batch.ids.shape
            before = np.concatenate([[0], np.cumsum(blanks[first : first + count])])
            start = 0
            while start < count:
                most = np.searchsorted(before, before[start] + most_blanks, side="right") - 1
                stop = max(start + 1, min(int(most), start + most_tokens // max(1, length), count))
                yield _take_rows(batch, start, stop), stop - start, None
                start = stop
            first += count

    @functools.cached_property
    def _trial(self) -> PackingTrial | None:
        """The trial whether rows of all lengths may share a pass; None if there is nothing to try."""
        base, depth = self.model.base_model, int(self.model.config.num_hidden_layers)
        if self.device_type != "cpu" or not can_pack(self.model, encoder_blocks(base, self.model.config), depth):
            return None

        def answer(parts: Iterable[tuple[TokenBatch, int, Packing | None]]) -> Floats:
            found = [self._forward(part, np.arange(n), np.ones(n, np.int64), how) for part, n, how in parts]
            return torch.cat(found).numpy()

        pad = self._tokenizer.pad_token_id or 0
        return PackingTrial(
            lambda batches: answer((batch, len(batch.ids), None) for batch in batches),
            lambda batches: answer(in_passes(batches, fewest_rows(self.model), pad)),
            int(self.model.config.vocab_size),
            self.max_tokens,
        )

    def _forward(self, batch: TokenBatch, rows: Ints, places: Ints, packing: Packing | None) -> Tensor:
        (inputs,) = on_device([batch], self.model.device, self.model)
        least = fewest_rows(self.model) if self.device_type == "cpu" else 1
        at = (index_tensor(array, self.model.device, least) for array in (rows, places))
        mask = attention_mask(self.model, inputs.mask)
        given = {"input_ids": inputs.ids, "attention_mask": mask, "token_type_ids": inputs.types}
        blocks = encoder_blocks(self.model.base_model, self.model.config) if packing is not None else []
        way = contextlib.nullcontext() if packing is None else read_packed(self.model, blocks, packing)
        with self._only_at(*at), way:
            logits: Tensor = self.model(**{name: value for name, value in given.items() if value is not None}).logits
        return logits[0, : len(rows)].float()

    @contextmanager
    def _only_at(self, rows: Tensor, places: Tensor) -> Iterator[None]:
        """Pass only the blanks to the head: its product over the whole vocabulary is most of the cost."""

        def select(_module: Any, _inputs: Any, output: Any) -> Any:
            output["last_hidden_state"] = output.last_hidden_state[rows, places][None]
            return output

        hook = self.model.base_model.register_forward_hook(select)
        try:
            yield
        finally:
            hook.remove()


def _take_rows(batch: TokenBatch, start: int, stop: int) -> TokenBatch:
    return TokenBatch(
        batch.ids[start:stop],
        None if batch.mask is None else batch.mask[start:stop],
        None if batch.types is None else batch.types[start:stop],
    )


def _read_model(name: str | Path, tokenizer: PreTrainedTokenizerBase) -> tuple[PreTrainedModel, int]:
    """The model, and the longest row it reads."""
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
