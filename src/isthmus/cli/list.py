"""``isthmus list``: all methods, data sets and models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from isthmus.cli import options

if TYPE_CHECKING:
    from isthmus.core.catalog import Entry

GROUPS = ("attacks", "defences", "measures", "certificates", "explanations", "data", "models", "lexicons")
_ASSET_KINDS: dict[str, Literal["data", "model", "lexicon"]] = {
    "data": "data",
    "models": "model",
    "lexicons": "lexicon",
}
_BUILT_IN = {
    "data": {"digits": "Handwritten digits, 10 classes, grey 8 x 8, 1,197 / 200 / 400; comes with isthmus"},
    "models": {
        "lstm": "bidirectional LSTM over word vectors, trained from scratch",
        "cnn": "convolutions over word vectors, trained from scratch",
    },
}


def list_methods(
    group: Annotated[
        str | None,
        typer.Argument(
            help="attacks, defences, measures, certificates, explanations, data, models or lexicons (default: all)"
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List attacks, defences, measures, certificates, explanations, data sets and models by name."""
    from isthmus.cli.console import print_json, results
    from isthmus.core.errors import UnknownName

    group = "defences" if group == "defenses" else group
    if group is not None and group not in GROUPS:
        raise UnknownName("group", group, GROUPS)
    found = {name: rows(name) for name in GROUPS if group in (None, name)}
    if as_json:
        print_json({name: [row[0] for row in entries] for name, entries in found.items()})
        return
    from rich.table import Table
    from rich.text import Text

    console = results(as_json=False)
    for name, entries in found.items():
        if not entries and group is None:
            continue
        console.print(Text(name, style="bold"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold", style="dim")
        for entry, summary in entries:
            table.add_row(Text(f"  {entry}"), Text(summary))
        console.print(table if entries else Text("  none yet", style="dim"))
        console.print()
    if group in (None, "attacks", "defences", "measures", "certificates", "explanations"):
        console.print(Text("isthmus show NAME describes a method.", style="dim"))


def rows(group: str) -> list[tuple[str, str]]:
    """Names and descriptions of a group."""
    if group in _ASSET_KINDS:
        from isthmus import assets
        from isthmus.models.image_names import IMAGE_BACKBONES

        found = [(name, assets.find(name).description) for name in assets.names(_ASSET_KINDS[group])]
        built_in = _BUILT_IN.get(group, {}) | (IMAGE_BACKBONES if group == "models" else {})
        known = [*sorted(found), *built_in.items()]
        return [*known, *_other_data([name for name, _ in known])] if group == "data" else known
    from isthmus.core import catalog

    own = [(entry.name, entry.summary) for entry in catalog.entries(group)]
    return [*own, *((entry.name, _describe_extension(entry)) for entry in catalog.find_extensions(group))]


def _other_data(known: list[str]) -> list[tuple[str, str]]:
    """Data sets of other installed packages."""
    from isthmus.core import extensions

    return [
        (one.name, f"from {one.distribution or one.module}: {one.spec}")
        for one in extensions.find_announced("data", known)
    ]


def _describe_extension(entry: Entry) -> str:
    """Summary of a method of another package, and where it comes from."""
    assert entry.extension is not None
    origin, clash = entry.extension.distribution, entry.extension.clashes_with
    known_as = f"; its name {clash} is already taken" if clash is not None else ""
    return f"{entry.summary} (from {origin or entry.module}{known_as})"
