"""Gradient attacks on the images of a command.

Adversarial images lie in ``attacks/<name>.npz`` beside the rows, which is a data set by itself; until an attack is
done, in one file a cohort.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import RunError, UsageError
from isthmus.core.files import make_folder, remove_tree, replacing
from isthmus.core.npz import npz_bytes
from isthmus.core.seeds import derive
from isthmus.core.types import ImageClassification
from isthmus.data.images import pixels
from isthmus.verbs.attack.gradient import COHORT, Cohort, PreparedGradientAttacks
from isthmus.verbs.request import AttackRequest
from isthmus.verbs.sources import ModelSource

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.attacks.gradient.base import Attackable, GradientAttack, GradientSettings
    from isthmus.attacks.result import AttackResult
    from isthmus.core.types import Example, Victim
    from isthmus.data import Dataset
    from isthmus.runs.folder import AttackFile


def attacks_images(request: AttackRequest) -> bool:
    """Whether a command is about images, as far as files and names tell; nothing is loaded."""
    from isthmus.data.load import names_images
    from isthmus.models.image_names import is_image_model

    source = ModelSource.of(request.model)
    if Path(source.spec).is_dir() and is_image_model(Path(source.spec)):
        return True
    return request.data is not None and names_images(request.data.source)


class PreparedImageAttacks(PreparedGradientAttacks):
    """A prepared attack command on images."""

    moved = "images"

    def check_data(self) -> None:
        """Refuse vectors: only pixels have a known scale."""
        task = self.data.task
        if isinstance(task, ImageClassification) and not task.has_pixels:
            raise UsageError(
                f"{self.data.name} holds features of unknown scale: gradient attacks need pixels in [0, 1]"
            )

    def one(self) -> Tensor:
        """The first image."""
        import torch

        return torch.from_numpy(pixels(self.sample[:1])) if len(self.sample) else torch.zeros(1, 1)

    def gradient_settings(self) -> GradientSettings:
        """The settings of an attack."""
        from isthmus.attacks.gradient.base import GradientSettings

        return GradientSettings(seed=self.request.seed, draws=self.draws, fresh=max(1, self.request.fresh), rows=COHORT)

    @cached_property
    def victim(self) -> Victim:
        """The model, loaded; one without gradients is refused."""
        victim = super().victim
        _ = victim.attackable  # type: ignore[attr-defined]
        return victim

    @cached_property
    def target(self) -> Attackable:
        """The model for gradient attacks; the part before its randomness is computed once for all draws."""
        from isthmus.attacks.gradient.parts.targets import EncoderTarget
        from isthmus.models.images import ImageClassifier

        model = self.victim.attackable  # type: ignore[attr-defined]
        if isinstance(model, ImageClassifier) and model.stochastic and model.slots.noise is None:
            return EncoderTarget(model, model.backbone, model.decode)
        return model  # type: ignore[no-any-return]

    def attack_at_once(self, attack: GradientAttack, cohort: list[Example]) -> Cohort:
        """Attack a cohort at once."""
        import torch

        model = self.victim.attackable  # type: ignore[attr-defined]
        device = next((value.device for value in model.parameters()), torch.device("cpu"))
        images = torch.from_numpy(pixels(cohort)).to(device)
        labels = torch.tensor([int(example.label) for example in cohort], device=device)  # type: ignore[arg-type]
        keys = torch.tensor(self.keys(cohort), device=device)
        targets, own = self.targets(labels)
        found = attack.run(self.target, images, labels, self.gradient_settings(), targets=targets, keys=keys)
        adversarial = found.adversarial.cpu().numpy()
        before, after = self._scores(cohort, pixels(cohort)), self._scores(cohort, adversarial)
        results, kept = [], {}
        for place, example in enumerate(cohort):
            is_own = own is not None and bool(own[place])
            result = self.result(example, found, place, before[place], after[place], is_own)
            results.append(result)
            if result.outcome != "skipped":
                kept[example.id] = adversarial[place]
        return Cohort(results, kept)

    def _scores(self, cohort: list[Example], images: np.ndarray[Any, Any]) -> list[list[float]]:
        victim = self.victim
        inputs: list[Any] = [{"image": image} for image in images]
        keys = np.array([derive(self.request.seed, "victim", example.id) for example in cohort], dtype=np.uint64)
        scores = victim.scores(inputs, keys) if victim.stochastic else victim.scores(inputs)
        return [[float(f"{p:.7g}") for p in row] for row in scores]


class AdversarialImageFile:
    """``attacks/<name>.npz``: ids, adversarial images, true labels and whether they fooled the model."""

    def __init__(self, file: AttackFile) -> None:
        self.path = file.images_path
        self.parts = file.images_path.with_suffix(".images")

    def keep(self, number: int, images: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Keep the images of a cohort, before its rows are written."""
        if images:
            make_folder(self.parts)
            _write_arrays(
                self.parts / f"{number}.npz", {"ids": np.array(list(images)), "images": np.stack([*images.values()])}
            )

    def find_lost(self, results: Iterable[AttackResult]) -> set[str]:
        """Ids of attempted results whose image is in no file; a file that cannot be read is an error."""
        there = set(self._found())
        return {each.id for each in results if each.outcome in ("succeeded", "failed")} - there

    def _found(self) -> dict[str, np.ndarray[Any, Any]]:
        found = read_images(self.path)
        for part in sorted(self.parts.glob("*.npz"), key=lambda path: int(path.stem)) if self.parts.is_dir() else ():
            found |= read_images(part)
        return found

    def finish(self, data: Dataset, results: Sequence[AttackResult]) -> None:
        """Write one file of all kept images, in the order of the results."""
        found = self._found()
        kept = [each for each in results if each.id in found and each.outcome in ("succeeded", "failed")]
        if kept:
            arrays = {
                "ids": np.array([each.id for each in kept]),
                "images": np.stack([found[each.id] for each in kept]),
                "labels": np.array([each.label for each in kept], dtype=np.int64),
                "success": np.array([each.outcome == "succeeded" for each in kept]),
                "label_names": np.array(data.labels),
            }
            _write_arrays(self.path, arrays)
        if self.parts.is_dir():
            remove_tree(self.parts)


def read_images(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read the images of a file by the id of their example; empty if there is no file."""
    from isthmus.core.errors import DataError
    from isthmus.data.arrays import load_npz

    if not path.is_file():
        return {}
    try:
        arrays = load_npz(path)
        return dict(zip(map(str, arrays["ids"].tolist()), arrays["images"], strict=True))
    except (DataError, KeyError, ValueError) as error:
        raise RunError(f"{error}. Delete {path}: the same command makes its images again and keeps the rows") from error


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    with replacing(path) as stream:
        stream.write(npz_bytes(arrays))
