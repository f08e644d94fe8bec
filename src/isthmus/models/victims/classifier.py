"""A classifier of ours, or any transformers classifier, seen as a victim that takes token ids.

Rows of equal length give the same bits whatever they are batched with, as long as a batch has at least four rows
(on the CPU), so short batches are filled up by repeating a row. Nothing here is ever in training mode: a dropout or a
sampling layer left on would answer each query differently and pass for robustness.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus.core.errors import UsageError, VictimError
from isthmus.core.types import Floats, Ints, Pending, Texts, TokenBatch
from isthmus.models.classifier import Classifier
from isthmus.models.randomness import mix64

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Precision = Literal["fp32", "bf16"]

FEWEST_ROWS = 4
"""Smaller batches take other kernels and differ in the last bits."""

_ROWS_PER_BATCH = 64


class ClassifierVictim:
    """A `Classifier` as `Victim`, `TokenVictim` and `Differentiable`.

    A row whose logits are NaN is returned as it is: whoever asked decides what becomes of that row.
    With ``precision="bf16"`` a bfloat16 copy of the weights (made at the first launch) answers, and ``exact=True``
    asks the float32 model.
    """

    def __init__(self, model: Classifier, precision: Precision = "fp32") -> None:
        if precision not in ("fp32", "bf16"):
            raise UsageError(f"precision is 'fp32' or 'bf16', not {precision!r} (fp16 overflows in some encoders)")
        self.model = model.eval()
        self.precision = precision
        self._half: Classifier | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """Class names."""
        return self.model.labels

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the text fields it reads."""
        return self.model.task.fields

    @property
    def stochastic(self) -> bool:
        """Whether a filled slot draws randomness outside training."""
        return self.model.stochastic

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer whose ids `launch` takes."""
        return self.model.tokenizer

    @property
    def max_tokens(self) -> int:
        """Longest row it reads."""
        return self.model.max_tokens

    @property
    def device_type(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.model.device.type

    def _evaluating(self, exact: bool) -> Classifier:
        model = self.model
        if self.precision == "bf16" and not exact:
            if self._half is None:
                self._half = copy.deepcopy(self.model).to(torch.bfloat16)
            model = self._half
        if any(module.training for module in model.modules()):
            model.eval()
        return model

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        """Start scoring all batches; on a GPU the call returns at once and the pending result waits once."""
        model = self._evaluating(exact)
        try:
            with torch.inference_mode():
                rows = [self._forward(model, batch) for batch in batches]
                scores = torch.cat(rows) if rows else torch.empty(0, len(self.labels))
                return _pending(scores)
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model failed on {len(batches)} batches of token ids: {error}") from error

    def _forward(self, model: Classifier, batch: TokenBatch) -> Tensor:
        count, device = len(batch.ids), model.device
        ids, mask, types = (_to_device(array, device) for array in (batch.ids, batch.mask, batch.types))
        assert ids is not None
        if not self.stochastic or batch.keys is None:
            logits = model(ids, mask, types).logits
        else:
            with model.keyed(_to_device(_filled(batch.keys).view(np.int64), device)):
                logits = model(ids, mask, types).logits
        return torch.softmax(logits[:count].float(), dim=-1)

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; texts of equal length are scored together, so the bits do not depend on company."""
        answer = np.empty((len(texts), len(self.labels)), dtype=np.float32)
        order: list[NDArray[np.int64]] = []
        batches: list[TokenBatch] = []
        for rows, batch in self.batches(texts, keys):
            order.append(rows)
            batches.append(batch)
        if batches:
            answer[np.concatenate(order)] = self.launch(batches)()
        return answer

    def batches(
        self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None
    ) -> Iterable[tuple[NDArray[np.int64], TokenBatch]]:
        """Tokenise and group rows of equal length; each batch comes with its rows' positions in `texts`."""
        if not texts:
            return
        try:
            encoded = self.tokenizer(*self.model.columns(texts), truncation="longest_first", max_length=self.max_tokens)
        except (TypeError, UnicodeError, ValueError) as error:
            raise VictimError(f"the tokenizer cannot read one of {len(texts)} texts: {error}") from error
        lengths = np.array([len(row) for row in encoded["input_ids"]])
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for start in range(0, len(same), _ROWS_PER_BATCH):
                rows = same[start : start + _ROWS_PER_BATCH]
                yield (
                    rows,
                    TokenBatch(
                        ids=_stack(encoded["input_ids"], rows),
                        types=_stack(encoded["token_type_ids"], rows) if "token_type_ids" in encoded else None,
                        keys=None if keys is None else keys[rows],
                    ),
                )

    def embedding_gradients(self, batch: TokenBatch, labels: Ints, *, draws: int = 1) -> Floats:
        """Gradient of each row's cross-entropy with respect to its word embeddings, in float32 arithmetic."""
        model = self._evaluating(exact=True)
        count, device = len(batch.ids), model.device
        ids, mask, types = (_to_device(array, device) for array in (batch.ids, batch.mask, batch.types))
        target = _to_device(np.asarray(labels, dtype=np.int64), device)
        keys = None if batch.keys is None else _to_device(_filled(batch.keys).view(np.int64), device)
        assert ids is not None and target is not None
        total: Tensor | None = None
        for draw in range(draws if self.stochastic else 1):
            with model.keyed(None if keys is None else mix64(keys + draw)):
                gradient = _gradient(model, ids, mask, types, target)
            total = gradient if total is None else total + gradient
        assert total is not None
        mean = total[:count] / (draws if self.stochastic else 1)
        return mean.float().cpu().numpy()  # type: ignore[no-any-return]

    def embedding_table(self) -> Floats:
        """Word-piece embeddings [vocabulary, width]."""
        return self.model.table.weight.detach().float().cpu().numpy()  # type: ignore[no-any-return]


def _gradient(model: Classifier, ids: Tensor, mask: Tensor | None, types: Tensor | None, target: Tensor) -> Tensor:
    leaves: list[Tensor] = []

    def leaf(_module: object, _inputs: object, output: Tensor) -> Tensor:
        if leaves:  # Encoder-decoders read the table twice; the encoder comes first.
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[0]

    hook = model.table.register_forward_hook(leaf, prepend=True)
    # cuDNN's recurrent kernels have no backward pass outside training mode.
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=model.backbone.form != "lstm"):
            logits = model(ids, mask, types).logits
            loss = torch.nn.functional.cross_entropy(logits.float(), target, reduction="sum")
            return torch.autograd.grad(loss, leaves[0])[0]
    except (RuntimeError, IndexError, ValueError) as error:
        raise VictimError(f"the model cannot be differentiated on these rows: {error}") from error
    finally:
        hook.remove()


def _filled(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """At least `FEWEST_ROWS` rows, by repeating the last."""
    if 0 < len(array) < FEWEST_ROWS:
        return np.concatenate([array, np.repeat(array[-1:], FEWEST_ROWS - len(array), axis=0)])
    return array


def _to_device(array: NDArray[np.generic] | None, device: torch.device) -> Tensor | None:
    if array is None:
        return None
    tensor = torch.from_numpy(np.ascontiguousarray(_filled(array)))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def _stack(rows: Sequence[Sequence[int]], chosen: NDArray[np.int64]) -> Ints:
    return np.array([rows[index] for index in chosen], dtype=np.int64)


def _pending(scores: Tensor) -> Callable[[], Floats]:
    if scores.device.type != "cuda":
        ready: Floats = scores.numpy()
        return lambda: ready
    host = torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
    host.copy_(scores, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def wait() -> Floats:
        done.synchronize()
        return host.numpy()  # type: ignore[no-any-return]

    return wait
