"""Adversarial images beside their originals and the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from isthmus.core.errors import UsageError
from isthmus.core.statistics import wilson
from isthmus.measures.base import Figure, Measure, Measurement, Option, Panel, Plot, Subject

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class AdversarialImages(Measure):
    """A grid of images, their adversarial versions by a gradient attack, and the amplified difference.

        x,    x' = A(x),    ½ + ½ (x' - x) / max |x' - x|

    Above every image stand the model's answer and its probability, above the difference its norms. The first images of
    the split that are fooled are shown, else the first that are answered correctly. The largest difference of a pixel
    becomes black or white.

    References:
        Goodfellow, Shlens and Szegedy (2015), Explaining and Harnessing Adversarial Examples,
        https://arxiv.org/abs/1412.6572, Figure 1.

    Where we depart:
        Images are drawn as squares of 16 shades, so that figures are text and need no embedded pictures.

    Relations:
        `vulnerability` counts how many are fooled, of whole splits and over runs.

    Example:
        ``isthmus measure runs/vib --measure adversarial_images -P attack=pgd -P epsilon=0.1 -P count=4``
    """

    takes: ClassVar[tuple[Option, ...]] = ("n", "splits", "seed")

    attack: str = "fgsm"
    """Name of a gradient attack (isthmus list attacks)."""
    epsilon: float | None = None
    """Radius of the attack in pixels; 0.3 by default."""
    steps: int | None = None
    """Number of steps, if it takes several; by default the attack's own."""
    count: int = 5
    """Number of images to show."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise UsageError(f"{self.name}: count is {self.count}; at least one image is shown")

    def measure(self, subject: Subject) -> Measurement:
        """Attack a sample of the split, by default test, and draw the first that are fooled."""
        import torch

        from isthmus.measures._codes import InputAttack, read_batches

        task: Any = subject.model.task
        if not getattr(task, "has_pixels", False):
            raise UsageError(f"{subject.name} does not read images: measure a model of images")
        attack, seed = InputAttack(self.attack, self.epsilon, self.steps), subject.asked.seed
        split = subject.split_names(("test",))[0]
        data = subject.sample(split, default=100)
        found: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]] = []
        for batch in read_batches(subject.model, data, seed):
            moved = batch.attack(attack.build(None), seed)
            before, after = (batch.read(inputs)["logits"].softmax(dim=1) for inputs in (batch.inputs, moved))
            found.append((batch.inputs.cpu(), moved.cpu(), before, after, batch.labels.cpu()))
            subject.step(f"{attack.name} on {split}", sum(len(part[4]) for part in found), len(data))
        clean, moved, before, after, labels = (torch.cat(column) for column in zip(*found, strict=True))
        right = before.argmax(dim=1) == labels
        fooled = right & (after.argmax(dim=1) != labels)
        chosen = torch.cat([fooled.nonzero()[:, 0], (right & ~fooled).nonzero()[:, 0]])[: self.count].tolist()
        if not chosen:
            raise UsageError(f"{subject.name} answers none of {len(data)} images correctly: there is nothing to show")
        names = subject.model.labels
        rows = tuple(_make_panels(clean[row], moved[row], before[row], after[row], names) for row in chosen)
        share = wilson(int(fooled.sum()), int(right.sum()))
        plot = Plot(
            self.name,
            f"{attack.title} on {split}: original, attacked, and the difference",
            "",
            "",
            (),
            kind="images",
            panels=rows,
            caption=f"{subject.name}. Differences are scaled so that the largest becomes black or white.",
        )
        figure = Figure.from_interval("fooled, of those answered correctly", share, split, share=True)
        return Measurement((figure,), (plot,), details={"examples": [data.examples[row].id for row in chosen]})


def _make_panels(
    clean: Tensor, moved: Tensor, before: Tensor, after: Tensor, names: tuple[str, ...]
) -> tuple[Panel, ...]:
    difference = moved - clean
    largest = float(difference.abs().max())
    shown = 0.5 + 0.5 * difference / largest if largest > 0 else 0.5 + 0 * difference
    titles = [f"{names[int(scores.argmax())]}, {float(scores.max()):.2f}" for scores in (before, after)]
    return (
        Panel(titles[0], pixels_of(clean)),
        Panel(titles[1], pixels_of(moved)),
        Panel(f"linf {largest:.2g}, l2 {float(difference.norm()):.2g}", pixels_of(shown)),
    )


def pixels_of(image: Tensor) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """An image [channels, height, width] in [0, 1] as whole numbers [height][width][1 or 3]."""
    values = (255 * image.clamp(0, 1)).round().long()
    if len(values) not in (1, 3):
        values = values[:1]
    return tuple(tuple(tuple(pixel) for pixel in line) for line in values.permute(1, 2, 0).tolist())
