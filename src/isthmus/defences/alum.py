"""ALUM: keep predictions the same under small perturbations of the word embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Terms, pass_terms
from isthmus.defences.parts.perturbation import Dice
from isthmus.defences.parts.smoothness import Smoothness, kl

if TYPE_CHECKING:
    from torch import Tensor

    from isthmus.models import Classifier


@dataclass(frozen=True)
class ALUM(Smoothness):
    """ALUM: virtual adversarial training in the word embeddings, at fine-tuning (Liu et al., 2020).

        loss = -log p(y | e) + λ · [ KL(p(· | e + δ) ‖ sg p(· | e)) + KL(p(· | e) ‖ sg p(· | e + δ)) ]

    with sg for "no gradient", and δ found by one step of ascent on the first of the two divergences.

    References:
        Liu, Cheng, He, Chen, Wang, Poon and Gao (2020), Adversarial Training for Large Neural Language Models,
        https://arxiv.org/abs/2004.08994

    Where we depart:
        Dropout masks are shared by all passes, so that the divergence measures the perturbation and not the dropout.
        In `paper` mode the perturbation is clipped to the radius; the released code makes it of size one per token
        (`released`).

    Relations:
        `smart` adds a teacher and lets gradients flow through both sides. With strength = 0 it is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.ALUM(mode="released"))``
    """

    takes_objective = True

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Two terms from two passes: the cross-entropy and the divergence."""
        if self.strength == 0:
            yield from Defence.losses(self, model, batch)
            return
        dice = Dice(model)
        clean: Output = model(**batch.inputs)
        moved = self.perturb(model, batch, clean, dice, both_ways)
        smoothness = self.strength * both_ways(moved.logits, clean.logits)
        yield Terms({**pass_terms(model, clean, batch), "smoothness": smoothness})


def both_ways(p: Tensor, q: Tensor) -> Tensor:
    """KL in both directions, each target detached."""
    return kl(p, q.detach()) + kl(q, p.detach())
