"""Converts ``-P key=value`` strings to values of the parameter's annotated type, and checks values from Python.

Works on the annotation's source text, so that nothing has to be imported to check a value.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from os import PathLike
from typing import Any

from isthmus.core.errors import UsageError

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class _NoFit(ValueError):
    """The text does not fit the type; the message says what would."""


def convert(text: str, annotation: str, name: str) -> Any:
    """Convert `text` to a value of `annotation`, such as ``int | None`` or ``Literal['paper', 'textattack']``."""
    try:
        return _fit_annotation(text.strip(), ast.parse(annotation.strip("'\""), mode="eval").body)
    except _NoFit as error:
        raise UsageError(f"{name} should be {error}, not {text!r}") from None


def are_names(value: Any) -> bool:
    """Whether these are names in an order: a list, a tuple or an array of strings."""
    is_ordered = isinstance(value, Sequence) or hasattr(value, "__array__")
    return is_ordered and not isinstance(value, str | bytes) and all(isinstance(each, str) for each in value)


def check_names(name: str, value: Any) -> None:
    """Refuse what are no names in an order; None stands for what is left out."""
    if value is not None and not are_names(value):
        raise UsageError(f"{name} is a list of names such as ['bad', 'good'], not {value!r:.80}")


def check(value: Any, annotation: str, name: str) -> Any:
    """A value from Python, if it fits `annotation`; numbers of other libraries become plain ones.

    Only plain types are checked: what else an annotation names, its method knows itself.
    """
    try:
        return _check_annotation(value, ast.parse(annotation.strip("'\""), mode="eval").body)
    except _NoFit as error:
        raise UsageError(f"{name} should be {error}, not {value!r:.80}") from None


def _check_annotation(value: Any, node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _check_annotation(value, ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _check_any(value, [node.left, node.right])
    if isinstance(node, ast.Subscript):
        return _check_generic(value, ast.unparse(node.value).split(".")[-1], node.slice)
    name = "None" if isinstance(node, ast.Constant) else ast.unparse(node).split(".")[-1]
    return _CHECKED.get(name, _check_nothing)(value)


def _check_generic(value: Any, outer: str, inner: ast.expr) -> Any:
    arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        values = [ast.literal_eval(argument) for argument in arguments]
        if not any(type(value) is type(each) and value == each for each in values):
            raise _NoFit("one of " + ", ".join(map(repr, values)))
    if outer == "Optional":
        return _check_any(value, [*arguments, ast.Constant(None)])
    return _check_any(value, arguments) if outer == "Union" else value


def _check_any(value: Any, choices: list[ast.expr]) -> Any:
    wanted: list[str] = []
    for choice in choices:
        try:
            return _check_annotation(value, choice)
        except _NoFit as error:
            wanted.append(str(error))
    raise _NoFit(" or ".join(dict.fromkeys(wanted)))


def _check_nothing(value: Any) -> Any:
    return value


def _check_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _NoFit("true or false")
    return value


def _check_int(value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _NoFit("a whole number")
    return int(value)


def _check_float(value: Any) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise _NoFit("a number")
    return value if isinstance(value, int | float) else float(value)


def _check_text(value: Any) -> Any:
    if not isinstance(value, str | PathLike):
        raise _NoFit("a name")
    return value


def _check_none(value: Any) -> None:
    if value is not None:
        raise _NoFit("none")


def _fit_annotation(text: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _fit_annotation(text, ast.parse(node.value, mode="eval").body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _fit_any(text, [node.left, node.right])
    if isinstance(node, ast.Subscript):
        return _fit_generic(text, ast.unparse(node.value).split(".")[-1], node.slice)
    name = "None" if isinstance(node, ast.Constant) else ast.unparse(node).split(".")[-1]
    return _PLAIN.get(name, _as_text)(text)


def _fit_generic(text: str, outer: str, inner: ast.expr) -> Any:
    arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if outer == "Literal":
        return _fit_literal(text, [ast.literal_eval(argument) for argument in arguments])
    if outer == "Optional":
        return _fit_any(text, [*arguments, ast.Constant(None)])
    if outer == "Union":
        return _fit_any(text, arguments)
    if outer in ("tuple", "Tuple", "list", "List", "Sequence", "frozenset"):
        return _fit_sequence(text, arguments, fixed=outer.lower() == "tuple")
    return _as_text(text)


def _fit_any(text: str, choices: list[ast.expr]) -> Any:
    # `str | None` would swallow "none" as a text if the order of the source decided.
    ordered = sorted(choices, key=lambda choice: ast.unparse(choice) == "str")
    wanted: list[str] = []
    for choice in ordered:
        try:
            return _fit_annotation(text, choice)
        except _NoFit as error:
            wanted.append(str(error))
    raise _NoFit(" or ".join(dict.fromkeys(wanted)))


def _fit_literal(text: str, values: list[Any]) -> Any:
    for value in values:
        if text == str(value):
            return value
    near = difflib.get_close_matches(text.lower(), [str(value) for value in values], n=1, cutoff=0.6)
    raise _NoFit("one of " + ", ".join(map(repr, values)) + (f" (did you mean {near[0]!r}?)" if near else ""))


def _fit_sequence(text: str, arguments: list[ast.expr], *, fixed: bool) -> tuple[Any, ...]:
    body = text.strip("()[] ")
    parts = [part.strip().strip("'\"") for part in body.split(",") if part.strip()]
    ends_open = len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is Ellipsis
    if not fixed or ends_open:
        return tuple(_fit_annotation(part, arguments[0]) for part in parts)
    if len(parts) != len(arguments):
        raise _NoFit(f"{len(arguments)} values separated by commas")
    return tuple(_fit_annotation(part, argument) for part, argument in zip(parts, arguments, strict=True))


def _as_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise _NoFit("true or false")


def _as_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _NoFit("a whole number") from None


def _as_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _NoFit("a number") from None


def _as_none(text: str) -> None:
    if text.lower() not in ("none", "null", ""):
        raise _NoFit("none")


def _as_text(text: str) -> str:
    return text


_PLAIN: dict[str, Callable[[str], Any]] = {
    "bool": _as_bool,
    "int": _as_int,
    "float": _as_float,
    "str": _as_text,
    "None": _as_none,
}
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "bool": _check_bool,
    "int": _check_int,
    "float": _check_float,
    "str": _check_text,
    "None": _check_none,
}
