"""What kinds of things the functions take: checked before anything is loaded, asked or written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from os import PathLike
from typing import Any, NamedTuple

from isthmus.core.errors import UsageError
from isthmus.core.hardware import check_device
from isthmus.core.parameter_values import are_names


class _Kind(NamedTuple):
    fits: Callable[[Any], bool]
    what: str


def check_arguments(**given: Any) -> None:
    """Refuse arguments of the wrong kind, each by its name; None stands for what is left out."""
    for name, value in given.items():
        kind = _KINDS[name]
        if value is not None and not kind.fits(value):
            raise UsageError(f"{name} is {kind.what}, not {value!r:.80}")
    if given.get("device") is not None:
        check_device(str(given["device"]))


def require_path(name: str, given: Any) -> None:
    """Refuse what names no folder and no file."""
    if not _is_path(given):
        raise UsageError(f"{name} is {_PATH.what}, not {given!r:.80}")


def check_seed(seed: Any) -> int:
    """A seed as results keep it; whole numbers of other libraries become plain ones."""
    if not _is_whole(seed):
        raise UsageError(f"seed is a whole number, not {seed!r:.80}")
    return int(seed)


def check_count(name: str, value: Any, least: int = 1) -> int | None:
    """A number of examples, or None; whole numbers of other libraries become plain ones."""
    return None if value is None else require_count(name, value, least)


def require_count(name: str, value: Any, least: int = 1) -> int:
    """The same of what is never None."""
    if not _is_whole(value) or value < least:
        raise UsageError(f"{name} is a whole number of at least {least}, not {value!r:.80}")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_path(value: Any) -> bool:
    return _is_name(value) or isinstance(value, PathLike)


def _is_device(value: Any) -> bool:
    return isinstance(value, str) or type(value).__name__ == "device"  # torch.device, without importing torch


def _is_options(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_observer(value: Any) -> bool:
    from isthmus.verbs.observer import Observer

    return isinstance(value, Observer)


def _is_price(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


_FLAG = _Kind(_is_flag, "True or False")
_PATH = _Kind(_is_path, "the name of a folder or a file")
_KINDS = {
    "against": _PATH,
    "asked": _Kind(_is_options, "a mapping of options such as {'n': 50}"),
    "attack": _Kind(_is_name, "the name of one attack"),
    "device": _Kind(_is_device, "the name of a device such as 'cpu' or 'cuda'"),
    "every_epoch": _FLAG,
    "file": _PATH,
    "folder": _PATH,
    "form": _Kind(_is_name, "'textattack-csv' or 'jsonl'"),
    "keep": _FLAG,
    "label": _Kind(_is_name, "the name of a column"),
    "label_check": _FLAG,
    "labels": _Kind(are_names, "a list of class names in the model's order, such as ('bad', 'good')"),
    "out": _PATH,
    "outcome": _Kind(_is_name, "'succeeded', 'failed' or 'all'"),
    "parameters": _Kind(_is_options, "a mapping of parameters such as {'steps': 3}"),
    "positive": _Kind(_is_name, "the name of a class"),
    "precision": _Kind(lambda value: value in ("fp32", "bf16"), "'fp32' or 'bf16'"),
    "price_per_hour": _Kind(_is_price, "a price of at least 0"),
    "progress": _Kind(_is_observer, "an Observer, such as isthmus.Observer()"),
    "retry_errors": _FLAG,
    "rows": _Kind(_is_name, "'successes' or 'all'"),
    "run": _PATH,
    "sort": _Kind(_is_name, "'importance', 'frequency' or 'replaced'"),
    "split": _Kind(_is_name, "the name of a split such as 'test'"),
    "splits": _Kind(lambda value: _is_name(value) or are_names(value), "the name of a split, or a list of names"),
    "step": _Kind(callable, "a function of a title, what is done and the total"),
    "task": _Kind(_is_name, "'classification' or 'qa'"),
    "text": _Kind(_is_name, "the name of a column"),
    "texts": _Kind(lambda value: isinstance(value, str) or are_names(value), "a sentence, or a list of sentences"),
    "victim": _Kind(_is_options, "a mapping of inference options such as {'timeout': 60}"),
}  # fmt: skip
