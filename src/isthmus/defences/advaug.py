"""AdvAug: attack the fine-tuned model once, and train again with the adversarial texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from isthmus.core.errors import UsageError
from isthmus.core.types import Example
from isthmus.defences.base import Made, Plan
from isthmus.defences.parts.attacked_examples import Attacked

if TYPE_CHECKING:
    from isthmus.data import Dataset
    from isthmus.models import Classifier


@dataclass(frozen=True)
class AdvAug(Attacked):
    """Adversarial data augmentation: attack the fine-tuned model once, add the adversarial texts, retrain.

        f_1  = argmin Σ_{(x, y) in D} -log p(y | x)
        A    = {(attack(f_1, x, y), y) : x among `points` of D, f_1 fooled}
        loss = -log p(y | x)      over (x, y) in D ∪ A

    The first `after` epochs of a run fine-tune f_1, the others train on D ∪ A. Only the weights of the others may be
    chosen: of the first ones, which are not defended, the development accuracy knows nothing bad.

    References:
        Si, Zhang, Qi, Liu, Wang, Liu and Sun (2021), Better Robustness by More Coverage: Adversarial and Mixup Data
        Augmentation for Robust Finetuning, https://aclanthology.org/2021.findings-acl.137
        Moon, Joty, Zhao, Thakkar and Chi (2023), Randomized Smoothing with Masked Inference for Adversarially Robust
        Text Classifications, https://arxiv.org/abs/2305.06522, whose baseline it is with 10,000 points.

    Where we depart:
        The paper trains to the end, attacks, and trains to the end again: that is `mode` = paper with as many epochs
        after the attack as before it, each training with a schedule of its own and the attack on the best weights of
        the first. `continue` goes on from the weights that were attacked, under one schedule. Early stopping ends the
        second training only. An attack on a randomised base counts where fresh draws confirm it.

    Relations:
        `adversarial` attacks again and again. With base=freelb (or any other defence that makes no examples itself)
        both trainings have that defence's losses. With points = 0 it is its base.

    Example:
        ``isthmus train --data rotten_tomatoes --defence advaug -P attack=pwws -P after=2 --epochs 4``
    """

    after: int = 1
    """Epochs of plain training before the attack; 0 where the backbone is a classifier that was trained already."""
    mode: Literal["paper", "continue"] = "paper"
    """Train again from the initial weights, or go on from those that were attacked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after < 0:
            raise UsageError(f"{self.name}: after is {self.after}; it must be at least 0")
        if self.mode not in ("paper", "continue"):
            raise UsageError(f"{self.name}: mode is 'paper' or 'continue', not {self.mode!r}")

    def plan(self, epochs: int) -> Plan:
        """Train again after the attack, or select the best epoch from there."""
        if not self._makes_texts:
            return self._base.plan(epochs)
        if self.after >= epochs:
            raise UsageError(
                f"{self.name} attacks after {self.after} epochs and then trains on what it found, but there are only "
                f"{epochs} epochs in all: train for more, or give after = 0 if the backbone is trained already"
            )
        again = (self.after,) if self.mode == "paper" and self.after else ()
        return Plan(again, judged_from=self.after)

    def examples(self, model: Classifier, data: Dataset, epoch: int, seed: int) -> Sequence[Example] | Made | None:
        """The originals until the attack; afterwards the originals and the adversarial examples."""
        return self.with_adversarial(model, data, epoch, seed) if epoch == self.after else None
