"""What callers hand to the functions: a model and data by name, or at hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def refuse_out(out: str | Path | None) -> None:
    """Refuse a folder for results of objects at hand: no run could say later what they were."""
    if out is not None:
        raise UsageError(
            f"out={str(out)!r} needs a model and data that have names, so that the run can say what they were: "
            "name the model (a folder it was saved to) and the data (a file), or remove `out`"
        )


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


def take_sample(model: Any, data: Data, split: str | None, n: int | None, seed: int) -> Dataset:
    """The first `n` examples of the seeded order of a split, of data at hand or of the model's own run."""
    from isthmus.verbs.sources import choose_split

    if data is None:
        if not isinstance(model, str | Path):
            raise UsageError("a model at hand has no data of its own: pass `data`")
        data = open_run(model).load_data()
    found = choose_split(as_splits(data), split)
    if found.rejected:
        warnings.warn(
            f"{len(found.rejected)} rows of {found.name} cannot be used and are left out; the first: "
            f"{found.rejected[0].reason}",
            IsthmusWarning,
            stacklevel=3,
        )
    # A sample of everything would only be another order of it.
    return found[:] if n is None or n >= len(found) else found[:].sample(n, seed)


def find_victim(model: Any, labels: Sequence[str] | None, device: str | None) -> Victim:
    """The model, by name or at hand."""
    from isthmus.models.victims import load_victim

    return load_victim(model, labels=labels, device=device)
