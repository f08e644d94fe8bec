"""Defences: one method, one file.

A class is imported when it is first asked for, so that listing the methods costs nothing.

    >>> from isthmus import defences
    >>> defences.compose((defences.LabelSmoothing(), defences.FreeLB())).name
    'label_smoothing+freelb'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.defences.base import Batch, Defence, Terms
from isthmus.defences.parts.composition import Composed, build_defence, compose

if TYPE_CHECKING:
    from isthmus.defences.advaug import AdvAug
    from isthmus.defences.adversarial import Adversarial
    from isthmus.defences.alum import ALUM
    from isthmus.defences.confidence_penalty import ConfidencePenalty
    from isthmus.defences.flat import FLAT
    from isthmus.defences.freelb import FreeLB
    from isthmus.defences.freelbpp import FreeLBpp
    from isthmus.defences.gaussian_noise import GaussianNoise
    from isthmus.defences.infobert import InfoBERT
    from isthmus.defences.label_smoothing import LabelSmoothing
    from isthmus.defences.normalise import Normalise
    from isthmus.defences.pgd import PGD
    from isthmus.defences.random_substitution import RandomSubstitution
    from isthmus.defences.rdrop import RDrop
    from isthmus.defences.rsmi import RSMI
    from isthmus.defences.safer import SAFER
    from isthmus.defences.smart import SMART
    from isthmus.defences.standard import Standard
    from isthmus.defences.vib import VIB
    from isthmus.defences.vub import VUB

__all__ = [
    "ALUM",
    "FLAT",
    "PGD",
    "RSMI",
    "SAFER",
    "SMART",
    "VIB",
    "VUB",
    "AdvAug",
    "Adversarial",
    "Batch",
    "Composed",
    "ConfidencePenalty",
    "Defence",
    "FreeLB",
    "FreeLBpp",
    "GaussianNoise",
    "InfoBERT",
    "LabelSmoothing",
    "Normalise",
    "RDrop",
    "RandomSubstitution",
    "Standard",
    "Terms",
    "build_defence",
    "compose",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return catalog.find("defences", name).load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
