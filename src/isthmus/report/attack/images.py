"""Adversarial images of a run beside their originals, for the page.

The adversarial images lie beside the rows of their attack; the originals are read from the data that the run names. Of
data that are gone only the adversarial images are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.core.errors import IsthmusError
from isthmus.measures.base import Panel
from isthmus.report import image_grids

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from isthmus.attacks.result import AttackResult
    from isthmus.report.attack.view import AttackView
    from isthmus.report.view import RunView

_MOST = 64
"""Pixels of a side that are drawn; larger images are averaged down to that."""


@dataclass(frozen=True)
class ImageGallery:
    """The images of a run's attacks."""

    run: RunView

    def pictures(self, view: AttackView, result: AttackResult) -> str:
        """Original, adversarial image and amplified difference as SVG; empty if the images are gone."""
        moved = self._read_moved(view).get(result.id)
        if moved is None:
            return ""
        clean = self._originals(view).get(result.id)
        before = _describe_answer(view, result.prediction_before, result.score_before)
        after = _describe_answer(view, result.prediction_after, result.score_after)
        if clean is None or clean.shape != moved.shape:
            return image_grids.row_svg((Panel(f"adversarial: {after}", _pixels(moved)),), "adversarial image")
        difference = moved.astype(np.float64) - clean
        largest = float(np.abs(difference).max())
        scale = 0.5 / largest if largest > 0 else 1.0
        panels = (
            Panel(f"original: {before}", _pixels(clean)),
            Panel(f"adversarial: {after}", _pixels(moved)),
            Panel(f"difference, {scale:.3g} times", _pixels(0.5 + scale * difference)),
        )
        return image_grids.row_svg(panels, f"original {before}, adversarial {after}, and their difference")

    @cached_property
    def problems(self) -> list[str]:
        """Why pictures are missing."""
        return []

    def _read_moved(self, view: AttackView) -> Mapping[str, NDArray[Any]]:
        if view.key not in self._files:
            from isthmus.runs.folder import AttackFile
            from isthmus.verbs.attack.images import read_images

            try:
                self._files[view.key] = read_images(AttackFile(self.run.folder.attacks_path, view.key).images_path)
            except IsthmusError as error:
                self._files[view.key] = {}
                self.problems.append(f"{view.key}: its images cannot be shown: {error}")
        return self._files[view.key]

    @cached_property
    def _files(self) -> dict[str, Mapping[str, NDArray[Any]]]:
        return {}

    @cached_property
    def _data(self) -> Mapping[str, Mapping[str, NDArray[Any]]]:
        """The images of every split by id, by the fingerprint of the split."""
        from isthmus.data.images import pixels
        from isthmus.verbs.sources import DataRequest

        record = self.run.record
        try:
            splits = DataRequest.from_record(record.data).load()
            splits = splits.for_training(record.seed) if record.training is not None else splits
            wanted = {str((view.settings.get("data") or {}).get("fingerprint")) for view in self.run.attacks}
            parts = [data for data in splits.values() if data.fingerprint in wanted]
        except IsthmusError as error:
            self.problems.append(f"The originals cannot be shown: {error}")
            return {}
        shown = {result.id for view in self.run.attacks for result in view.successes}
        found: dict[str, Mapping[str, NDArray[Any]]] = {}
        for data in parts:
            examples = [example for example in data if example.id in shown]
            found[data.fingerprint] = dict(zip([each.id for each in examples], pixels(examples), strict=True))
        return found

    def _originals(self, view: AttackView) -> Mapping[str, NDArray[Any]]:
        return self._data.get(str((view.settings.get("data") or {}).get("fingerprint")), {})


def _describe_answer(view: AttackView, prediction: int | None, scores: Sequence[float]) -> str:
    label = view.label(prediction)
    if prediction is not None and 0 <= prediction < len(scores):
        return f"{label}, {scores[prediction]:.2f}"
    return label


def _pixels(image: NDArray[Any]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """An image [channels, height, width] in 0..1 as integers [height][width][1 or 3], reduced in size."""
    image = image if len(image) in (1, 3) else image[:1]
    step = -(-max(image.shape[1:]) // _MOST)
    if step > 1:
        height, width = (step * (side // step) for side in image.shape[1:])
        blocks = image[:, :height, :width].reshape(len(image), height // step, step, width // step, step)
        image = blocks.mean(axis=(2, 4))
    values = np.rint(255 * np.clip(image, 0, 1)).astype(int).transpose(1, 2, 0)
    return tuple(tuple(tuple(pixel) for pixel in line) for line in values.tolist())
