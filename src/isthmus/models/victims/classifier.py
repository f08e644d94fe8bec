"""A classifier of isthmus or transformers, as a victim that takes token ids.

On the CPU rows of equal length get the same bits whatever they are batched with (`isthmus.arithmetic.machine`); batches
too small for that are filled up by repeating a row. Nothing here is ever in training mode: a dropout or a sampling
layer left on would answer each query differently and pass for robustness.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isthmus.arithmetic.batching import batches_of, columns_of
from isthmus.arithmetic.machine import STRICT_ROWS, fewest_rows
from isthmus.arithmetic.packed import PackingTrial, can_pack, in_passes, read_packed
from isthmus.arithmetic.padding import BLOCKS, padding_keeps_bits
from isthmus.arithmetic.products import lay_out, without_layouts
from isthmus.arithmetic.randomness import copy_keys, mix64
from isthmus.arithmetic.transfer import (
    Inputs,
    any_shape,
    copy_rows,
    fill_up,
    index_tensor,
    make_failure,
    on_device,
    pending,
)
from isthmus.core.errors import IsthmusWarning, UsageError, VictimError
from isthmus.core.hardware import bfloat16_works
from isthmus.core.seeds import derive
from isthmus.core.types import Floats, Ints, Pending, Texts, TokenBatch
from isthmus.models.bottleneck import GaussianBottleneck, Inference
from isthmus.models.classifier import Classifier
from isthmus.models.masking import MaskGradient, embedding_gradient
from isthmus.models.victims.options import check_flag, check_whole_number

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

InferencePrecision = Literal["fp32", "bf16"]
MOST_TOKENS = {"cpu": 1 << 13, "cuda": 1 << 18}
"""Tokens, copies included, that go through a model at once."""
MOST_ROWS = {"cpu": 64, "cuda": 1024}
"""Texts of one length that go through it at once."""


class ClassifierVictim:
    """A `Classifier` as `Victim`, `TokenVictim` and `Differentiable`.

    A row whose logits are NaN is returned as it is: whoever asked decides what becomes of that row.
    With ``precision="bf16"`` a bfloat16 copy of the weights (made at the first launch) answers, and ``exact=True``
    asks the float32 model.

    A model with a stochastic bottleneck is seen in one of three ways: by its mean code (``latent="mean"``), by a draw
    from it (``"sample"``), or by the average over ``draws`` such draws. None leaves the model as it was saved.
    ``fixed`` gives every query the same draws, so that a randomised model becomes a deterministic one: what is then
    easier to attack than before was held up by randomness, not by the model.
    """

    def __init__(
        self,
        model: Classifier,
        precision: InferencePrecision = "fp32",
        *,
        latent: Inference | None = None,
        draws: int = 1,
        fixed: bool = False,
    ) -> None:
        if precision not in ("fp32", "bf16"):
            raise UsageError(f"precision is 'fp32' or 'bf16', not {precision!r} (fp16 overflows in some encoders)")
        if model.answers_questions:
            raise UsageError(
                "this model answers questions: it has no class probabilities, and cannot be attacked as it is"
            )
        self.model = model.eval()
        if precision == "bf16" and not bfloat16_works(model.device.type):
            said = "bfloat16 arithmetic crashes on this machine's CPU: scoring in float32"
            warnings.warn(said, IsthmusWarning, stacklevel=2)
            precision = "fp32"
        self.precision = precision
        self._half: Classifier | None = None
        if latent is not None:
            _see(model, latent)
        self.draws, self.fixed = check_whole_number("draws", draws), check_flag("fixed", fixed)
        self._trials: dict[bool, PackingTrial | None] = {}  # By whether arithmetic is float32.
        self.passes = 0
        """Texts that went through the network so far, copies included; one with a gradient counts twice."""
        self.filled = 0
        """Filler rows that went through the encoder: repeated to fill a batch."""

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
        """Whether the same text may get different scores."""
        return self.model.stochastic and not self.fixed

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

    @functools.cached_property
    def padding_block(self) -> int:
        """Rows with lengths between the same multiples of this number may share a batch without changing a bit."""
        # Without strict arithmetic one short row in hundreds ends in other bits: too rare for a trial to find.
        if self.device_type != "cpu" or self.stochastic or fewest_rows(self.model) > STRICT_ROWS:
            return 1
        trial = self._trial(exact=False)
        if trial is not None and trial.holds:
            return 1  # Lengths share passes without padding.
        size, pad = self.model.table.num_embeddings, self.tokenizer.pad_token_id or 0
        ways = (True,) if self.precision == "fp32" else (True, False)
        launches = [functools.partial(self.launch, exact=exact) for exact in ways]
        try:
            for block in BLOCKS:
                if all(padding_keeps_bits(launch, block, size, self.max_tokens, pad) for launch in launches):
                    return block
        except VictimError:
            pass  # it takes no padding
        return 1

    @contextlib.contextmanager
    def use_latent(self, latent: Inference) -> Iterator[None]:
        """Inside, the model uses its mean code, or a draw from it."""
        bottleneck = self.model.slots.bottleneck
        before = bottleneck.inference if isinstance(bottleneck, GaussianBottleneck) else "mean"
        self._see(latent)
        try:
            yield
        finally:
            self._see(before)

    def _see(self, latent: Inference) -> None:
        # The copy in bfloat16 is made when it is first needed, inside a block as well as outside.
        for model in (self.model, self._half):
            if model is not None:
                _see(model, latent)

    def _evaluating(self, exact: bool) -> Classifier:
        """The model, with every module in evaluation mode."""
        model = self.model
        if self.precision == "bf16" and not exact:
            if self._half is None:
                self._half = copy.deepcopy(self.model).to(torch.bfloat16)
                without_layouts(self._half)
            model = self._half
        if any(module.training for module in model.modules()):
            model.eval()
        return model

    def _add_keys(self, inputs: Inputs) -> Inputs:
        """Add the one key of all queries, if that is requested."""
        if not self.fixed:
            return inputs
        key = derive(self.model.seed, "the same draws for every query") >> 1
        return inputs._replace(keys=torch.full((len(inputs.ids),), key, device=inputs.ids.device))

    def launch(self, batches: Sequence[TokenBatch], *, exact: bool = False) -> Pending:
        """Launch the scoring of all batches; on a GPU the call returns at once, and the pending result waits once."""
        model = self._evaluating(exact)
        try:
            with torch.inference_mode(), any_shape(), lay_out(model):
                draws = self.draws if model.stochastic else 1
                self.passes += draws * sum(len(batch.ids) for batch in batches)
                trial = self._trial(exact)
                way = self._in_passes if trial is not None and trial.allows(batches) else self._by_length
                rows = list(way(model, batches, draws))
                return pending(torch.cat(rows) if rows else torch.empty(0, len(self.labels)))
        except (RuntimeError, IndexError, ValueError) as error:
            raise make_failure(len(batches), error) from error

    def _trial(self, exact: bool) -> PackingTrial | None:
        """The trial whether rows of all lengths may share a pass; None if there is nothing to try."""
        full = exact or self.precision == "fp32"
        if full not in self._trials:
            model = self._evaluating(exact)
            body, stock = model.backbone, cast("PreTrainedModel", getattr(model.backbone, "model", None))
            plain = self.device_type == "cpu" and not self.stochastic and model.slots.noise is None
            able = plain and body.form == "stock" and can_pack(stock, body.blocks(), body.depth)
            self._trials[full] = (
                PackingTrial(
                    lambda batches: torch.cat(list(self._by_length(model, batches, 1))).numpy(),
                    lambda batches: torch.cat(list(self._in_passes(model, batches, 1))).numpy(),
                    model.table.num_embeddings,
                    self.max_tokens,
                )
                if able
                else None
            )
        return self._trials[full]

    def _by_length(self, model: Classifier, batches: Sequence[TokenBatch], draws: int) -> Iterator[Tensor]:
        """Probabilities, computed batch by batch."""
        if model.stochastic and _draws_last(model) and not self.fixed:
            for batch in batches:
                yield _read_once(model, batch, draws)
            return
        for inputs in on_device(batches, model.device, model):
            self.filled += len(inputs.ids) - inputs.rows
            yield _average_draws(model, self._add_keys(inputs), draws)

    def _in_passes(self, model: Classifier, batches: Sequence[TokenBatch], draws: int) -> Iterator[Tensor]:
        """Probabilities of rows of all lengths, computed a few thousand tokens at a time."""
        stock: Any = model.backbone.model
        least, pad = fewest_rows(model), self.tokenizer.pad_token_id or 0
        for batch, count, packing in in_passes(batches, least, pad):
            (inputs,) = on_device([batch], model.device, model)
            self.filled += sum(rows for _, rows in packing.groups) - count
            with read_packed(stock, model.backbone.blocks(), packing):
                yield _average_draws(model, self._add_keys(inputs._replace(rows=count)), draws)

    def scores(self, texts: Sequence[Texts], keys: NDArray[np.uint64] | None = None) -> Floats:
        """Class probabilities; only texts of equal length share a pass, so that the rest of the batch has no effect."""
        if not texts:
            return np.empty((0, len(self.labels)), dtype=np.float32)
        columns, most = columns_of(texts, self.fields), MOST_ROWS.get(self.device_type, MOST_ROWS["cpu"])
        pairs = list(batches_of(self.tokenizer, columns, self.max_tokens, keys, most=most))
        rows = self.launch([batch for _, batch in pairs])()
        answer = np.empty_like(rows)
        answer[np.concatenate([positions for positions, _ in pairs])] = rows
        return answer

    def embedding_gradients(
        self, batch: TokenBatch, labels: Ints, *, draws: int = 1, as_scored: bool = False
    ) -> Floats:
        """Gradient of each row's cross-entropy with respect to its word embeddings, in float32 arithmetic."""
        model = self._evaluating(exact=True)
        if len(labels) != len(batch.ids) or len(batch.ids) == 0:
            raise UsageError(f"{len(labels)} labels for {len(batch.ids)} rows")
        (inputs,) = on_device([batch], model.device)
        target = torch.from_numpy(fill_up(np.asarray(labels, dtype=np.int64), len(inputs.ids))).to(model.device)
        inputs = self._add_keys(inputs)
        keys: list[Tensor | None] = [None] * (draws if model.stochastic else 1)
        if inputs.keys is not None:
            own = inputs.keys
            keys = self._keys_of_draws(own) if as_scored else [mix64(own + draw) for draw in range(len(keys))]
        total = torch.zeros((), device=model.device)
        for each in keys:
            with model.use_keys(each):
                total = total + _gradient(model, inputs, target).values
        return (total[: inputs.rows] / len(keys)).cpu().numpy()

    def _keys_of_draws(self, keys: Tensor) -> list[Tensor | None]:
        """The keys of the draws that score rows with these keys."""
        draws = self.draws if self.stochastic else 1
        return [keys] if draws == 1 else list(copy_keys(keys, draws).view(-1, draws).unbind(dim=1))

    def scores_at(self, inputs: Inputs) -> Floats:
        """Class probabilities of rows with given word embeddings, in float32 arithmetic."""
        model = self._evaluating(exact=True)
        draws = self.draws if model.stochastic else 1
        try:
            with torch.inference_mode(), any_shape():
                return pending(_average_draws(model, self._add_keys(inputs), draws))()
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model failed on {inputs.rows} rows of embeddings: {error}") from error

    def margin_gradient(self, inputs: Inputs, target: Tensor, rival: Tensor) -> MaskGradient:
        """Gradient of each row's f_rival - f_target with respect to its embeddings, for the draw of its key."""
        model, inputs = self._evaluating(exact=True), self._add_keys(inputs)
        with model.use_keys(inputs.keys), any_shape():
            return _gradient(model, inputs, target, rival)

    def logits_at(self, inputs: Inputs, copies: int = 1) -> Tensor:
        """Logits of rows with given word embeddings, differentiable with respect to them [rows, copies, classes].

        ``inputs.keys`` has one key for every copy of every row, row by row; None where nothing is drawn.
        """
        model = self._evaluating(exact=True)
        # cuDNN's recurrent kernels have no backward pass outside training mode.
        cudnn: Any = torch.backends.cudnn
        try:
            with any_shape(), cudnn.flags(enabled=model.backbone.form != "lstm"):
                if self.fixed or self.draws > 1:
                    each = self._add_keys(copy_rows(inputs, copies))
                    found = _average_draws(model, each, self.draws if model.stochastic else 1)
                    return found.clamp_min(torch.finfo(found.dtype).tiny).log().view(len(inputs.ids), copies, -1)
                with model.use_keys(inputs.keys):
                    logits = model(inputs.ids, inputs.mask, inputs.types, inputs.embeddings, copies=copies).logits
                return logits.float().view(len(inputs.ids), copies, -1)  # type: ignore[no-any-return]
        except (RuntimeError, IndexError, ValueError) as error:
            raise VictimError(f"the model failed on {len(inputs.ids)} rows of embeddings: {error}") from error

    def embedding_table(self) -> Floats:
        """Word-piece embeddings as the encoder reads them [vocabulary, width]."""
        return self.model.read_table().float().cpu().numpy()


