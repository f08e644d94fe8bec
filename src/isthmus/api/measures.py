"""`measure`: one measure of a run, of several that it compares, or of a classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.api.arguments import check_arguments, check_count, check_seed
from isthmus.api.given import Data, as_splits, is_named
from isthmus.core import catalog
from isthmus.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from isthmus.measures.base import Measure, Measurement, Step


def measure(
    model: Any,
    measure: str | Measure,
    data: Data = None,
    *,
    n: int | None = None,
    splits: str | Sequence[str] | None = None,
    seed: int | None = None,
    every_epoch: bool | None = None,
    texts: str | Sequence[str] | None = None,
    against: str | Path | None = None,
    device: str | None = None,
    progress: Step | None = None,
    asked: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> Measurement:
    """Compute a measure of a run, which keeps it, or of a classifier on given data.

    Args:
        model: a run folder, several where the measure compares them (``trade_off``), or a classifier.
        measure: a name (`isthmus list measures`), or a measure with its parameters.
        data: for a classifier; a run is measured on its own.
        n: examples of each split; by default what the measure usually takes.
        splits: which splits; by default all that it needs.
        seed: of samples, fits and draws.
        every_epoch: whether to measure every snapshot of the training too.
        texts: sentences to look at, in place of the data's.
        against: a run to compare with.
        device: ``cpu`` or ``cuda``.
        progress: told what is being done, and how far it is.
        asked: the same as `n`, `splits`, `seed`, `every_epoch` and `texts`, as a mapping.
        parameters: of a measure that is given by name. Where a measure has a parameter called `n`, `splits`, `seed`,
            `every_epoch` or `texts` itself (none that comes with isthmus has), the argument is that parameter, and the
            option is given in `asked`.

    >>> from isthmus import TrainingSettings, measure, train
    >>> rows = [("a lovely film", "good"), ("a dull plot", "bad")] * 10
    >>> model = train(rows, backbone="minilm", settings=TrainingSettings(epochs=1))
    >>> found = measure(model, "calibration", rows, n=8)
    >>> sorted({figure.name for figure in found.figures})[0]
    'accuracy'
    """
    from isthmus.measures.base import Asked

    check_arguments(
        splits=splits, every_epoch=every_epoch, texts=texts, against=against, device=device, step=progress, asked=asked
    )
    n, seed = check_count("n", n), None if seed is None else check_seed(seed)
    known = {entry.name for entry in dataclasses.fields(Asked)}
    for name in asked or ():
        if name not in known:
            raise UnknownName("option of measure", name, known)
    if not isinstance(measure, str) and (isinstance(measure, type) or not hasattr(measure, "heeds")):
        raise UsageError(
            "measure takes a name (isthmus list measures) or a measure with its parameters "
            f"(isthmus.measures.Calibration()), not {measure!r:.80}"
        )
    given: dict[str, Any] = {
        "n": n, "splits": _as_tuple(splits), "seed": seed, "every_epoch": every_epoch, "texts": _as_tuple(texts),
    }  # fmt: skip
    entry = catalog.find("measures", measure) if isinstance(measure, str) else None
    own = set() if entry is None else {parameter.name for parameter in entry.parameters}
    told = dict(asked or {})
    for name, value in given.items():
        if value is None:
            continue
        if name in own:
            parameters[name] = value
        elif name in told:
            raise UsageError(f"{name} is given twice, by name and in `asked`: give it once")
        else:
            told[name] = value
    if parameters and entry is None:
        raise UsageError("parameters belong to the measure: give them where it is made, or name it instead")
    runs = [model] if is_named(model) else list(model) if isinstance(model, list | tuple) else []
    if runs and all(map(is_named, runs)) and isinstance(measure, str) and data is None:
        return _measure_runs(
            [str(each) for each in runs], measure, parameters, Asked(**told), against, device, progress
        )
    if against is not None or isinstance(model, list | tuple):
        raise UsageError("models are compared as runs: name their folders and the measure, and pass no `data`")
    method: Measure = catalog.build("measures", measure, parameters) if isinstance(measure, str) else measure
    unheard = [name for name in Asked(**told).non_defaults() if not method.heeds(name)]  # type: ignore[arg-type]
    if unheard:
        raise UsageError(f"{method.name} does not use {unheard[0]}: leave it out (isthmus show {method.name})")
    if is_named(model):
        from isthmus.models import load_model

        model = load_model(model, device=device)
    return method(model, as_splits(data), **told)


def _measure_runs(
    runs: Sequence[str],
    name: str,
    parameters: Mapping[str, Any],
    asked: Any,
    against: str | Path | None,
    device: str | None,
    progress: Step | None,
) -> Measurement:
    """Measure by the command's own code; the run keeps what is found."""
    from isthmus.verbs.measure import MeasureRequest
    from isthmus.verbs.measure import measure as run

    if len(runs) > 1 and not catalog.find("measures", name).load().compares:
        raise UsageError(f"{name} measures one run: call it for each of them, or pass `against` where it compares two")
    other = None if against is None else str(against)
    return run(MeasureRequest(tuple(runs), (name,), parameters, asked, other, device=device), progress)[0].measurement


def _as_tuple(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else (given,) if isinstance(given, str) else tuple(given)
