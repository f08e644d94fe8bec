"""``isthmus show METHOD``: idea, equation, parameters and references of a method."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus.core.catalog import Entry


def show(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Name of an attack, a defence (A+B too) or another method.")
    ],
    as_json: options.Json = False,
) -> None:
    """Explain a method: idea, equation, parameters, references."""
    from isthmus.cli.console import print_json, results
    from isthmus.core import catalog

    entries = _find_parts(method) if "+" in method else catalog.search(method)
    if as_json:
        print_json({"methods": [_as_json(entry) for entry in entries]})
        return
    console = results(as_json=False)
    for entry in entries:
        _print(console, entry)


def _find_parts(method: str) -> tuple[Entry, ...]:
    """The parts of a composition, if they can be combined."""
    from isthmus.core import catalog
    from isthmus.defences import build_defence

    build_defence(method)
    return tuple(catalog.find("defences", name.strip()) for name in method.split("+"))


def _print(console: Console, entry: Entry) -> None:
    from rich.table import Table
    from rich.text import Text

    family = entry.family.removesuffix("s")
    console.print(Text.assemble((entry.name, "bold"), (f"   {family} · {entry.module}.{entry.class_name}", "dim")))
    console.print()
    for line in reflow(entry.docstring, console.width):
        console.print(Text(line), soft_wrap=True)
    console.print()
    if not entry.parameters:
        console.print(Text("No parameters.\n", style="dim"))
        return
    console.print(Text("Parameters", style="bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for parameter in entry.parameters:
        default = "required" if parameter.default is None else f"default {parameter.default}"
        about = Text.assemble((f"{parameter.annotation}, {default}", "dim"))
        if parameter.doc:
            about.append("\n" + " ".join(parameter.doc.split()))
        table.add_row(Text(f"  {parameter.name}"), about)
    console.print(table)
    examples = {
        "attacks": "attack MODEL --attack", "defences": "train --data D --defence", "measures": "measure RUN --measure",
        "certificates": "certify RUN --certificate", "explanations": 'explain MODEL "TEXT" --method',
    }  # fmt: skip
    if entry.family in examples:
        # A default that is computed, or None, is no value one could type.
        typed = [
            each for each in entry.parameters if each.default not in {None, "None"} and "(" not in str(each.default)
        ]
        first = typed[0] if typed else entry.parameters[0]
        value = first.default.strip("'\"") if typed and first.default else "VALUE"
        console.print(Text(f"\nisthmus {examples[entry.family]} {entry.name} -P {first.name}={value}\n", style="dim"))


def reflow(docstring: str, width: int) -> Iterator[str]:
    """A docstring for a terminal of `width` columns: prose is wrapped, equations and examples stay as they are."""
    width = min(width, 100)
    for block in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = block.splitlines()
        if lines[0].rstrip().endswith(":") and len(lines) > 1 and lines[1].startswith(" "):
            yield lines.pop(0)
            indent = " " * 4
        elif lines[0].startswith(" "):
            yield from lines
            yield ""
            continue
        else:
            indent = ""
        text = " ".join(line.strip() for line in lines)
        yield from textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
        yield ""


def _as_json(entry: Entry) -> dict[str, object]:
    return {
        "family": entry.family,
        "name": entry.name,
        "summary": entry.summary,
        "docstring": entry.docstring,
        "parameters": [
            {"name": each.name, "type": each.annotation, "default": each.default, "doc": each.doc}
            for each in entry.parameters
        ],
    }
