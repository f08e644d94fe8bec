"""`measure`: one measure of a run or of a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.given import Data, as_splits
from isthmus.core import catalog

if TYPE_CHECKING:
    from isthmus.measures.base import Measure, Measurement


def measure(
    model: Any,
    measure: str | Measure,
    data: Data = None,
    *,
    device: str | None = None,
    asked: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Measurement:
    """Compute a measure of a run, which keeps it, or of a classifier on given data.

    `asked` are the fields of `isthmus.measures.base.Asked` (``n``, ``splits``, ``seed``); `parameters` those of a
    measure given by name.

    >>> from isthmus import TrainingSettings, measure, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> model = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1))
    >>> found = measure(model, "calibration", rows)
    >>> sorted({figure.name for figure in found.figures})[0]
    'accuracy'
    """
    from isthmus.measures.base import Asked

    if isinstance(model, str | Path) and isinstance(measure, str) and data is None:
        from isthmus.verbs.measure import MeasureRequest
        from isthmus.verbs.measure import measure as run

        request = MeasureRequest((str(model),), (measure,), parameters, Asked(**(asked or {})), device=device)
        return run(request)[0].measurement
    method: Measure = catalog.build("measures", measure, parameters) if isinstance(measure, str) else measure
    if isinstance(model, str | Path):
        from isthmus.models import load_model

        model = load_model(model, device=device)
    return method(model, as_splits(data), **(asked or {}))
