"""Reads token features, sentence vectors, latent codes and gradients of a set of texts, in order.

Every row draws from a key of its own number, so that what a stochastic model makes of a text depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.data.images import is_image_task
from isthmus.defences.base import Batch, cross_entropy
from isthmus.defences.infobert import sentence_vectors
from isthmus.information.features import Features
from isthmus.models.bottleneck import GaussianLatent
from isthmus.training.encoding import encode_examples

if TYPE_CHECKING:
    from isthmus.core.types import Output
    from isthmus.data import Dataset
    from isthmus.models import Classifier

BATCH = 32


def read_features(
    model: Classifier, data: Dataset, seed: int = 0, step: Callable[[int], None] = lambda _: None
) -> Features:
    """Read the features of every text in one forward pass."""
    parts: list[tuple[list[int], dict[str, Tensor], Tensor]] = []
    done = 0
    with torch.no_grad():
        for batch, rows in _batches(model, data):
            with model.use_keys(_make_keys(rows, seed, model)):
                output: Output = model(**batch.inputs, hidden=True)
            mask = _mask(batch).bool()
            assert output.hidden is not None
            assert output.embeddings is not None
            found = {
                "ids": batch.inputs["input_ids"][mask],
                "words": output.embeddings[mask],
                "tokens": output.hidden[0][mask],
                "sentences": sentence_vectors(model, output, mask.unsqueeze(-1)),
                "labels": batch.labels,
            }
            if output.logits.ndim == 2:
                found["logits"] = output.logits
            if isinstance(output.latent, GaussianLatent):
                found |= {"mean": output.latent.mean, "deviation": output.latent.deviation}
            on_host = {name: to_host(value) for name, value in found.items()}
            parts.append((rows, on_host, mask.sum(dim=1).cpu()))
            done += len(rows)
            step(done)
    return _put_in_order(parts)


def _put_in_order(parts: list[tuple[list[int], dict[str, Tensor], Tensor]]) -> Features:
    """Join the batches, with texts and their tokens in the order of the data."""
    rows = torch.tensor([row for numbers, _, _ in parts for row in numbers])
    place = torch.argsort(rows)
    lengths = torch.cat([counts for _, _, counts in parts])
    owner = torch.repeat_interleave(rows, lengths)
    by_owner = torch.argsort(owner, stable=True)
    found: dict[str, Any] = {"owner": owner[by_owner]}
    for name in parts[0][1]:
        whole = torch.cat([values[name] for _, values, _ in parts])
        found[name] = whole[by_owner if name in ("ids", "words", "tokens") else place]
    return Features(**found)


@dataclass(frozen=True, eq=False)
class TokenGradients:
    """The size of the loss gradient at each token of every text."""

    norms: Tensor  # [length], of one text
    prediction: int | None


def gradients_of(
    model: Classifier, data: Dataset, seed: int = 0, *, of_prediction: bool = False
) -> list[TokenGradients]:
    """Norm of the cross-entropy's gradient with respect to each token's embedding, text by text.

    It is the gradient at the clean embeddings, outside training; with `of_prediction` that of the loss of the class
    the model chooses, for texts whose label nobody knows.
    """
    found: dict[int, TokenGradients] = {}
    for batch, rows in _batches(model, data):
        embeddings = model.embed(batch.inputs["input_ids"]).detach().requires_grad_()
        with model.use_keys(_make_keys(rows, seed, model)), torch.enable_grad():
            output: Output = model(**batch.inputs, inputs_embeds=embeddings)
            chosen = output.logits.argmax(dim=-1)
            labels = chosen if of_prediction else batch.labels
            # A mean over the batch scales every text's gradient alike, which no rank notices.
            loss = cross_entropy(output, Batch(batch.inputs, labels))
            (gradient,) = torch.autograd.grad(loss, embeddings)
        norms, mask = to_host(gradient.float().norm(dim=-1)), _mask(batch).bool().cpu()
        for number, row in enumerate(rows):
            prediction = int(chosen[number]) if chosen.ndim == 1 else None
            found[row] = TokenGradients(norms[number][mask[number]], prediction)
    return [found[row] for row in range(len(data))]


def _batches(model: Classifier, data: Dataset) -> Iterator[tuple[Batch, list[int]]]:
    if is_image_task(model.task):
        raise UsageError(
            "this measure needs the tokens of texts, and the model reads images: information_bounds, "
            "feature_entropy, lipschitz and vulnerability are made for both"
        )
    encoded = encode_examples(model, data.examples, data.fields)
    yield from encoded.numbered_batches(BATCH, model.device)


def _make_keys(rows: list[int], seed: int, model: Classifier) -> Tensor:
    return torch.tensor([derive(seed, "measure", row) >> 1 for row in rows], dtype=torch.int64, device=model.device)


def _mask(batch: Batch) -> Tensor:
    mask = batch.inputs.get("attention_mask")
    return torch.ones_like(batch.inputs["input_ids"]) if mask is None else mask


def to_host(values: Tensor) -> Tensor:
    values = values.detach()
    return (values.float() if values.is_floating_point() else values).cpu()
