"""Trains the layers after the encoder, on vectors that the encoder computes once.

    x -> encoder, as it is -> vector -> [bottleneck] -> linear layer -> logits
                              ^ kept in memory, so that hundreds of epochs take seconds

The vectors are what the bottleneck reads where there is one, else what the last linear layer reads. Encoder and dropout
are frozen, so nothing is lost but the defences that move embeddings, which are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isthmus.core.errors import UsageError
from isthmus.training.encoded import EncodedExamples
from isthmus.training.head_only import HeadOnly, last_layer
from isthmus.training.resident import Resident, train_resident
from isthmus.training.snapshots import snapshots_into

if TYPE_CHECKING:
    from isthmus.data import Dataset
    from isthmus.defences.base import Defence
    from isthmus.models import Classifier
    from isthmus.training.settings import Progress, TrainingSettings


def train_head(
    model: Classifier,
    train: Dataset,
    dev: Dataset,
    defence: Defence,
    settings: TrainingSettings,
    *,
    folder: Path | None,
    seed: int,
    progress: Progress | None,
) -> None:
    """Train the last part of a classifier whose slots the defence has filled."""
    part = HeadOnly(model)
    if defence.moves_inputs or defence.replaces_examples:
        raise UsageError(f"{defence.name} changes what the encoder reads, so it cannot train the head alone")
    train_resident(
        vectors_of(model, train, settings.evaluation_batch_size),
        part,
        defence,
        dev=vectors_of(model, dev, settings.evaluation_batch_size),
        settings=settings,
        folder=folder,
        seed=seed,
        progress=progress,
        whole=False,
        snapshot=snapshots_into(folder, model, part.parameters, settings),
    )


def vectors_of(model: Classifier, data: Dataset, size: int) -> Resident:
    """The inputs of the classifier's last part for every example, in order."""
    encoded = EncodedExamples(model, data.examples, data.fields)
    reader = model.slots.bottleneck if model.slots.bottleneck is not None else last_layer(model)
    seen: list[Tensor] = []
    hook = reader.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].float()))
    training = model.training
    model.eval()
    order, labels = [], []
    try:
        with torch.inference_mode():
            for batch, rows in encoded.numbered_batches(size, model.device):
                model(**batch.inputs)
                order += rows
                labels.append(batch.labels)
    finally:
        hook.remove()
        model.train(training)
    place = torch.argsort(torch.tensor(order, device=model.device))
    return Resident({"vectors": torch.cat(seen)[place].clone()}, torch.cat(labels)[place].clone())
