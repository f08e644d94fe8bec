"""`load_data`: one call for a registered name, a hub name, a file, or a folder of splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

from isthmus import assets
from isthmus.core.errors import UnknownName, UsageError
from isthmus.core.parameter_values import check_names
from isthmus.data._reading import LabelledReading, QuestionReading, read_all
from isthmus.data._sources import DataSource, canonical, from_path
from isthmus.data._tables import is_readable
from isthmus.data.dataset import Dataset, Splits
from isthmus.data.extension_data import find_extension, from_extension

TaskName = Literal["classification", "qa"]
DIGITS = "digits"
"""The images that come with the package."""


@overload
def load_data(
    source: str | Path | Any,
    split: None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
    labels: Sequence[str] | None = None,
    name: str | None = None,
    task: TaskName = "classification",
) -> Splits: ...
@overload
def load_data(
    source: str | Path | Any,
    split: str,
    *,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
    labels: Sequence[str] | None = None,
    name: str | None = None,
    task: TaskName = "classification",
) -> Dataset: ...
def load_data(
    source: str | Path | Any,
    split: str | None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    pair: tuple[str, str] | None = None,
    labels: Sequence[str] | None = None,
    name: str | None = None,
    task: TaskName = "classification",
) -> Splits | Dataset:
    """Read a data set, or one `split` of it.

    source: a registered name (``rotten_tomatoes``), a file, a folder with one file a split, or a hub name
        (``owner/name``, or ``owner/name:configuration``). Images: ``digits``, ``mnist``, ``cifar10``, an ``.npz`` file,
        a folder of them, or a folder with one folder of images a class; `text` and `label` then name arrays.
        The name of a data set that an installed package announces, or ``package.module:function``: both run that code.
    text, pair, label: columns; without them the usual names are looked for.
    labels: label names in the order the data numbers them; otherwise those of the folder's ``meta.json`` or of the
        hub, otherwise those found in the training split (in all splits where there is none).
    name: what to call it in results; otherwise its own name.
    task: ``classification`` or ``qa`` (questions with contexts and answers, SQuAD's JSON or one row a question; `pair`
        then names the columns of question and context and `label` that of the answers).

    What a program holds already is taken, too: rows of (text, label), two lists, records, a pandas frame, a
    `datasets.Dataset`, or a mapping of splits to these (`isthmus.data.plain`).

    >>> from isthmus import load_data
    >>> load_data([("a lovely film", "good"), ("a dull plot", "bad")])["all"].labels
    ('bad', 'good')
    >>> load_data((["a lovely film", "a dull plot"], [1, 0]), "all")[0].label
    1
    """
    for option, word in (("split", split), ("text", text), ("label", label), ("name", name)):
        if not isinstance(word, str | None):
            raise UsageError(f"{option} is a name, not {word!r:.80}")
    check_names("labels", labels)
    check_names("pair", pair)
    if not isinstance(source, str | Path):
        from isthmus.data.plain import as_splits

        if task != "classification":
            raise UsageError("question answering needs a file or a name: Python objects can only hold classified texts")
        found = as_splits(source, name or "data", text=text, label=label, pair=pair, labels=labels)
        return _choose(found, split)
    loaded = _load_source(source, split, text, label, pair, labels, name, task)
    if isinstance(loaded, Splits):
        options = {"text": text, "label": label, "pair": pair, "labels": None if labels is None else tuple(labels)}
        given = {key: value for key, value in options.items() if value is not None}
        loaded.origin = {"source": str(source), "task": task, **given}
    return loaded


def _load_source(
    source: str | Path,
    split: str | None,
    text: str | None,
    label: str | None,
    pair: tuple[str, str] | None,
    labels: Sequence[str] | None,
    name: str | None,
    task: TaskName,
) -> Splits | Dataset:
    if isinstance(source, str) and (extension := find_extension(source)) is not None:
        if any(option is not None for option in (text, label, pair, labels)) or task != "classification":
            raise UsageError(f"{source} makes its data itself: leave out columns, label names and task")
        made = from_extension(extension, name)
        return _choose(made, split)
    images = _find_images(source, text, label, pair, labels, name, task)
    if images is not None:
        return _choose(images, split)
    found = _find_source(source)
    title = name or found.name
    given = tuple(labels) if labels is not None else None
    if found.images is not None and task == "classification" and text is None and pair is None:
        splits = found.images(title, given, label)
        return _choose(splits, split)
    reading: LabelledReading | QuestionReading
    if task == "qa":
        reading = QuestionReading(found, title, text, label, pair, given)
    elif task == "classification":
        reading = LabelledReading(found, title, text, label, pair, given)
    else:
        raise UnknownName("task", task, ("classification", "qa"))
    if split is not None:
        wanted = split if split in found.splits else canonical(split)
        if wanted not in found.splits:
            raise UnknownName(f"split in {title}", split, found.splits)
        return reading.dataset(wanted)
    return read_all(reading, found, title)


def _choose(splits: Splits, split: str | None) -> Splits | Dataset:
    return splits if split is None else splits.find_split(canonical(split))


def names_images(source: str | Path) -> bool:
    """Whether a source holds images, as far as files and known names tell; the hub is not asked."""
    return _image_place(source) is not None


def _image_place(source: str | Path) -> Path | None:
    """The place of a user's images; None if the name has none, and for data that may be on the hub."""
    from isthmus.data._image_folder import holds_images
    from isthmus.data.arrays import SUFFIX, holds_arrays

    path = Path(source).expanduser()
    if path.exists() or path.suffix == SUFFIX:
        return path if holds_arrays(path) or holds_images(path) else None
    if not isinstance(source, str):
        return None
    own = assets.user_folder(source)
    if own is not None:
        return own if holds_arrays(own) or holds_images(own) else None
    if source == DIGITS:
        return Path(__file__).with_name("digits.npz")
    if source in assets.names("data") and "train.npz" in assets.find(source).files:
        return assets.cache_folder() / source
    return None


