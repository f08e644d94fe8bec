"""Converts ``-P key=value`` strings to values of the parameter's annotated type.

Works on the annotation's source text, so that nothing has to be imported to check a value.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
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
