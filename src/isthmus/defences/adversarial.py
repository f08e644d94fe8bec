"""Adversarial training: attack the current model, train on the adversarial texts, attack again."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from isthmus.core import catalog
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.core.types import Example, ImageClassification, Task
from isthmus.defences.base import Batch, Labelled, Made, Plan, Terms, speaks_for_itself
from isthmus.defences.parts.attacked_examples import Attacked, address_parameters, split_key_values
from isthmus.defences.parts.checks import needs_words

if TYPE_CHECKING:
    from torch import nn

    from isthmus.data import Dataset
    from isthmus.models import Classifier


@dataclass(frozen=True)
class Adversarial(Attacked):
    """Adversarial training: attack the model every few epochs, train on originals and adversarial texts.

        A_t  = {(attack(f_t, x, y), y) : x among `points` of D}        at t = start, start + every, …
        loss = -log p(y | x)      over (x, y) in D, from t on in D ∪ A_t; A_t replaces the A before it

    Images are attacked at every step: of each mini-batch the share `ratio` is replaced by what a gradient attack makes
    of it, whether the model was right before or not.

    References:
        Chen and Ji (2022), Adversarial Training for Improving Model Robustness? Look at Both Prediction and
        Interpretation (FLAT), https://arxiv.org/abs/2203.12709, whose baseline "-adv" it is (of BERT with
        `freeze_embeddings` its fair one).
        Alzantot et al. (2018), https://aclanthology.org/D18-1316, and Jin et al. (2020),
        https://arxiv.org/abs/1907.11932, for adversarial training on what word attacks find.
        Goodfellow, Shlens and Szegedy (2015), https://arxiv.org/abs/1412.6572, and Madry et al. (2018),
        https://arxiv.org/abs/1706.06083, for images.

    Where we depart:
        FLAT keeps failed and skipped attacks with whatever text was reached: `keep_failed` = true; the default keeps
        the successes alone. Its schedule is start = 10, every = 10 in 30 epochs, and attacks twice (its count from one
        attacks three times: start = 9). Attacks that ended in an error or ran out of time are never used. Weights of
        the epochs before the first attack cannot be chosen by their development accuracy.

    Relations:
        `advaug` attacks once and may train from the start again. `freelb` and `pgd` find worst cases in the embeddings
        at every step, at a fraction of the cost, and can be the base: base=freelb. `flat` adds word masks. With
        points = 0 it is its base.

    Example:
        ``isthmus train --data rotten_tomatoes --defence adversarial -P attack=deepwordbug -P start=1 --epochs 4``
        ``isthmus train --data mnist --backbone mlp --defence adversarial -P attack=fgsm -P base=vib``
    """

    points: int | None = None
    """Training points that are attacked each time, drawn again with equal shares of the classes; none: all of them; 0:
    no attack."""
    start: int = 1
    """Number of epochs on the originals alone before the first attack."""
    every: int = 1
    """Number of epochs from one attack to the next."""
    keep_failed: bool = False
    """Whether failed and skipped attacks stay among the examples, with whatever text was reached."""
    freeze_embeddings: bool = False
    """Whether to freeze the word embeddings."""
    ratio: float | None = None
    """Images: share of every mini-batch that is adversarial; by default one half, 0 is the base."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratio is not None and not 0 <= self.ratio <= 1:
            raise UsageError(f"{self.name}: ratio is {self.ratio}; it must be a share between 0 and 1")
        if self.ratio is not None and not self._moves_pixels:
            raise UsageError(f"{self.name}: ratio is for attacks on images, and {self.attack} edits words")
        if self.start < 0:
            raise UsageError(f"{self.name}: start is {self.start}; it must be at least 0")
        if self.every < 1:
            raise UsageError(f"{self.name}: every is {self.every}; it must be at least 1")

    @functools.cached_property
    def _moves_pixels(self) -> bool:
        """Whether the attacks are gradient attacks; they cannot be mixed with word attacks."""
        kinds = {catalog.find("attacks", name).kind for name in self._names}
        if len(kinds) > 1:
            raise UsageError(f"{self.name}: {self.attack} are attacks on words and on images: name one kind")
        return kinds == {"gradient"}

    @functools.cached_property
    def _attacks(self) -> dict[str, Any]:
        """The attacks by name; gradient attacks run all their steps, also on rows that are fooled already."""
        if not self._moves_pixels:
            return super()._attacks
        given = address_parameters(split_key_values(self.attack_parameters, f"{self.name}: {self.attack}"), self._names)
        for name, own in given.items():
            if "stop" in {parameter.name for parameter in catalog.find("attacks", name).parameters}:
                own.setdefault("stop", "false")
        return {name: catalog.build("attacks", name, own) for name, own in given.items()}

    def adapt_to(self, task: Task) -> Self:
        """With gradient attacks, make half of every mini-batch adversarial if no ratio was given."""
        return replace(self, ratio=0.5) if self._moves_pixels and self.ratio is None else self

    @property
    def _makes_texts(self) -> bool:
        """False for images, which are attacked batch by batch."""
        return not self._moves_pixels and super()._makes_texts

    @property
    def needs_images(self) -> bool:
        """True with gradient attacks."""
        return self._moves_pixels

    @property
    def trains_images(self) -> bool:
        """True with gradient attacks, if the base trains images."""
        return self._moves_pixels and self._base.trains_images

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Prepare as the base does; then freeze the word embeddings, if requested."""
        if not self._moves_pixels:
            super().prepare(model, data)
            if self.freeze_embeddings:
                needs_words(self.name, model)
                freeze(model.table)
            return
        if not isinstance(model.task, ImageClassification) or not model.task.has_pixels:
            raise UsageError(
                f"{self.name}: {self.attack} moves pixels, and this model reads "
                f"{'features' if isinstance(model.task, ImageClassification) else 'texts'}: name an attack that edits "
                "words, or take freelb or pgd, which move embeddings"
            )
        self._base.prepare(model, data)

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The base's losses; for images, on a batch that is partly adversarial."""
        return self._base.losses(model, self.transform(model, batch))

    @property
    def is_steady(self) -> bool:
        """True with a single steady gradient attack that draws nothing, if the base is steady."""
        if not self._moves_pixels or len(self._names) > 1 or not speaks_for_itself(type(self._base)):
            return False
        return self._base.is_steady and all(attack.is_steady for attack in self._attacks.values())

    @property
    def asks_evaluated(self) -> bool:
        """True with gradient attacks, which run on the model in evaluation mode."""
        return self._moves_pixels

    @property
    def transforms(self) -> bool:
        """True for images."""
        return self._moves_pixels

    def transform(self, model: Classifier, batch: Batch) -> Batch:
        """For images, a batch that is partly adversarial; texts are attacked between epochs."""
        import torch

        if not self._moves_pixels:
            return batch
        ratio, names = 0.5 if self.ratio is None else self.ratio, self._names
        count = round(ratio * len(batch))
        if not count:
            return batch
        attack = self._attacks[names[derive(batch.seed, self.name, "which attack") % len(names)]]
        # The order of a batch is random already, so that its first rows are as good as any.
        clean, labels = batch.inputs["pixels"], batch.labels
        seed = derive(batch.seed, self.name, "attack")
        found = attack.move(model, clean[:count], labels[:count], seed=seed)
        mixed = torch.cat([found.to(clean.dtype), clean[count:]])
        return replace(batch, inputs={**batch.inputs, "pixels": mixed})

    def plan(self, epochs: int) -> Plan:
        """Select the best epoch from the first attack on."""
        if not self._makes_texts:
            return self._base.plan(epochs)
        if self.start >= epochs:
            raise UsageError(
                f"{self.name} attacks after {self.start} epochs, but there are only {epochs} in all: train for more, "
                "or start earlier"
            )
        return Plan(judged_from=self.start)

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | Made | None:
        """The originals and new adversarial examples, in every epoch with an attack."""
        if epoch < self.start or (epoch - self.start) % self.every:
            return None
        return self.with_adversarial(model, data, epoch, seed, keep_failed=self.keep_failed)


def freeze(module: nn.Module) -> None:
    """Freeze the parameters of `module` during training."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
