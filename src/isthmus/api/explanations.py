"""`explain`: which words drive a prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.given import find_victim

if TYPE_CHECKING:
    from isthmus.explanations.base import Explainer, Explanation


def explain(
    model: Any,
    texts: Any,
    *,
    method: str | Explainer = "integrated_gradients",
    classes: Any = "predicted",
    seed: int = 0,
    **parameters: Any,
) -> Explanation | list[Explanation]:
    """Explain which words drive a prediction; for several texts, a list of explanations.

    `model` may be a run folder or a model by name; the rest is as in `isthmus.explanations.explain`.

    >>> from isthmus import explain
    >>> found = explain(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts],
    ...                 "a dull plot", method="occlusion")
    >>> max(zip(found.weights[0], found.words))[1]
    'dull'
    """
    from isthmus.explanations.base import explain as of_victim

    subject = find_victim(model, None, None) if isinstance(model, str | Path) else model
    return of_victim(subject, texts, method=method, classes=classes, seed=seed, **parameters)
