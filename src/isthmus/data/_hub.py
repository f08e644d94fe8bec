"""Data sets of the Hugging Face hub, through the `datasets` library."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from isthmus import assets
from isthmus.assets import hub
from isthmus.core.errors import DataError, IsthmusError, MissingExtra, UnknownName
from isthmus.data._sources import DataSource, canonical
from isthmus.data._tables import Table
from isthmus.data.dataset import Splits

_FULL_NAMES = {
    "sst2": "stanfordnlp/sst2",
    "ag_news": "fancyzhx/ag_news",
    "snli": "stanfordnlp/snli",
    "mnli": "nyu-mll/glue:mnli",
    "qnli": "nyu-mll/glue:qnli",
    "anli": "facebook/anli",
    "squad": "rajpurkar/squad",
    "yelp_polarity": "fancyzhx/yelp_polarity",
    "dbpedia_14": "fancyzhx/dbpedia_14",
    "fashion_mnist": "zalando-datasets/fashion_mnist",
    "cifar100": "uoft-cs/cifar100",
    "svhn": "ufldl-stanford/svhn:cropped_digits",
}
"""Names the literature uses, and where the hub keeps them."""


def from_hub(source: str) -> DataSource:
    """Load a data set by hub name; ``owner/name:configuration`` chooses a configuration."""
    name, _, configuration = _FULL_NAMES.get(source, source).partition(":")
    try:
        import datasets
    except ImportError as error:
        if "/" in name:
            raise MissingExtra("datasets", "data", f"reading {source} from the Hugging Face hub") from error
        raise _unknown(source, "") from error
    try:
        with hub.patient_only_if_reachable():
            loaded = _load_dataset(datasets, name, configuration or None)
    except Exception as error:  # The library raises dozens of types, many of them not its own.
        raise _refusal(source, error) from error
    parts = {canonical(split): part for split, part in loaded.items()}
    readers = {
        split: functools.cache(functools.partial(_make_hub_table, f"{source}/{split}", parts[split])) for split in parts
    }
    column = _image_column(parts)
    return DataSource(
        source,
        readers,
        lambda split, column: _class_names(parts[split].features, column),
        None if column is None else functools.partial(_make_image_splits, parts, column),
    )


def _image_column(parts: Mapping[str, Any]) -> str | None:
    """The first column that holds images."""
    features = next(iter(parts.values())).features
    return next((name for name, kind in features.items() if type(kind).__name__ == "Image"), None)


def _make_image_splits(
    parts: Mapping[str, Any], column: str, title: str, labels: tuple[str, ...] | None, label: str | None
) -> Splits:
    """Make the splits of a data set of images."""
    from isthmus.data._image_folder import ImageRow, array_of, make_splits

    rows: dict[str, list[ImageRow]] = {}
    names = labels
    for split, part in parts.items():
        usual = [name for name in part.features if name in ("label", "labels", "fine_label", "class")]
        own = label or (usual[0] if usual else "label")
        if own not in part.features:
            raise DataError(f"{title} has no column {own!r}: it has {', '.join(part.features)}. Name it by --label")
        names = names or _class_names(part.features, own)
        for number, each in enumerate(part):
            where = f"{title}/{split}, row {number + 1}"
            image = each[column]
            found = f"{where} has no image" if image is None else array_of(image)
            rows.setdefault(split, []).append(ImageRow(str(number), found, int(each[own]), where))
    highest = max((row.label for part in rows.values() for row in part), default=0)
    return make_splits(title, rows, names or tuple(map(str, range(highest + 1))))


def _load_dataset(library: Any, name: str, configuration: str | None) -> Mapping[str, Any]:
    progress_was_on = library.is_progress_bar_enabled()
    library.disable_progress_bars()
    try:
        loaded: Mapping[str, Any] = library.load_dataset(name, configuration)
        return loaded
    finally:
        if progress_was_on:
            library.enable_progress_bars()


def _refusal(source: str, error: Exception) -> IsthmusError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if isinstance(error, OSError) and not hub.reachable():
        unreachable = "The Hugging Face hub cannot be reached from here, and its cache does not hold it."
        if "/" not in source and source not in _FULL_NAMES:
            return _unknown(source, unreachable)
        remedy = "Give a file or a folder instead, or put a folder of that name into $ISTHMUS_ASSETS."
        return DataError(f"no file or folder {source}. {unreachable} {remedy}")
    if "NotFound" in type(error).__name__ or isinstance(error, FileNotFoundError):
        return _unknown(source, "The Hugging Face hub has none either.")
    return DataError(f"cannot read {source} from the Hugging Face hub: {reason}")


def _unknown(source: str, hint: str) -> UnknownName:
    known = {*assets.names("data"), "digits", *_FULL_NAMES}
    return UnknownName("data set", source, known - {source}, f"There is no such file or folder. {hint}".strip())


def _make_hub_table(source: str, part: Any) -> Table:
    return Table(source, tuple(part.column_names), tuple(part.to_list()), lambda row: f"{source}, row {row + 1}")


def _class_names(features: Mapping[str, Any], column: str) -> tuple[str, ...] | None:
    names = getattr(features.get(column), "names", None)
    return tuple(names) if names else None
