"""FreeLB: train on every step of a gradient ascent in the word embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.defences.base import Batch, Defence, Terms, pass_terms
from isthmus.defences.parts.perturbation import Ascent, Climb

if TYPE_CHECKING:
    from isthmus.models import Classifier


@dataclass(frozen=True)
class FreeLB(Ascent):
    """FreeLB: average the loss over the steps of a gradient ascent in the word embeddings (Zhu et al., 2020).

        loss = 1/S Σ_{s=1..S} -log p(y | e + δ_s),     δ_{s+1} = Π(δ_s + a · g_s / ‖g_s‖),   g_s = ∂ loss_s / ∂ δ_s

    Gradients of all steps add up to one update, so the climb costs nothing beyond its passes.

    References:
        Zhu, Cheng, Gan, Sun, Goldstein and Liu (2020), FreeLB: Enhanced Adversarial Training for Natural Language
        Understanding, https://arxiv.org/abs/1909.11764

    Where we depart:
        The lengths of the climb are multiples of the mean norm of the text's word vectors: the paper's 0.1, 0.1 and
        0.3 (``scale=paper``) were chosen for RoBERTa-large and hold MiniLM at chance on small data and on pairs of
        sentences. Dropout masks are the same in all steps, as the paper asks for. Mind that the uniform start has a
        norm of about init_magnitude / √3, not init_magnitude.

    Relations:
        `freelbpp` climbs further and without a limit; `pgd` climbs first and trains on the last point only. `infobert`
        with adversary=freelb adds two regularisers. One step from a start of magnitude 0 is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.FreeLB(steps=3))``
    """

    takes_objective = True

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """Yield one term per step; the perturbation climbs between them."""
        if self.steps == 1 and self.init_magnitude == 0:
            yield from Defence.losses(self, model, batch)
            return
        climb = Climb(self, model, batch)
        for step in range(self.steps):
            output = climb.forward(last=step + 1 == self.steps)
            yield Terms({name: value / self.steps for name, value in pass_terms(model, output, batch).items()})
            if step + 1 < self.steps:
                climb.step(climb.delta.grad)
