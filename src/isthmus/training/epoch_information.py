"""Information figures after every epoch, on development data and a sample of the training data.

    spread              tr cov(t), t the tokens as they leave the embedding block: I(X;T) of InfoBERT, up to a constant
    rate                E KL(p(z|x) ‖ N(0, I)) ≥ I(X;Z), in nats, of a model with a Gaussian bottleneck
    entropy_rate        H(N(0, I)) - H(Z|X) = -E Σ log σ, the rate that VUB's information plane shows
    label_information   H(Y) - cross-entropy ≤ I(Z;Y), in nats, at the mean of the latent code
    loss                that cross-entropy

The development figures come from the forward passes of the evaluation, which are made anyway. Nothing draws from a
stream that training draws from, so the weights are the same to the last bit whether or not this is asked for. On a GPU
the sums stay there until the epoch's row is written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from isthmus.arithmetic.randomness import use_keys
from isthmus.core.seeds import derive
from isthmus.core.types import Autocast, Output
from isthmus.defences.base import Batch
from isthmus.models import Classifier
from isthmus.models.bottleneck import GaussianLatent

if TYPE_CHECKING:
    from isthmus.training.encoded import EncodedExamples
    from isthmus.training.resident import Resident

Total = Callable[[Tensor], Tensor]
"""Sums over processes."""


class Tally:
    """Sums over the batches of one pass, from which the figures are computed."""

    def __init__(self, width: int, classes: int, tokens_first: bool = False) -> None:
        self.width, self.classes, self.tokens_first = width, classes, tokens_first
        self.features: list[Tensor] = []
        """What entered the first block in the pass under way."""
        self._sums: Tensor | None = None

    def __call__(self, output: Output, batch: Batch) -> None:
        """Add one batch."""
        tokens, mask = self._tokens(batch)
        sums = [*self._of_tokens(tokens, mask), *self._of_latent(output), *self._of_answers(output, batch)]
        row = torch.cat([value.reshape(-1).double() for value in sums])
        self._sums = row if self._sums is None else self._sums + row

    def _tokens(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if not self.width:  # Images: there is no embedding block to look behind.
            device = batch.labels.device
            return torch.zeros(len(batch), 1, 0, device=device), torch.ones(len(batch), 1, device=device)
        tokens = self.features[0] if self.features else batch.inputs["vectors"].unsqueeze(1)
        self.features.clear()
        mask = batch.inputs.get("attention_mask")
        if self.tokens_first:
            # Inside such a model padding comes before the tokens; sums do not care which token is which.
            tokens, mask = tokens.transpose(0, 1), None if mask is None else mask.sort(dim=1).values
        return tokens.float(), torch.ones(tokens.shape[:2], device=tokens.device) if mask is None else mask.float()

    def _of_tokens(self, tokens: Tensor, mask: Tensor) -> list[Tensor]:
        tokens = tokens * mask.unsqueeze(-1)
        return [mask.sum(), tokens.square().sum(), tokens.flatten(0, 1).sum(dim=0)]

    def _of_latent(self, output: Output) -> list[Tensor]:
        latent = output.latent
        if not isinstance(latent, GaussianLatent):
            return [torch.zeros(3, device=output.logits.device)]
        return [latent.rate().sum(), -latent.deviation.log().sum(), torch.ones_like(latent.mean[:, 0]).sum()]

    def _of_answers(self, output: Output, batch: Batch) -> list[Tensor]:
        """Cross-entropy and label counts; answers to questions have no entropy to compare with."""
        if batch.labels.ndim != 1:
            return [torch.zeros(1 + self.classes, device=output.logits.device)]
        loss = functional.cross_entropy(output.logits.float(), batch.labels, reduction="sum")
        classes = torch.arange(self.classes, device=batch.labels.device)
        return [loss, (batch.labels.unsqueeze(1) == classes).sum(dim=0)]

    def sums(self, total: Total | None = None) -> Tensor:
        """The sums over all batches, and over all processes."""
        # A process without a batch of its own must still add as many numbers as the others.
        nothing = torch.zeros(6 + self.width + self.classes, dtype=torch.float64)
        found = nothing if self._sums is None else self._sums.cpu()
        return found if total is None else total(found).cpu()

    def figures(self, total: Total | None = None) -> dict[str, float]:
        """The figures by name; those that do not apply to this model are missing."""
        values = self.sums(total)
        count, squares, mean = values[0].clamp(min=1), values[1], values[2 : 2 + self.width]
        found = {"spread": float(squares / count - (mean / count).square().sum())} if self.width else {}
        rate, entropy, latents, loss, *counts = values[2 + self.width :].tolist()
        if latents:
            found |= {"rate": rate / latents, "entropy_rate": entropy / latents}
        n = sum(counts)
        if n:
            entropy = -sum(part / n * math.log(part / n) for part in counts if part)
            found |= {"label_information": entropy - loss / n, "loss": loss / n}
        return found


@dataclass
class EpochInformation:
    """Records information figures at the end of an epoch; nothing without a sample."""

    model: nn.Module
    autocast: Autocast
    sample: Callable[[], Iterable[Batch]] | None = None
    """The fixed sample of the training data, in batches of this process."""
    width: int = 0
    classes: int = 0
    first_block: nn.Module | None = None
    """Its input is what the spread is of; None for a model that reads vectors."""
    seed: int = 0
    answers_questions: bool = False
    """Whether passes are told to the tally as they are made: answers are evaluated window by window elsewhere."""
    total: Total | None = field(default=None)

    @contextlib.contextmanager
    def watching(self, wanted: bool) -> Iterator[Tally | None]:
        """Inside, the forward passes of an evaluation can be added to the tally."""
        if not wanted or self.sample is None:
            yield None
            return
        tally = Tally(self.width, self.classes, isinstance(self.model, Classifier) and self.model.backbone.tokens_first)
        with self._catching(tally):
            yield tally

    @contextlib.contextmanager
    def _catching(self, tally: Tally) -> Iterator[None]:
        handles: list[RemovableHandle] = []
        if self.first_block is not None:
            handles.append(self.first_block.register_forward_pre_hook(_catcher(tally), with_kwargs=True))
        if self.answers_questions:
            handles.append(self.model.register_forward_hook(_teller(tally), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def row(self, dev: Tally | None) -> dict[str, Any]:
        """The row of this epoch in the log."""
        if dev is None:
            return {}
        with self.watching(True) as tally:
            assert tally is not None
            self._pass_sample(tally)
        return {"dev_information": dev.figures(self.total), "train_information": tally.figures(self.total)}

    def _pass_sample(self, tally: Tally) -> None:
        assert self.sample is not None
        was_training = self.model.training
        self.model.eval()
        number = 0
        with torch.no_grad():
            for batch in self.sample():
                # A model that draws outside training draws from keys here, and leaves its own streams where they are.
                keys = torch.arange(number, number + len(batch), device=batch.labels.device)
                with use_keys(self.model, keys + (derive(self.seed, "information") >> 2)), self.autocast():
                    output: Output = self.model(**batch.inputs)
                if not self.answers_questions:
                    tally(output, batch)
                number += len(batch)
        self.model.train(was_training)


def _catcher(tally: Tally) -> Callable[..., None]:
    def catch(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        # A block that is shared by all layers is called once per layer; the first call is the one.
        if not tally.features:
            tally.features.append(inputs[0] if inputs else named["hidden_states"])

    return catch


def _teller(tally: Tally) -> Callable[..., None]:
    def tell(_module: nn.Module, _inputs: tuple[Any, ...], named: dict[str, Any], output: Output) -> None:
        tally(output, Batch(named, torch.zeros(len(output.logits), 2)))

    return tell


def of_classifier(
    model: Classifier, sample: EncodedExamples | None, size: int, autocast: Autocast, seed: int, part: int, parts: int
) -> EpochInformation:
    """Figures of a classifier; `sample` are the training examples to measure, in batches of `size`."""
    if sample is None or not len(sample):
        return EpochInformation(model, autocast)
    return EpochInformation(
        model,
        autocast,
        lambda: sample.batches(size, model.device, part=part, parts=parts),
        first_block_width(model),
        len(model.labels),
        model.backbone.blocks()[0],
        seed,
        model.answers_questions,
    )


def first_block_width(model: Classifier) -> int:
    """Width of the first block's input."""
    tally = Tally(0, 0)
    information = EpochInformation(model, contextlib.nullcontext, first_block=model.backbone.blocks()[0])
    inputs = model.encode([dict.fromkeys(model.task.fields, "a")])
    training = model.training
    keys = torch.zeros(1, dtype=torch.int64, device=model.device)
    with torch.no_grad(), information._catching(tally), model.use_keys(keys):
        model.eval()(**{name: value.to(model.device) for name, value in inputs.items()})
    model.train(training)
    return int(tally.features[0].shape[-1])


def _width_of(data: Resident) -> int:
    return int(data.inputs["vectors"].shape[-1]) if "vectors" in data.inputs else 0


def of_resident(
    model: nn.Module, data: Resident, dev: Resident, count: int, size: int, autocast: Autocast, seed: int
) -> EpochInformation:
    """Figures of a head that reads resident vectors, or of a classifier; none for other models."""
    if not count or not (isinstance(model, Classifier) or {"vectors", "pixels"} & set(data.inputs)):
        return EpochInformation(model, autocast)
    stream = torch.Generator().manual_seed(derive(seed, "information"))
    rows = torch.randperm(len(data), generator=stream)[:count].to(data.labels.device)
    classes = 1 + max(int(data.labels.max()), int(dev.labels.max()))

    def sample() -> Iterator[Batch]:
        return (data.batch(part) for part in torch.split(rows, size))

    block = model.backbone.blocks()[0] if isinstance(model, Classifier) else None
    width = first_block_width(model) if isinstance(model, Classifier) else _width_of(data)
    return EpochInformation(model, autocast, sample, width, classes, block, seed)
