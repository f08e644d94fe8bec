"""The victim of a benchmark, as other processes open it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.types import Victim

if TYPE_CHECKING:
    from isthmus.models.victims.classifier import InferencePrecision
    from isthmus.verbs.attack.auxiliary_models import Companions, Names


@dataclass(frozen=True)
class Models:
    """The victim, as every process opens it."""

    model: str | None
    device: str
    precision: InferencePrecision

    def victim(self) -> Victim:
        if self.model is not None:
            from isthmus.models.victims import load_victim

            return load_victim(self.model, device=self.device, precision=self.precision)
        from isthmus.models import Classifier, ClassifierVictim

        model = Classifier.create("minilm", ("negative", "positive")).to(self.device).eval()
        return ClassifierVictim(model, self.precision)

    def models(self, names: Names | None) -> dict[str, Any]:
        """The auxiliary models of an attack; loaded once in a process, for warm-up and measurement alike."""
        if names is None:
            return {}
        loaded: dict[str, Any] = _companions(self.device).of(names)
        return loaded


@functools.cache
def _companions(device: str) -> Companions:
    from isthmus.verbs.attack.auxiliary_models import Companions
    from isthmus.verbs.observer import Observer

    return Companions(device, Observer())
