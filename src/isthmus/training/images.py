"""Trains image classifiers: all images are on the device, and the resident loop computes the defence's losses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from isthmus.core import progress as work
from isthmus.core.errors import DataError, UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import ImageClassification, Output
from isthmus.data.images import pixels
from isthmus.models.bottleneck import GaussianLatent
from isthmus.models.image_names import IMAGE_BACKBONES, is_image_backbone
from isthmus.models.images import ImageClassifier
from isthmus.training.checkpoints import CheckpointFolder
from isthmus.training.numerics import seed_everything
from isthmus.training.resident import Resident, train_resident
from isthmus.training.snapshots import AVERAGED, clear_snapshots, save_snapshot, snapshots_into

if TYPE_CHECKING:
    from isthmus.data import Dataset, Splits
    from isthmus.defences.base import Defence
    from isthmus.models import Classifier
    from isthmus.training.settings import Progress, TrainingSettings

_NOTHING = 0.1
"""Nats below which a code has practically no information."""


def train_images(
    splits: Splits,
    backbone: str | Path | Classifier | ImageClassifier,
    defence: Defence,
    settings: TrainingSettings,
    *,
    folder: Path | None,
    seed: int,
    progress: Progress | None,
    device: str | None,
    finish: Callable[[Any], None] | None,
) -> ImageClassifier:
    """Train an image classifier on `splits`; with a folder, training can be continued and the model is saved there."""
    _check_defence(defence, settings)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = _model(splits, backbone, seed).to(place)
    train, dev = (data.align_labels(model.labels) for data in (splits.train, splits.dev))
    if folder is not None and not CheckpointFolder(folder / "checkpoints").is_begun:
        clear_snapshots(folder)
    seed_everything(derive(seed, "prepare"))
    reads = cast("Classifier", model)
    defence.prepare(reads, train)
    resident = resident_images(dev, model)
    train_resident(
        resident_images(train, model),
        model,
        defence,
        dev=resident,
        settings=settings,
        folder=folder,
        seed=seed,
        progress=progress,
        whole=False,
        snapshot=snapshots_into(folder, model, model.parameters, settings),
        averaged=_averages_into(folder, model, settings),
    )
    model.eval()
    _say_what_passes(model, resident, settings.evaluation_batch_size)
    if folder is not None:
        with work.announce("saving the model"):
            model.save(folder / "model")
        if finish is not None:
            finish(model)
        CheckpointFolder(folder / "checkpoints").delete()
    return model


def _averages_into(
    folder: Path | None, model: ImageClassifier, settings: TrainingSettings
) -> Callable[[int | None], None] | None:
    """A function that saves the averaged weights: after an epoch beside its snapshot, at the end as a model."""
    if folder is None or settings.average_weights is None:
        return None

    def keep(epoch: int | None) -> None:
        if epoch is None:
            model.eval()
            model.save(folder / AVERAGED)
        elif settings.snapshots:
            save_snapshot(model, model.parameters(), folder, epoch, averaged=True)

    return keep


def resident_images(data: Dataset, model: ImageClassifier) -> Resident:
    """All images of a data set, on the model's device."""
    assert isinstance(data.task, ImageClassification)
    if data.task.shape != model.task.shape:
        raise DataError(
            f"the {data.split} split of {data.name} holds inputs of shape {data.task.shape}, and the model reads "
            f"{model.task.shape}: resize them"
        )
    images = torch.from_numpy(pixels(data)).to(model.device)
    labels = torch.from_numpy(data.label_indices().astype(np.int64)).to(model.device)
    return Resident({"pixels": images}, labels)


def _model(splits: Splits, backbone: str | Path | Classifier | ImageClassifier, seed: int) -> ImageClassifier:
    task = splits.train.task
    assert isinstance(task, ImageClassification)
    if isinstance(backbone, ImageClassifier):
        return backbone
    if not isinstance(backbone, str):
        raise UsageError(
            f"{splits.name} holds images: name a network for them ({', '.join(IMAGE_BACKBONES)}), not {backbone}"
        )
    if not is_image_backbone(backbone):
        raise UsageError(
            f"{splits.name} holds images, and {backbone} reads texts: --backbone {', '.join(IMAGE_BACKBONES)}, "
            "torchvision:NAME or timm:NAME"
        )
    return ImageClassifier.create(backbone, task, seed=seed)


def _check_defence(defence: Defence, settings: TrainingSettings) -> None:
    if not defence.trains_images:
        raise UsageError(
            f"{defence.name} works on words, and these are images: take standard, vib, vub, label_smoothing, "
            "confidence_penalty, gaussian_noise, or adversarial with a gradient attack (-P attack=pgd)"
        )
    if settings.trains == "head":
        raise UsageError("trains=head is for texts: give an .npz of vectors computed once, and --backbone features")


def _say_what_passes(model: ImageClassifier, dev: Resident, size: int) -> None:
    """Warn if the price of information has removed all of it."""
    if model.slots.bottleneck is None:
        return
    latents = []
    with torch.no_grad():
        for batch in dev.batches(size):
            output: Output = model(**batch.inputs)
            if isinstance(output.latent, GaussianLatent):
                latents.append(output.latent)
    if not latents:
        return
    mean, deviation = (torch.cat([getattr(each, name) for each in latents]) for name in ("mean", "deviation"))
    # What a Gaussian channel of such signal and noise carries; the rate itself also counts how far all codes are from
    # the prior, which says nothing about the image.
    carried = float(0.5 * torch.log1p(mean.var(dim=0, correction=0) / deviation.square().mean(dim=0)).sum())
    if carried < _NOTHING:
        rate = float(torch.cat([each.rate() for each in latents]).mean())
        work.note(
            f"the code has only {carried:.3f} nats of information about the image (rate {rate:.3f}), so the prediction "
            "hardly depends on the image. Use a smaller beta"
        )
