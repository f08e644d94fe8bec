"""SMART: smooth predictions around a text, and small changes of predictions from step to step."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus.core.errors import UsageError
from isthmus.core.types import Output
from isthmus.defences.base import Batch, Defence, Labelled, Terms, pass_terms
from isthmus.defences.parts.checks import at_least
from isthmus.defences.parts.perturbation import Dice
from isthmus.defences.parts.smoothness import Smoothness, symmetric_kl

if TYPE_CHECKING:
    from torch import nn

    from isthmus.models import Classifier


@dataclass(frozen=True)
class SMART(Smoothness):
    """SMART: smoothness-inducing regularisation and Bregman proximal point optimisation (Jiang et al., 2020).

        loss = -log p(y | e) + λ · max_δ KL_sym(p(· | e + δ), p(· | e)) + μ · KL_sym(p(· | e), p_teacher(· | e))
        teacher ← m · teacher + (1 - m) · model,     before every step

    References:
        Jiang, He, Chen, Liu, Gao and Zhao (2020), SMART: Robust and Efficient Fine-Tuning for Pre-trained Natural
        Language Models through Principled Regularized Optimization, https://arxiv.org/abs/1911.03437

    Where we depart:
        Dropout masks are shared by all passes of a step, so that the first divergence measures the perturbation and
        not the dropout; the teacher runs without dropout. The released code lacks the teacher and makes the
        perturbation of size one per token (`released`); the paper's is clipped to the radius (`paper`). The
        teacher's momentum is the same all through the run.

    Relations:
        `alum` is the smoothness term alone, with targets held fixed. With strength = proximal = 0 it is `standard`.

    Example:
        ``train(data, backbone="minilm", defence=defences.SMART(strength=5, proximal=1))``
    """

    takes_objective = True
    copies_model = True

    proximal: float = 1.0
    """Weight of the step away from the teacher (μ)."""
    momentum: float = 0.99
    """Momentum of the teacher: how slowly it follows the model (m)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self.name, "proximal", self.proximal, 0)
        if not 0 <= self.momentum < 1:
            raise UsageError(f"smart: momentum is {self.momentum}; it must be at least 0 and less than 1")

    def prepare(self, model: Classifier, data: Labelled) -> None:
        """Add a teacher to the model: a copy that is averaged and never trained."""
        super().prepare(model, data)
        if self.proximal:
            model.companions["teacher"] = alone(model).requires_grad_(False)

    @property
    def is_steady(self) -> bool:
        """True: every step is the same work."""
        return True

    def losses(self, model: Classifier, batch: Batch) -> Iterator[Terms]:
        """The cross-entropy, and the two divergences whose strengths are not zero."""
        if self.strength == 0 and self.proximal == 0:
            yield from Defence.losses(self, model, batch)
            return
        dice = Dice(model)
        clean: Output = model(**batch.inputs)
        values = pass_terms(model, clean, batch)
        if self.strength:
            moved = self.perturb(model, batch, clean, dice, symmetric_kl)
            values["smoothness"] = self.strength * symmetric_kl(moved.logits, clean.logits)
        if self.proximal:
            values["proximal"] = self.proximal * symmetric_kl(clean.logits, self._ask_teacher(model, batch).logits)
        yield Terms(values)

    def _ask_teacher(self, model: Classifier, batch: Batch) -> Output:
        import torch

        teacher = model.companions["teacher"].eval()
        with torch.no_grad():
            if batch.opens_step:
                follow(teacher, model, self.momentum)
            output: Output = teacher(**batch.inputs)
        return output


def alone(model: Classifier) -> nn.Module:
    """A copy of the model without its attached parts."""
    companions, model.companions = model.companions, type(model.companions)()
    try:
        return copy.deepcopy(model)
    finally:
        model.companions = companions


def follow(teacher: nn.Module, model: nn.Module, momentum: float) -> None:
    """Move every weight of the teacher towards the model's."""
    import torch

    ours = dict(model.named_parameters())
    names, theirs = zip(*teacher.named_parameters(), strict=True)
    # All at once: a GPU would otherwise be handed one small job per weight.
    torch._foreach_lerp_(theirs, [ours[name] for name in names], 1 - momentum)
