"""Certificates on the page and in the terminal: the claim, its strength, and attacks within it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from isthmus.report import figures
from isthmus.report.marks import visible
from isthmus.report.numerals import bounds, percent
from isthmus.runs.folder import AttackFile, RunFolder
from isthmus.runs.journal import read_rows
from isthmus.summaries.certificate import (
    CertificateSummary,
    ChallengeRows,
    Level,
    alternatives,
    levels,
    summarise_certificate,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from isthmus.certificates.base import Certified

_POINTS = 300
NOT_A_CERTIFICATE = "not a certificate"


@dataclass(frozen=True)
class CertificateView:
    """One certificate of a run: its header, its results, and the texts that were checked against it."""

    key: str
    header: Mapping[str, Any]
    results: Sequence[Certified]
    challenges: ChallengeRows

    @property
    def unit(self) -> str:
        """Unit of the strength: ``radius`` or ``words``."""
        return str(self.header.get("unit") or "radius")

    @property
    def statement(self) -> Mapping[str, Any]:
        """What is claimed."""
        found = self.header.get("statement")
        return found if isinstance(found, Mapping) else {}

    @property
    def attacks(self) -> Mapping[str, Sequence[str]]:
        """Attacks within the threat model, and the examples they have rows for."""
        found = self.header.get("attacks")
        return found if isinstance(found, Mapping) else {}

    @property
    def own_attack(self) -> str | None:
        """The attack that the certificate itself ran as a check."""
        found = self.header.get("own_attack")
        return str(found) if found else None

    @property
    def refuted(self) -> Sequence[str]:
        """Texts that refute a certificate: bugs."""
        return [str(each) for each in self.header.get("refuted") or ()]

    @cached_property
    def summary(self) -> CertificateSummary:
        """The figures."""
        return summarise_certificate(self.results, self.unit, self.challenges, self.attacks)

    @property
    def is_complete(self) -> bool:
        """Whether every example, and every text checked against it, has its row."""
        return not any(self.missing)

    @property
    def missing(self) -> tuple[int, int]:
        """Numbers of examples and of attack texts in the header that have no row."""
        examples, texts = (int(self.header.get(name) or 0) for name in ("n", "challenges"))
        return max(examples - len(self.results), 0), max(texts - len(self.challenges), 0)

    def levels(self, strengths: Sequence[float]) -> list[Level]:
        """The rates at given strengths."""
        return levels(self.results, strengths, self.challenges, self.attacks)

    @property
    def printed_radius(self) -> float | None:
        """Median of the radius as printed in the RSMI paper, if it was requested."""
        printed = (result.details.get(NOT_A_CERTIFICATE) for result in self.results)
        found = [radius for radius in printed if radius is not None]
        return float(np.median(found)) if found else None

    def notes(self) -> list[str]:
        """Notes that a reader needs beside the rates."""
        from isthmus.report.certificate.notes import notes

        return notes(self)


def read_certificate(file: AttackFile) -> CertificateView:
    """One certificate of a run."""
    from isthmus.certificates.base import Certified

    results = file.read(Certified.from_row, "a certificate")
    return CertificateView(file.key, file.header(), results, read_rows(file.challenges_path))


def certificates(folder: RunFolder) -> list[CertificateView]:
    """Every certificate of a run that has rows."""
    found = [(file, read_certificate(file)) for file in folder.certificate_files()]
    return [
        # One that was made first does not know of those that came after.
        replace(view, header={**view.header, "alternatives": alternatives(folder, file, view.header["settings"])})
        if view.header.get("settings")
        else view
        for file, view in found
        if view.results
    ]


def shown_strength(strength: float, unit: str) -> str:
    """A radius, or a number of words."""
    if math.isinf(strength):
        return "all words"
    if unit == "radius":
        return f"{strength:.4g}"
    return "the text itself" if strength == 0 else "1 word" if strength == 1 else f"{strength:.0f} words"


# ---------------------------------------------------------------------- terminal


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
        Text.assemble(percent(clean.estimate), "\n", (bounds(clean, unit=False), "dim")),
        *([Text("")] if compared else []),
        *([Text(f"median {view.printed_radius:.3g}")] if view.printed_radius is not None else []),
    )
    for level in view.summary.levels:
        cells = [Text.assemble((percent(level.certified.estimate), "bold"), "\n",
                               (bounds(level.certified, unit=False), "dim"))]  # fmt: skip
        if compared and level.empirical is not None:
            cells.append(
                Text.assemble(percent(level.empirical.estimate), "\n", (bounds(level.empirical, unit=False), "dim"))
            )
        table.add_row(Text(shown_strength(level.strength, view.unit)), *cells)
    return table


# ---------------------------------------------------------------------- page


@dataclass(frozen=True)
class Section:
    """One certificate as the page shows it."""

    view: CertificateView
    figure: Any
    levels: tuple[tuple[str, Level], ...]
    compared: bool


def sections(folder: RunFolder) -> list[Section]:
    """Every certificate of a run."""
    from markupsafe import Markup

    return [
        Section(
            view,
            Markup(curve(view)),
            tuple((shown_strength(level.strength, view.unit), level) for level in view.summary.levels),
            any(level.empirical is not None for level in view.summary.levels),
        )
        for view in certificates(folder)
    ]


def curve(view: CertificateView) -> str:
    """Certified accuracy against strength, and accuracy under attack."""
    draw = _radii if view.unit == "radius" else _words
    told = "; ".join(
        f"{shown_strength(level.strength, view.unit)}: {figures._told(level.certified)}"
        for level in view.summary.levels
    )
    return figures._svg(
        f"certificate-{view.key}", f"Certified accuracy. {told}", lambda figure: draw(figure, view), 3.2
    )


def _radii(figure: Figure, view: CertificateView) -> None:
    axes = figure.add_subplot()
    furthest = view.summary.levels[-1].strength or 1.0
    strengths = np.linspace(0.0, furthest, _POINTS).tolist()
    found = view.levels(strengths)
    _band(axes, strengths, found, furthest)
    axes.set_xlim(0, furthest)
    axes.set_xlabel("L2 radius around the embedding sequence")
    _dressed(axes)


def _band(axes: Axes, strengths: Sequence[float], found: Sequence[Level], furthest: float) -> None:
    colour, clean = figures._colour(0), figures._colour(1)
    rates = [level.certified for level in found]
    axes.fill_between(
        strengths, [rate.low for rate in rates], [rate.high for rate in rates], color=colour, alpha=0.13, linewidth=0
    )
    axes.plot(strengths, [rate.estimate for rate in rates], color=colour, linewidth=1.9)
    ends = [(rates[-1].estimate, "certified", colour)]
    above = [level.empirical for level in found]
    if above[0] is not None:
        values = [rate.estimate for rate in above if rate is not None]
        axes.plot(strengths, values, color=clean, linewidth=1.7, linestyle=(0, (5, 1.6)))
        ends.append((values[-1], "under attack", clean))
    _named(axes, ends)


def _words(figure: Figure, view: CertificateView) -> None:
    axes = figure.add_subplot()
    found = view.summary.levels
    places = list(range(len(found)))
    colour, other = figures._colour(0), figures._colour(1)
    ends = []
    for name, rates, own, hollow, shift in (
        ("certified", [level.certified for level in found], colour, False, 0.0),
        ("under attack", [level.empirical for level in found], other, True, 0.06),
    ):
        known = [(place + shift, rate) for place, rate in zip(places, rates, strict=True) if rate is not None]
        if not known:
            continue
        for place, rate in known:
            axes.plot([place, place], [rate.low, rate.high], color=own, linewidth=2.0, solid_capstyle="round")
        axes.plot(
            [place for place, _ in known], [rate.estimate for _, rate in known], color=own, linewidth=1.3, marker="o",
            markersize=7, markerfacecolor="#010207" if hollow else own, markeredgewidth=1.6,
            linestyle=(0, (5, 1.6)) if hollow else "-",
        )  # fmt: skip
        ends.append((known[-1][1].estimate, name, own))
    _named(axes, ends)
    axes.set_xticks(places, ["all" if math.isinf(level.strength) else f"{level.strength:.0f}" for level in found])
    axes.set_xlim(-0.3, len(found) - 0.7)
    axes.set_xlabel("words substituted")
    _dressed(axes)


def _dressed(axes: Axes) -> None:
    figures._percent_axis(axes, "y")
    axes.grid(axis="y", color=figures._RULE)
    axes.set_ylabel("right")
    axes.spines["left"].set_visible(False)


def _named(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    for place, (_, name, colour) in zip(figures._spread([end[0] for end in ends], 0.08), ends, strict=True):
        axes.annotate(
            name, (1.0, place), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
            va="center", color=colour, fontsize=10, annotation_clip=False,
        )  # fmt: skip
