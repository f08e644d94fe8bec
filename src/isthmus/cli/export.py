"""``isthmus export``: results for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.cli import options

if TYPE_CHECKING:
    from isthmus.report.attack.view import AttackView


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help=".csv: all rows, in TextAttack's columns; .jsonl: adversarial texts."),
    ],
    attacks: Annotated[
        str | None, typer.Option("--attack", metavar="A,B,…", help="Attacks of the run. (default: all)")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="textattack-csv or jsonl. (default: by the file extension)"),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a run's results for other programs: a TextAttack CSV, or adversarial texts as a data set.

    isthmus export runs/demo results.csv --attack pwws

    isthmus export runs/demo adversarial.jsonl
    """
    from isthmus.cli.console import print_json
    from isthmus.report.attack.export import format_of
    from isthmus.report.attack.selection import select_attacks
    from isthmus.runs.folder import RunFolder

    chosen = format_of(file, form)
    views = select_attacks(RunFolder(run), None if attacks is None else options.names(attacks))
    rows = write_export(views, file, chosen, quiet)
    if as_json:
        print_json({"file": file, "format": chosen, "rows": rows, "attacks": [view.key for view in views]})


def write_export(views: list[AttackView], file: str, form: str, quiet: bool) -> int:
    """Write the file and say what it holds."""
    from isthmus.cli.console import progress_console
    from isthmus.report.attack.export import export as write
    from isthmus.report.attack.export import format_of

    chosen = format_of(file, form)
    rows = write(views, Path(file), chosen)
    what = "adversarial texts" if chosen == "jsonl" else "rows in TextAttack's columns"
    progress_console(quiet).print(f"{file}: {rows:,} {what}", markup=False, soft_wrap=True)
    return rows
