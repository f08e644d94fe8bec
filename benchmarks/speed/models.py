"""The victim of a benchmark, as other processes open it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.core.types import Victim

if TYPE_CHECKING:
    from isthmus.models.victims.classifier import InferencePrecision


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

    def models(self, names: Any) -> dict[str, Any]:
        return {}
