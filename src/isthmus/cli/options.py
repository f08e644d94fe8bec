"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from isthmus.attacks.options import MACHINE, OUTPUT, flag
from isthmus.core.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from isthmus.data.load import TaskName
    from isthmus.verbs.sources import DataRequest

DATA = "Data"

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A run folder, a transformers folder or hub name, an .onnx file, a URL, or module:name.",
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", help="A name (isthmus list data), a file, a folder of splits, or a hub name.", rich_help_panel=DATA
    ),
]
TaskOption = Annotated[
    str, typer.Option("--task", help="classification, or qa (extractive question answering).", rich_help_panel=DATA)
]
TextOption = Annotated[str | None, typer.Option("--text", help="Column of the text.", rich_help_panel=DATA)]
LabelOption = Annotated[str | None, typer.Option("--label", help="Column of the label.", rich_help_panel=DATA)]
PairOption = Annotated[
    str | None,
    typer.Option("--pair", "--columns", metavar="A,B", help="The two columns of a text pair.", rich_help_panel=DATA),
]
SplitOption = Annotated[
    str | None,
    typer.Option("--split", help="Split to take examples from. (default: test, else dev)", rich_help_panel=DATA),
]
LabelsOption = Annotated[
    str | None,
    typer.Option(
        "--labels", metavar="A,B,…", help="Dataset label names, in the model's class order.", rich_help_panel=DATA
    ),
]
LabelCheckOption = Annotated[
    bool,
    typer.Option(
        "--label-check/--no-label-check",
        help="Stop if clean accuracy is no better than chance.",
        rich_help_panel=DATA,
    ),
]
Protect = Annotated[
    list[str] | None,
    typer.Option(
        "--protect",
        metavar="COLUMN",
        help="Never change this column. (default: the premise of a pair)",
        rich_help_panel=DATA,
    ),
]
ProtectPattern = Annotated[
    str | None,
    typer.Option(
        "--protect-pattern",
        metavar="REGEX",
        help="Never change what matches: links, numbers, the payload.",
        rich_help_panel=DATA,
    ),
]
ProtectKind = Annotated[
    str | None,
    typer.Option(
        "--protect-kind",
        metavar="url,email,phone",
        help="Never change links (bare domains too), mail addresses, phone numbers, short codes.",
        rich_help_panel=DATA,
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option("-P", "--parameter", metavar="KEY=VALUE", help="Parameter of the method; may be repeated."),
]
Out = Annotated[
    str | None, typer.Option("--out", help="Run folder. (default: runs/<model>-<data>)", rich_help_panel=OUTPUT)
]
OutOfModel = Annotated[
    str | None,
    typer.Option(
        "--out", help="Run folder. (default: the model's own, or runs/<model>-<data>)", rich_help_panel=OUTPUT
    ),
]
RetryErrors = Annotated[
    bool,
    typer.Option("--retry-errors", help="Retry examples that ended in an error or a time-out.", rich_help_panel=OUTPUT),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object as the last line of stdout.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.", rich_help_panel=OUTPUT)]
VictimOption = Annotated[
    list[str] | None,
    typer.Option(
        "-V",
        "--victim",
        metavar="KEY=VALUE",
        help="Inference options: timeout=60, requests_per_second=5; draws=10, fixed=true for a randomised model. "
        "version=2 marks another version of a model with the same name.",
        rich_help_panel=MACHINE,
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="NAME:VALUE", help="Sent with every request; never recorded.", rich_help_panel=MACHINE
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Random seed.")]
Device = Annotated[
    str | None,
    typer.Option("--device", help="cpu or cuda. (default: cuda if available)", rich_help_panel=MACHINE),
]


Positive = Annotated[
    str | None,
    typer.Option(
        "--positive",
        metavar="LABEL",
        help="The class whose tpr is judged. (default: the class of --from-label)",
        rich_help_panel=OUTPUT,
    ),
]


def add_field_options(parameter: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb one option for each field of the dataclass `kind`; its `parameter` gets the object made of them."""

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        types, fields = get_type_hints(kind), dataclasses.fields(kind)

        @functools.wraps(verb)
        def call(*given: Any, **named: Any) -> None:
            values = {one.name: named.pop(one.name) for one in fields}
            verb(*given, **named, **{parameter: kind(**values)})

        signature, parameters = inspect.signature(verb, eval_str=True), []
        for one in signature.parameters.values():
            if one.name == parameter:
                parameters += [
                    one.replace(name=field.name, annotation=_option(field, types[field.name]), default=field.default)
                    for field in fields
                ]
            else:
                parameters.append(one)
        shown = signature.replace(parameters=parameters)
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        vars(call)["__signature__"] = shown
        return call

    return decorate


def _option(field: dataclasses.Field[Any], kind: Any) -> Any:
    """A field as typer reads it."""
    known = field.metadata
    declared = typer.Option(
        flag(field.name), help=known["help"], metavar=known["metavar"], rich_help_panel=known["heading"]
    )
    return Annotated[kind, declared]


def fail_under(example: str, rates: str = "") -> Any:
    """The option ``--fail-under``; rates differ by verb."""
    return typer.Option(
        "--fail-under",
        metavar=example,
        help=" ".join(("Exit 1 if the whole interval is below RATE, 3 if RATE lies inside it.", rates)).strip(),
        rich_help_panel=OUTPUT,
    )


def fail_over(example: str) -> Any:
    """The option ``--fail-over``."""
    return typer.Option(
        "--fail-over",
        metavar=example,
        help="Exit 1 if the whole interval is above RATE, 3 if RATE lies inside it. asr, fpr.",
        rich_help_panel=OUTPUT,
    )


def examples(n: int, purpose: str) -> int | None:
    """The number of examples that ``--n`` asks for; None for all."""
    if n < 0:
        raise UsageError(f"--n is the number of examples to {purpose} (0: all), not {n}")
    return n or None


def folder(given: str | None) -> Path | None:
    """The folder named by the command, or None."""
    return None if given is None else Path(given)


def data_request(source: str | None, text: str | None, label: str | None, columns: str | None) -> DataRequest | None:
    """The data named by the command; None leaves it to the run."""
    from isthmus.verbs.sources import DataRequest

    if source is not None:
        return DataRequest(source, text, label, pair(columns))
    for option, value in {"--text": text, "--label": label, "--pair": columns}.items():
        if value is not None:
            raise UsageError(f"{option} names a column of --data, but --data is missing")
    return None


def key_values(given: Sequence[str] | None, option: str = "-P") -> dict[str, str]:
    """Read ``key=value`` strings into a mapping."""
    found: dict[str, str] = {}
    for item in given or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} takes KEY=VALUE, not {item!r}")
        found[key.strip()] = value
    return found


def victim(given: Sequence[str] | None, headers: Sequence[str] | None) -> dict[str, Any]:
    """Read victim options: numbers as numbers, headers as a mapping."""
    found: dict[str, Any] = {
        # A version is a name: 1.10 is not 1.1.
        key: value if key == "version" else _value(value)
        for key, value in key_values(given, "-V").items()
    }
    for header in headers or ():
        name, separator, value = header.partition(":")
        if not separator or not name.strip():
            raise UsageError("--header takes NAME:VALUE, such as 'Authorization: Bearer …'")
        found.setdefault("headers", {})[name.strip()] = value.strip()
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def device(given: str | None) -> str | None:
    """The device named by the command, if it exists."""
    from isthmus.core.hardware import check_device

    check_device(given)
    return given


def task_name(given: str) -> TaskName:
    """The task named by the command."""
    if given == "qa":
        return "qa"
    if given == "classification":
        return "classification"
    raise UnknownName("task", given, ("classification", "qa"))


def names(given: str | None) -> tuple[str, ...]:
    """Read a comma-separated list."""
    return tuple(part.strip() for part in (given or "").split(",") if part.strip())


def pair(given: str | None) -> tuple[str, str] | None:
    """Read two comma-separated columns."""
    if given is None:
        return None
    found = names(given)
    if len(found) != 2:
        raise UsageError(f"--pair takes two columns separated by a comma, not {given!r}")
    return found[0], found[1]
