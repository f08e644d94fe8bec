"""Runs that differ in one parameter: its value in each, and curves over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.core.errors import UnknownName
from isthmus.measures.base import Figure, Plot, Series, Subject


def value_of(subject: Subject, over: str) -> Any:
    """The value of the parameter `over` in a run's defence or training; the run's name if `over` is empty."""
    if not over:
        return subject.name
    known = {**_flatten(subject.facts.settings), **_flatten(subject.facts.parameters)}
    if over not in known:
        defence = subject.facts.defence or "not trained here"
        raise UnknownName(f"parameter of {subject.name} ({defence})", over, known)
    return known[over]


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, with those of an inner defence under their own names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= {inner: each for inner, each in _flatten(value).items() if inner not in found}
        else:
            found[key] = value
    return found


def label_of(value: Any) -> str:
    """A value as a short label."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def in_order(values: Sequence[Any]) -> list[int]:
    """The order of the values: numbers first, sorted."""

    def key(place: int) -> tuple[int, float, str]:
        value = values[place]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return (0, float(value), "") if number else (1, 0.0, str(value))

    return sorted(range(len(values)), key=key)


def make_series(name: str, x: Sequence[float], figures: Sequence[Figure]) -> Series:
    """Make a series of figures over numbers, with intervals if all have one."""
    bounds = tuple((each.low, each.high) for each in figures if each.low is not None and each.high is not None)
    return Series(
        name,
        tuple(x),
        tuple(each.estimate for each in figures),
        y_bounds=bounds if len(bounds) == len(figures) else (),
    )


def against(name: str, x: Sequence[Figure], y: Sequence[Figure], labels: Sequence[str] = ()) -> Series:
    """Make series of figures against figures, with intervals along both axes."""
    across = tuple((each.low, each.high) for each in x if each.low is not None and each.high is not None)
    up = tuple((each.low, each.high) for each in y if each.low is not None and each.high is not None)
    return Series(
        name,
        tuple(each.estimate for each in x),
        tuple(each.estimate for each in y),
        across if len(across) == len(x) else (),
        up if len(up) == len(y) else (),
        tuple(labels),
    )


def curves_over(
    stem: str,
    title: str,
    over: str,
    unit: str,
    values: Sequence[Any],
    rows: Mapping[str, Sequence[Figure]],
    **more: Any,
) -> list[Plot]:
    """Plot several figures over the parameter, if it has at least two numeric values."""
    if len(set(map(str, values))) < 2 or not all(isinstance(value, int | float) for value in values):
        return []
    x = [float(value) for value in values]
    series = tuple(make_series(name, x, figures) for name, figures in rows.items())
    wide = min(x) > 0 and max(x) / min(x) >= 50
    return [Plot(stem, title, over, unit, series, log="x" if wide else "", **more)]
