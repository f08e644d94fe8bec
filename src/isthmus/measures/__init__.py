"""Measures of a trained model: its information, robustness and calibration; one method, one file.

A class is imported when it is first asked for (``measures.Information``), so that listing the methods costs nothing.

    >>> from isthmus import measures
    >>> measures.Calibration().name
    'calibration'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.core import catalog
from isthmus.measures.base import Measure, Measurement, Subject

if TYPE_CHECKING:
    from isthmus.measures.adversarial_images import AdversarialImages
    from isthmus.measures.anchored_information import AnchoredInformation
    from isthmus.measures.anchored_words import AnchoredWords
    from isthmus.measures.calibration import Calibration
    from isthmus.measures.embedding_pgd import EmbeddingPGD
    from isthmus.measures.faithfulness import Faithfulness
    from isthmus.measures.feature_entropy import FeatureEntropy
    from isthmus.measures.information import Information
    from isthmus.measures.information_bounds import InformationBounds
    from isthmus.measures.information_plane import InformationPlane
    from isthmus.measures.interpretation_consistency import InterpretationConsistency
    from isthmus.measures.latent_distance import LatentDistance
    from isthmus.measures.learned_importance import LearnedImportance
    from isthmus.measures.lipschitz import Lipschitz
    from isthmus.measures.theorems import Theorems
    from isthmus.measures.trade_off import TradeOff
    from isthmus.measures.transferability import Transferability
    from isthmus.measures.vulnerability import Vulnerability

__all__ = [
    "AdversarialImages",
    "AnchoredInformation",
    "AnchoredWords",
    "Calibration",
    "EmbeddingPGD",
    "Faithfulness",
    "FeatureEntropy",
    "Information",
    "InformationBounds",
    "InformationPlane",
    "InterpretationConsistency",
    "LatentDistance",
    "LearnedImportance",
    "Lipschitz",
    "Measure",
    "Measurement",
    "Subject",
    "Theorems",
    "TradeOff",
    "Transferability",
    "Vulnerability",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return catalog.find("measures", name).load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
