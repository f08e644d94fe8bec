"""`evaluate`: accuracy and calibration of a model on sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.api.given import Data, as_names, as_path, data_request, find_victim, open_data, refuse_out, take_sample
from isthmus.core.errors import UsageError
from isthmus.core.seeds import derive
from isthmus.results import EvaluationResults

if TYPE_CHECKING:
    from isthmus.core.types import Example, Floats
    from isthmus.runs.evaluated import Evaluated


def evaluate(
    model: Any,
    data: Data = None,
    *,
    n: int | None = None,
    split: str | None = None,
    seed: int = 0,
    labels: Sequence[str] | None = None,
    out: str | Path | None = None,
    device: str | None = None,
) -> EvaluationResults:
    """Accuracy and calibration of a model on a set, example by example; arguments as of `attack`.

    >>> from isthmus import evaluate
    >>> rows = [("a dull plot", "bad"), ("a fine film", "good"), ("a dull joke", "good")]
    >>> found = evaluate(lambda texts: [[0.9, 0.1] if "dull" in text else [0.1, 0.9] for text in texts], rows,
    ...                  labels=("bad", "good"))
    >>> [result.outcome for result in found]
    ['right', 'right', 'wrong']
    """
    request = data_request(data)
    if isinstance(model, str | Path) and (request is None or (request and not request.options)):
        from isthmus.runs.evaluated import Evaluated
        from isthmus.verbs.evaluate import EvaluateRequest, SetRequest
        from isthmus.verbs.evaluate import evaluate as run

        on = () if request is None else (request.source,)
        sets = SetRequest(on=on, split=() if split is None else (split,))
        report = run(
            EvaluateRequest(
                str(model), sets, n=n, seed=seed, out=as_path(out), labels=as_names(labels), device=device, latency=0
            )
        )
        outcome = report.outcomes[0]
        found = tuple(each for each in outcome.results if isinstance(each, Evaluated))
        if len(found) < len(outcome.results):
            raise UsageError("this model answers questions; its figures are in the run: isthmus report, or open_run")
        return EvaluationResults(outcome.file.key, found, tuple(outcome.header.get("labels") or ()), report.folder)
    refuse_out(out)
    victim, sample = find_victim(model, labels, device), take_sample(open_data(model, data), split, n, seed)
    aligned = sample.align_labels(victim.labels)
    keys = np.array([derive(seed, "evaluate", each.id) for each in aligned], dtype=np.uint64)
    texts = [each.inputs for each in aligned]
    scores = victim.scores(texts, keys) if victim.stochastic else victim.scores(texts)
    results = tuple(_make_result(each, row) for each, row in zip(aligned, scores, strict=True))
    return EvaluationResults(sample.name, results, tuple(victim.labels))


def _make_result(example: Example, scores: Floats) -> Evaluated:
    from isthmus.runs.evaluated import Evaluated

    assert isinstance(example.label, int)
    if not np.isfinite(scores).all():
        return Evaluated(example.id, "error", example.label, example.texts, reason="the model answered NaN")
    prediction, rounded = int(scores.argmax()), tuple(float(f"{value:.7g}") for value in scores)
    outcome = "right" if prediction == example.label else "wrong"
    return Evaluated(example.id, outcome, example.label, example.texts, {"model": rounded}, prediction=prediction)
