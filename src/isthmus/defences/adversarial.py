"""Adversarial training with word attacks: attack the model as it stands, train on what was found, attack again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.defences._attacked import Attacked
from isthmus.defences._checks import needs_words
from isthmus.defences.base import Labelled, Made, Plan

if TYPE_CHECKING:
    from torch import nn

    from isthmus.data import Dataset
    from isthmus.models import Classifier


@dataclass(frozen=True)
class Adversarial(Attacked):
    """Adversarial training: attack the current model every few epochs, and train on the originals and what was found.

        A_t  = {(attack(f_t, x, y), y) : x among `points` of D}        at t = start, start + every, …
        loss = -log p(y | x)      over (x, y) in D, from t on in D ∪ A_t; A_t replaces the A before it

    References:
        Chen and Ji (2022), Adversarial Training for Improving Model Robustness? Look at Both Prediction and
        Interpretation (FLAT), https://arxiv.org/abs/2203.12709, whose baseline "-adv" it is (of BERT with
        `freeze_embeddings` its fair one).
        Alzantot et al. (2018), https://aclanthology.org/D18-1316, and Jin et al. (2020),
        https://arxiv.org/abs/1907.11932, for adversarial training on what word attacks find.

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
    """

    points: int | None = None
    """Training points that are attacked each time, drawn afresh with equal shares of the classes; none: all of them; 0:
    no attack."""
    start: int = 1
    """Epochs on the originals alone before the first attack."""
    every: int = 1
    """Epochs from one attack to the next."""
    keep_failed: bool = False
    """Whether failed and skipped attacks stay among the examples, with whatever text was reached."""
    freeze_embeddings: bool = False
    """Whether the words' embeddings stay as they are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start < 0:
            raise UsageError(f"{self.name}: start is {self.start}; it must be at least 0")
        if self.every < 1:
            raise UsageError(f"{self.name}: every is {self.every}; it must be at least 1")

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """As the base does; then leave the words' embeddings as they are, if that is asked for."""
        super().prepare(model, data)
        if self.freeze_embeddings:
            needs_words(self.name, model)
            freeze(model.table)

    def plan(self, epochs: int) -> Plan:
        """Judge from the first attack on."""
        if not self.replaces_examples:
            return self._base.plan(epochs)
        if self.start >= epochs:
            raise UsageError(
                f"{self.name} attacks after {self.start} epochs, but there are only {epochs} in all: train for more, "
                "or start earlier"
            )
        return Plan(judged_from=self.start)

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | Made | None:
        """Fresh adversarial examples beside the originals, whenever an attack is due."""
        if epoch < self.start or (epoch - self.start) % self.every:
            return None
        return self.with_adversarial(model, data, epoch, seed, keep_failed=self.keep_failed)


def freeze(module: nn.Module) -> None:
    """Keep what belongs to `module` as it is while training."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
