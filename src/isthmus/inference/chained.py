"""A front end before a classifier that predicts by several draws: two deployments in a row.

p(y | x) = answer(n(x))        n the front end (a normaliser), answer a vote over synonyms or two-step inference
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.core.errors import UsageError
from isthmus.core.types import Texts
from isthmus.inference.normalised import Normalised, NormalisedVictim
from isthmus.models.deployment import Deployment, build_deployment

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier


def chain(front: Deployment | None, behind: Deployment | None) -> Deployment | None:
    """Chain two deployments; if there is only one, return it."""
    if front is None or behind is None:
        return behind if front is None else front
    return Chained(front, behind)


@dataclass(frozen=True)
class Chained(Deployment):
    """Reads texts by the first deployment, predicts by the second."""

    kind = "chained"

    front: Deployment
    behind: Deployment

    def __post_init__(self) -> None:
        for name in ("front", "behind"):
            value = getattr(self, name)
            if isinstance(value, Mapping):  # as a folder describes it
                object.__setattr__(self, name, build_deployment(value))
        if not isinstance(self.front, Normalised) or isinstance(self.behind, Normalised | Chained):
            raise UsageError("of two deployments the first must be a normaliser, and the second must not be one")

    def read(self, texts: Sequence[Texts]) -> Sequence[Texts]:
        """The texts after the front end."""
        return self.front.read(texts)

    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> NormalisedVictim:
        """The whole pipeline as a victim; each option goes to the deployment that has it."""
        assert isinstance(self.front, Normalised)
        own = {field.name for field in dataclasses.fields(Normalised)}
        front = self.front.change({name: value for name, value in options.items() if name in own})
        rest = {name: value for name, value in options.items() if name not in own}
        assert isinstance(front, Normalised)
        # A victim of texts is not asked a second time, so it computes in float32 at once.
        return NormalisedVictim(self.behind.victim(model, "fp32", **rest), front)

    def write_beside(self, folder: Path) -> None:
        """Write the files of both deployments."""
        self.front.write_beside(folder)
        self.behind.write_beside(folder)

    def read_beside(self, folder: Path) -> Chained:
        """Read the files of both deployments."""
        return Chained(self.front.read_beside(folder), self.behind.read_beside(folder))