def _see(model: Classifier, latent: Inference) -> None:
    """Let the bottleneck use its mean, or a draw."""
    bottleneck = model.slots.bottleneck
    if not isinstance(bottleneck, GaussianBottleneck):
        raise UsageError(f"latent={latent} was asked for, but this model has no stochastic bottleneck")
    if latent not in ("mean", "sample"):
        raise UsageError(f"latent is 'mean' or 'sample', not {latent!r}")
    bottleneck.inference = latent


def _average_draws(model: Classifier, inputs: Inputs, draws: int) -> Tensor:
    """Probabilities averaged over draws of the model's own randomness; layers before the first draw are shared."""
    if draws == 1:
        return _probabilities(model, inputs, inputs.keys, 1)[:, 0]
    at_once = draws
    if model.slots.noise is not None:  # A bottleneck alone draws behind the encoder, which then reads every row once.
        at_once = max(1, MOST_TOKENS.get(inputs.ids.device.type, MOST_TOKENS["cpu"]) // inputs.ids.numel())
    keys = None if inputs.keys is None else copy_keys(inputs.keys, draws).view(-1, draws)
    parts = []
    for start in range(0, draws, at_once):
        copies = min(at_once, draws - start)
        own = None if keys is None else keys[:, start : start + copies].reshape(-1)
        parts.append(_probabilities(model, inputs, own, copies))
    return torch.cat(parts, dim=1).mean(dim=1)


def _draws_last(model: Classifier) -> bool:
    """Whether all of its randomness is after the encoder, in the bottleneck."""
    slots = model.slots
    return slots.noise is None and (slots.word_mask is None or not slots.word_mask.stochastic)


def _read_once(model: Classifier, batch: TokenBatch, draws: int) -> Tensor:
    """Probabilities; consecutive rows that differ only in their keys go through the encoder once.

    A search over K shared draws asks about every text K times in a row.
    """
    first = np.ones(len(batch.ids), bool)  # [rows] whether a row differs from the one before
    given = [array for array in (batch.ids, batch.mask, batch.types) if array is not None]
    if len(batch.ids) > 1:
        first[1:] = np.any([(array[1:] != array[:-1]).any(axis=1) for array in given], axis=0)
    if batch.keys is None or first.all():
        (inputs,) = on_device([batch], model.device, model)
        return _average_draws(model, inputs, draws)
    texts = TokenBatch(*(None if array is None else array[first] for array in (batch.ids, batch.mask, batch.types)))  # type: ignore[arg-type]
    (inputs,) = on_device([texts], model.device, model)
    # The layers behind the encoder need as many rows as the encoder does.
    least = fewest_rows(model) if model.device.type == "cpu" else 1
    row_of = index_tensor(np.cumsum(first) - 1, model.device, least)
    keys = index_tensor(batch.keys.view(np.int64), model.device, least)
    if draws > 1:
        row_of, keys = row_of.repeat_interleave(draws), copy_keys(keys, draws)
    with model.use_keys(keys):
        logits = model(inputs.ids, inputs.mask, inputs.types, copies=row_of).logits
    drawn = torch.softmax(logits.view(-1, draws, logits.shape[-1])[: len(batch.ids)].float(), dim=-1)
    return drawn[:, 0] if draws == 1 else drawn.mean(dim=1)


def _probabilities(model: Classifier, inputs: Inputs, keys: Tensor | None, copies: int) -> Tensor:
    with model.use_keys(keys):
        logits = model(inputs.ids, inputs.mask, inputs.types, inputs.embeddings, copies=copies).logits
    return torch.softmax(logits.view(len(inputs.ids), copies, -1)[: inputs.rows].float(), dim=-1)


def _gradient(model: Classifier, inputs: Inputs, target: Tensor, rival: Tensor | None = None) -> MaskGradient:
    """Gradient of a margin at word embeddings, or of a loss at embeddings that a word mask may have scaled."""
    ids, mask, types, as_read = inputs.ids, inputs.mask, inputs.types, rival is None
    try:
        return embedding_gradient(
            model, ids, mask, types, target, rival=rival, replaced=inputs.embeddings, as_read=as_read
        )
    except (RuntimeError, IndexError, ValueError) as error:
        raise VictimError(f"the model cannot be differentiated on these rows: {error}") from error
