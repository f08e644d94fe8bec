"""Certificates in the terminal: the claim, its strength, and attacks within it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isthmus.report.certificate.view import NOT_A_CERTIFICATE, CertificateView, format_strength
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_certificate(console: Console, view: CertificateView) -> None:
    """Print the claim, the rates by strength, and accuracy under attack."""
    from rich.padding import Padding
    from rich.text import Text

    statement = view.statement
    console.print()
    console.print(Text.assemble((visible(view.key), "bold"), (f"   n {view.summary.n}", "dim")))
    for name, key in (("classifier", "classifier"), ("threat model", "threat_model"), ("probability", "probability")):
        console.print(Padding(Text.assemble((f"{name}: ", "dim"), visible(str(statement.get(key, "")))), (0, 0, 0, 2)))
    for assumption in statement.get("assumptions") or ():
        console.print(Padding(Text.assemble(("assumption: ", "dim"), visible(str(assumption))), (0, 0, 0, 2)))
    console.print()
    console.print(level_table(view))
    console.print(Text("Under each figure: its 95 % interval over the sample of examples.", style="dim"))
    for note in view.notes():
        console.print(Text(visible(note), style="dim"))


def level_table(view: CertificateView) -> Table:
    """Certified accuracy and accuracy under attack, by strength."""
    from rich.table import Table
    from rich.text import Text

    compared = any(level.empirical is not None for level in view.summary.levels)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("radius" if view.unit == "radius" else "substituted", overflow="fold")
    for heading in ("certified\naccuracy", *(("accuracy\nunder attack",) if compared else ())):
        table.add_column(heading, justify="right", no_wrap=True)
    if view.printed_radius is not None:
        table.add_column(NOT_A_CERTIFICATE.replace("a ", "a\n"), justify="right")
    clean = view.summary.clean
    table.add_row(
        Text("clean, uncertified", style="dim"),
        Text.assemble(percent(clean.estimate), "\n", (percent_bounds(clean, unit=False), "dim")),
        *([Text("")] if compared else []),
        *([Text(f"median {view.printed_radius:.3g}")] if view.printed_radius is not None else []),
    )
    for level in view.summary.levels:
        cells = [Text.assemble((percent(level.certified.estimate), "bold"), "\n",
                               (percent_bounds(level.certified, unit=False), "dim"))]  # fmt: skip
        if compared and level.empirical is not None:
            cells.append(
                Text.assemble(
                    percent(level.empirical.estimate), "\n", (percent_bounds(level.empirical, unit=False), "dim")
                )
            )
        table.add_row(Text(format_strength(level.strength, view.unit)), *cells)
    return table