def _find_images(
    source: str | Path,
    text: str | None,
    label: str | None,
    pair: tuple[str, str] | None,
    labels: Sequence[str] | None,
    name: str | None,
    task: TaskName,
) -> Splits | None:
    """Load a data set of images; None if the source holds texts."""
    from isthmus.data._image_folder import read_folder
    from isthmus.data.arrays import holds_arrays, read_arrays

    path = _image_place(source)
    if path is None:
        return None
    title = name
    if not Path(source).expanduser().exists() and Path(source).suffix != ".npz":
        title = name or str(source)
        # Fetched, or checked where it is there already.
        path = assets.path(source) if isinstance(source, str) and source in assets.names("data") else path
    if pair is not None or task != "classification":
        raise UsageError(f"{source} holds images: it has neither pairs of texts nor questions")
    if holds_arrays(path):
        return read_arrays(path, title, text, label, labels)
    if text is not None or label is not None:
        raise UsageError(f"{source} is a folder of images, whose classes are its folders: leave --text and --label out")
    return read_folder(path, title, labels)


def _find_source(source: str | Path) -> DataSource:
    """Find the source; an existing path wins over a name."""
    path = Path(source).expanduser()
    if isinstance(source, Path) or path.exists() or _looks_like_path(source):
        return from_path(path)
    folder = assets.user_folder(source)
    if folder is not None:
        return _find_named(source, folder)
    if source in assets.names("data"):
        return _find_named(source, assets.path(source))
    from isthmus.data._hub import from_hub

    return from_hub(source)


def _find_named(name: str, folder: Path) -> DataSource:
    found = from_path(folder)
    return DataSource(name, found.splits, found.labels)


def _looks_like_path(source: str) -> bool:
    return is_readable(Path(source)) or source.startswith((".", "~", "/")) or "\\" in source or source.count("/") > 1
