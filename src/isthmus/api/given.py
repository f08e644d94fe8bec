"""What callers hand to the functions: a model and data by name, or at hand."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from isthmus.api.run import open_run
from isthmus.core.errors import IsthmusWarning, UsageError

if TYPE_CHECKING:
    from isthmus.core.types import Victim
    from isthmus.data import Dataset, Splits
    from isthmus.verbs.sources import DataRequest

Data = Any
"""A name, a file, `Splits`, a `Dataset`, or plain input as `isthmus.load_data` takes it."""


def as_path(given: str | Path | None) -> Path | None:
    """A folder or a file, where one was named."""
    return None if given is None else Path(given)


def as_names(labels: Sequence[str] | None) -> tuple[str, ...] | None:
    """Class names, where they were given."""
    return None if labels is None else tuple(labels)


def refuse_out(out: str | Path | None, why: str = "") -> None:
    """Refuse a folder for results of objects at hand: no run could say later what they were."""
    if out is not None:
        raise UsageError(
            f"out={str(out)!r} needs a model and data that have names, so that the run can say what they were"
            f"{f' ({why})' if why else ''}: name the model (a folder it was saved to) and the data (a file), or remove "
            "`out`"
        )


def is_named(model: Any) -> bool:
    """Whether a model is given by name: a run folder, or anything that the command line takes."""
    return isinstance(model, str | Path)


def data_request(data: Data) -> DataRequest | Any | None:
    """The data as a request names them; None for the run's own, False for data at hand."""
    from isthmus.data import Splits
    from isthmus.verbs.sources import DataRequest

    if data is None:
        return None
    if isinstance(data, str | Path):
        return DataRequest(str(data))
    if isinstance(data, Splits) and data.origin is not None:
        return DataRequest(**data.origin)
    return False


def as_splits(data: Data) -> Splits:
    """The data, loaded if they are not yet."""
    from isthmus.data import Splits, load_data

    return data if isinstance(data, Splits) else load_data(data)


def open_data(model: Any, data: Data) -> Splits:
    """Data at hand or by name; without any those of the model's own run, as training cut them."""
    if data is not None:
        return as_splits(data)
    if not is_named(model):
        raise UsageError("a model at hand has no data of its own: pass `data`")
    from isthmus.verbs.subject import load_run_data

    return load_run_data(open_run(model).record)


def take_sample(splits: Splits, split: str | None, n: int | None, seed: int, only_label: int | None = None) -> Dataset:
    """The first `n` examples of the seeded order of a split, of one class where one is asked for."""
    from isthmus.verbs.sources import choose_split

    found = choose_split(splits, split)
    warn_of_rejected(found)
    if only_label is not None:
        return found[:].sample(n, seed, only_label)
    # A sample of everything would only be another order of it.
    return found[:] if n is None or n >= len(found) else found[:].sample(n, seed)


def warn_of_rejected(data: Dataset) -> None:
    """Say how many rows of a set cannot be used: in a run each would have a row of its own."""
    if data.rejected:
        _warn(
            f"{len(data.rejected)} rows of {data.name} cannot be used and are left out; the first: "
            f"{data.rejected[0].reason}"
        )


def warn_of_errors(name: str, results: Sequence[Any]) -> None:
    """Say how many examples the model gave no answer to: a run would stop if it answered none."""
    failed = [each for each in results if each.outcome == "error"]
    if failed:
        _warn(f"{name}: {len(failed)} of {len(results)} examples ended in an error; the first: {failed[0].reason}")


def _warn(message: str) -> None:
    """Warn at the line of the caller's program."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "isthmus":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, IsthmusWarning, stacklevel=level)


def find_victim(
    model: Any,
    labels: Sequence[str] | None,
    device: str | None,
    options: Mapping[str, Any] | None = None,
    precision: str = "fp32",
) -> Victim:
    """The model, by name or at hand; `options` are those of the victim's class."""
    from isthmus.models.victims import load_victim
    from isthmus.verbs.model_loading import VERSION, check_precision

    check_precision(precision)
    given = {key: value for key, value in (options or {}).items() if key != VERSION}
    wanted: Literal["fp32", "bf16"] = "bf16" if precision == "bf16" else "fp32"
    try:
        return load_victim(model, labels=labels, device=device, precision=wanted, **given)
    except TypeError as error:
        unknown = next((key for key in given if repr(key) in str(error)), None)
        if unknown is None:
            raise
        raise UsageError(f"{unknown!r} is not a valid option of `victim` for this model") from error
