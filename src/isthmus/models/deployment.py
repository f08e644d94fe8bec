"""Deployments: predictions of a trained classifier that take more than a single pass.

A defence that votes or smooths sets ``model.deployment``; it is written with the model, so that whoever loads the
folder gets the classifier as it was meant to be used. A folder is data: it names a kind of deployment, and only kinds
of this package, or kinds a program registered itself, are ever looked up.
"""

from __future__ import annotations

import dataclasses
import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from isthmus.core.errors import IsthmusError, ModelError, UsageError
from isthmus.core.types import Texts, Victim

if TYPE_CHECKING:
    from isthmus.models.classifier import Classifier

_HOMES: dict[str, str] = {
    "chained": "isthmus.inference.chained:Chained",
    "normalise": "isthmus.inference.normalised:Normalised",
    "synonyms": "isthmus.inference.smoothing:SynonymSmoothing",
    "two_step": "isthmus.inference.two_step:TwoStep",
}
_registered: dict[str, type[Deployment]] = {}


@dataclass(frozen=True)
class Deployment(ABC):
    """Base class of deployments; fields are JSON-ready settings, but those marked `BESIDE` have files of their own."""

    kind: ClassVar[str]
    """Its name in a model's folder."""
    in_one_pass: ClassVar[bool] = False
    """Whether an answer is that of a single pass, so that what is measured in training is what is deployed."""

    @abstractmethod
    def victim(self, model: Classifier, precision: Any = "fp32", **options: Any) -> Victim:
        """The deployed classifier as a victim. `options` change settings for this use alone."""

    def read(self, texts: Sequence[Texts]) -> Sequence[Texts]:
        """The texts as the model reads them, also in training; unchanged without a front end."""
        return texts

    def write_beside(self, folder: Path) -> None:
        """Write large settings into files of their own in the model's folder."""
        del folder

    def read_beside(self, folder: Path) -> Deployment:
        """The deployment with the files that `write_beside` wrote."""
        return self

    def change(self, options: Mapping[str, Any]) -> Self:
        """The deployment with other settings; an unknown one is an error."""
        known = [field.name for field in dataclasses.fields(self) if not field.metadata.get("beside")]
        for name in options:
            if name not in known:
                raise UsageError(f"a model deployed as {self.kind} has no setting {name!r}; it has {', '.join(known)}")
        return dataclasses.replace(self, **options)


def register_deployment(cls: type[Deployment]) -> type[Deployment]:
    """Allow saved classifiers to name `cls`, a deployment outside this package; use it as a decorator."""
    _registered[cls.kind] = cls
    return cls


def describe_deployment(deployment: Deployment) -> dict[str, Any]:
    """Describe a deployment for the model's folder."""
    if deployment.kind not in _HOMES and deployment.kind not in _registered:
        raise UsageError(
            f"a classifier deployed as {deployment.kind!r} cannot be saved: it could not be loaded again. "
            "Decorate the class with isthmus.models.deployment.register_deployment"
        )
    settings = [field.name for field in dataclasses.fields(deployment) if not field.metadata.get("beside")]
    values = {name: getattr(deployment, name) for name in settings}
    # One deployment may stand before another.
    config = {name: describe_deployment(one) if isinstance(one, Deployment) else one for name, one in values.items()}
    return {"kind": deployment.kind, "config": config}


BESIDE = {"beside": True}
"""Metadata of a field that `write_beside` writes and `read_beside` reads."""


def build_deployment(description: Any) -> Deployment:
    """Build the deployment that a folder describes."""
    config = description.get("config") if isinstance(description, Mapping) else None
    if not isinstance(config, dict):
        raise ModelError(f"a deployment must be described by its kind and config, not by {description!r}")
    kind = description.get("kind")
    cls = _registered.get(str(kind)) or _own(str(kind))
    try:
        return cls(**config)
    except (TypeError, IsthmusError) as error:
        raise ModelError(f"the deployment {kind!r} cannot be built from {config!r}: {error}") from error


def _own(kind: str) -> type[Deployment]:
    if kind not in _HOMES:
        raise ModelError(
            f"the model is deployed as {kind!r}, which this version of isthmus does not know; if it is yours, import "
            "the module that registers it with isthmus.models.deployment.register_deployment first"
        )
    module, name = _HOMES[kind].split(":")
    found: type[Deployment] = getattr(importlib.import_module(module), name)
    return found
