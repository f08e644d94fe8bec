"""Victims of the benchmark: one that notes what is asked of another, and one that costs nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.core.types import Floats, Pending, Texts, TokenBatch, TokenVictim

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Sent(NamedTuple):
    """One batch as it went to the model."""

    ids: NDArray[np.int64]  # [rows, length]
    lengths: NDArray[np.int64]  # [rows], without the padding


class NotingVictim:
    """Passes every batch on to `victim`, keeps its token rows, and times the calls.

    Times are kept on both clocks: `starting` is spent inside `launch`, `waiting` inside the pending result. On the
    processor the model works in the first, on a GPU the first is dispatch and the second is the GPU's lead.
    """

    def __init__(self, victim: TokenVictim) -> None:
        self.victim = victim
        self.sent: list[Sent] = []
        self.sent_exactly: list[Sent] = []
        self.tokens = self.padded_tokens = self.rows = self.exact_rows = 0
        self.starting_s = self.waiting_s = self.cpu_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.victim, name)

    # Spelled out because a runtime check of the protocol looks at the class.
    @property
    def labels(self) -> tuple[str, ...]:
        return self.victim.labels

    @property
    def stochastic(self) -> bool:
        return self.victim.stochastic

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        return self.victim.tokenizer

    @property
    def max_tokens(self) -> int:
        return self.victim.max_tokens

    @property
    def device_type(self) -> str:
        return self.victim.device_type

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        raise AssertionError("the engine tokenised this text itself everywhere else: splicing must have been given up")

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        started, cpu = time.perf_counter(), time.process_time()
        pending = self.victim.launch(batches, exact=exact)
        self.starting_s += time.perf_counter() - started
        self.cpu_s += time.process_time() - cpu
        for batch in batches:
            self._note(batch, exact)

        def wait() -> Floats:
            started, cpu = time.perf_counter(), time.process_time()
            scores = pending()
            self.waiting_s += time.perf_counter() - started
            self.cpu_s += time.process_time() - cpu
            return scores

        return wait

    def _note(self, batch: TokenBatch, exact: bool) -> None:
        rows, length = batch.ids.shape
        lengths = np.full(rows, length) if batch.mask is None else batch.mask.sum(axis=1)
        half = getattr(self.victim, "precision", "fp32") != "fp32"
        sent = self.sent_exactly if exact and half else self.sent
        sent.append(Sent(batch.ids.copy(), lengths))  # The engine may use its buffer again.
        self.rows += rows
        self.exact_rows += rows if exact else 0
        self.padded_tokens += rows * length
        self.tokens += int(lengths.sum())


class FreeVictim:
    """Scores that are a hash of the token ids: no model, yet attacks run about as deep as on a real one.

        p(second class) = 1 - h(ids) / 2(1 - q),   h uniform on [0, 1), so that a share q of all texts is below 1/2

    With q = 1/10 a DeepWordBug step of four candidates succeeds in one case of three, and an SST-2 text costs about 20
    queries, as it does on a fine-tuned MiniLM. It calls itself a GPU, so that the engine packs as it would for one.
    """

    labels = ("negative", "positive")
    stochastic = False
    device_type = "cuda"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, flipped: float = 0.1, max_tokens: int = 128) -> None:
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self._scale = np.float32(0.5 / (1 - flipped) / 2**32)
        self.rows = self.batches = 0
        self.seconds = 0.0

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        raise AssertionError("the free victim takes token ids only")

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        started = time.perf_counter()
        scores = np.concatenate([self._hashed(batch.ids) for batch in batches])
        self.rows += len(scores)
        self.batches += len(batches)
        self.seconds += time.perf_counter() - started
        return lambda: scores

    def _hashed(self, ids: NDArray[np.int64]) -> Floats:
        # A product of weights that differ by position: the same words in another order score differently.
        weights = np.arange(1, ids.shape[1] + 1, dtype=np.int64) * 0x9E3779B1 + 0x85EBCA6B
        mixed = (ids @ weights).astype(np.uint32) * np.uint32(0x9E3779B1)
        mixed ^= mixed >> np.uint32(15)
        mixed *= np.uint32(0x85EBCA6B)
        first = (mixed ^ (mixed >> np.uint32(13))).astype(np.float32) * self._scale
        return np.stack([first, 1 - first], axis=1)
