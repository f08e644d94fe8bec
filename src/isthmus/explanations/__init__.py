"""Explanations: how much each word of a text speaks for a class. One method, one file.

    for found in explanations.IntegratedGradients()(model, examples):
        print(found.weights)

A class is imported when it is first asked for (``explanations.LIME``), so that listing the methods costs nothing.

    >>> from isthmus import explanations
    >>> explanations.Occlusion().needs_gradients
    False
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus.core import catalog

if TYPE_CHECKING:
    from isthmus.explanations.base import Explainer, Explanation, explain
    from isthmus.explanations.gradient_x_input import GradientXInput
    from isthmus.explanations.integrated_gradients import IntegratedGradients
    from isthmus.explanations.lime import LIME
    from isthmus.explanations.occlusion import Occlusion
    from isthmus.explanations.shapley import Shapley

__all__ = [
    "LIME",
    "Explainer",
    "Explanation",
    "GradientXInput",
    "IntegratedGradients",
    "Occlusion",
    "Shapley",
    "explain",
]


def __getattr__(name: str) -> Any:
    if name in ("Explainer", "Explanation", "explain"):
        from isthmus.explanations import base

        return getattr(base, name)
    if name in __all__:
        return catalog.find("explanations", name).load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
