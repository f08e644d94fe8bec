"""Sentence encoders: they measure the similarity that word attacks must keep.

vector = h / |h|,  h = the mean of the last hidden states (or the first, where the encoder's folder says so)

On a GPU a float16 copy of the weights answers whoever asks for rough vectors. How rough is measured when it is first
asked for: the largest error of the cosines of random rows that differ in one token, times 4.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from isthmus.arithmetic.batching import batches_of
from isthmus.arithmetic.machine import fewest_rows
from isthmus.arithmetic.packed import PackingTrial, can_pack, in_passes, read_packed
from isthmus.arithmetic.products import lay_out
from isthmus.arithmetic.transfer import Inputs, any_shape, attention_mask, on_device, pending
from isthmus.core.errors import VictimError
from isthmus.core.files import read_json
from isthmus.core.types import Floats, Ints, Pending, TokenBatch
from isthmus.models.backbones import encoder_blocks, mean_pool
from isthmus.models.pretrained import token_limit
from isthmus.models.transformers_files import locate, read_config, read_tokenizer, read_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel


_TENSOR_CORES = (7, 0)
"""The first compute capability at which float16 is fast."""
_TRIED = 256
_LENGTHS = (8, 16, 32)
_SAFETY = 4.0


def load_encoder(name: str = "minilm") -> TransformerSentenceEncoder:
    """The sentence encoder `name` (an asset, a folder, a hub name), loaded once per process."""
    return _load_encoder(name)


@functools.cache
def _load_encoder(name: str) -> TransformerSentenceEncoder:
    return TransformerSentenceEncoder(name)


class TransformerSentenceEncoder:
    """A transformers encoder as `SentenceEncoder`; texts of equal length are encoded together, without padding."""

    def __init__(
        self, name: str | Path = "minilm", *, device: str | None = None, max_tokens: int | None = None
    ) -> None:
        from transformers import AutoModel

        config = read_config(name)
        self._name = str(name)
        self.tokenizer = read_tokenizer(name)
        # Nothing trains here, and no pooler is read, so one that is missing from the folder does no harm.
        self.model = read_weights(AutoModel, name, config)[0].eval().requires_grad_(False)
        self.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        folder = Path(locate(name))
        stated = _setting(folder / "sentence_bert_config.json", "max_seq_length")
        limit = token_limit(self.tokenizer, config)
        self.max_tokens = max_tokens or (min(limit, stated) if isinstance(stated, int) else limit)
        self._first = bool(_setting(folder / "1_Pooling" / "config.json", "pooling_mode_cls_token"))

    @property
    def name(self) -> str:
        """The name it was loaded by."""
        return self._name

    @property
    def width(self) -> int:
        """Length of a vector."""
        return int(self.model.config.hidden_size)

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.model.device.type)

    def launch(self, batches: Sequence[TokenBatch]) -> Pending:
        """Launch the encoding of token rows; the pending result holds their unit vectors, in order."""
        with torch.inference_mode(), any_shape(), lay_out(self.model):
            way = self._in_passes if self._trial is not None and self._trial.allows(batches) else self._apart
            return _joined(way(batches), self.width)

    def launch_roughly(self, batches: Sequence[TokenBatch]) -> Pending:
        """Launch it in float16, whose cosines are within `rough_error` of the exact ones."""
        with torch.inference_mode(), any_shape():
            return _joined(self._apart(batches, self._half), self.width)

    @functools.cached_property
    def rough_error(self) -> float | None:
        """An estimate of the largest error of a cosine in float16; None on a CPU and wherever float16 fails."""
        if self.device_type != "cuda" or torch.cuda.get_device_capability(self.model.device) < _TENSOR_CORES:
            return None
        found = None
        with contextlib.suppress(Exception):  # There is no room for a copy of the weights, or a layer has no float16.
            found = self._largest_error()
        if found is None:
            self.__dict__.pop("_half", None)
        return found

    def _largest_error(self) -> float | None:
        found = []
        for rows in _alike(int(self.model.config.vocab_size), self.max_tokens):
            exact, rough = (way([TokenBatch(rows)])() for way in (self.launch, self.launch_roughly))
            half = len(rows) // 2
            cosines = [np.einsum("ij,ij->i", vectors[:half], vectors[half:]) for vectors in (exact, rough)]
            found.append(np.abs(cosines[0] - cosines[1]).max())
        return _SAFETY * float(max(found)) if np.isfinite(found).all() else None

    @functools.cached_property
    def _half(self) -> PreTrainedModel:
        half: PreTrainedModel = copy.deepcopy(self.model).half()
        return half

    @functools.cached_property
    def _trial(self) -> PackingTrial | None:
        """The trial whether rows of all lengths may share a pass; None if there is nothing to try."""
        if self.device_type != "cpu" or not can_pack(self.model, self._blocks, self.model.config.num_hidden_layers):
            return None
        return PackingTrial(
            lambda batches: torch.cat(list(self._apart(batches))).numpy(),
            lambda batches: torch.cat(list(self._in_passes(batches))).numpy(),
            int(self.model.config.vocab_size),
            self.max_tokens,
        )

    @functools.cached_property
    def _blocks(self) -> list[nn.Module]:
        return encoder_blocks(self.model, self.model.config)

    def _apart(self, batches: Sequence[TokenBatch], model: PreTrainedModel | None = None) -> Iterator[Tensor]:
        """Unit vectors, computed batch by batch."""
        model = model or self.model
        for inputs in on_device(batches, model.device, model):
            yield self._vectors(model, inputs)

    def _in_passes(self, batches: Sequence[TokenBatch]) -> Iterator[Tensor]:
        """Unit vectors of rows of all lengths, computed a few thousand tokens at a time."""
        pad = self.tokenizer.pad_token_id or 0
        for batch, count, packing in in_passes(batches, fewest_rows(self.model), pad):
            with read_packed(self.model, self._blocks, packing):
                hidden = self.model(input_ids=torch.from_numpy(batch.ids)).last_hidden_state
            rows = hidden[:, 0]
            if not self._first:
                places = packing.places()
                own = (hidden[start : start + held, :length] for start, length, held in places)
                rows = torch.cat([mean_pool(each.contiguous(), None) for each in own])
            yield torch.nn.functional.normalize(rows[:count].float(), dim=-1)

    def _vectors(self, model: PreTrainedModel, inputs: Inputs) -> Tensor:
        # Segment ids are left out: every row is one text.
        mask = attention_mask(model, inputs.mask)
        hidden = model(input_ids=inputs.ids, attention_mask=mask).last_hidden_state.float()
        pooled = hidden[:, 0] if self._first else mean_pool(hidden, inputs.mask)
        return torch.nn.functional.normalize(pooled[: inputs.rows], dim=-1)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Unit vectors [texts, width]."""
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        for rows, batch in batches_of(self.tokenizer, [list(texts)], self.max_tokens):
            vectors[rows] = self.launch([batch])()
        if not np.isfinite(vectors).all():
            bad = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise VictimError(f"the sentence encoder {self.name} returned NaN for {texts[bad]!r:.80}")
        return vectors


def _joined(rows: Iterator[Tensor], width: int) -> Pending:
    found = list(rows)
    return pending(torch.cat(found) if found else torch.empty(0, width))


def _alike(size: int, most: int) -> Iterator[Ints]:
    """Rows of random token ids, of some lengths; those of the second half differ from the first in one token."""
    draws = np.random.default_rng(0)
    for length in sorted({min(length, most) for length in _LENGTHS}):
        rows = draws.integers(0, size, (_TRIED, length))
        others = rows.copy()
        others[:, length // 2] = draws.integers(0, size, _TRIED)
        yield np.concatenate([rows, others])


def _setting(file: Path, key: str) -> object:
    if not file.is_file():
        return None
    settings = read_json(file)
    return settings.get(key) if isinstance(settings, dict) else None
