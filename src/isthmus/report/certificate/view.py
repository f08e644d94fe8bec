"""A certificate of a run, read for page and terminal: figures computed, nothing rendered."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

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
    from isthmus.certificates.base import Certified

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
        """The claim."""
        found = self.header.get("statement")
        return found if isinstance(found, Mapping) else {}

    @property
    def attacks(self) -> Mapping[str, Sequence[str]]:
        """Attacks within the threat model, and the examples that they have rows for."""
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
        """Numbers of examples and of attack texts in the header without a row."""
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


def format_strength(strength: float, unit: str) -> str:
    """A radius, or a number of words."""
    if math.isinf(strength):
        return "all words"
    if unit == "radius":
        return f"{strength:.4g}"
    return "the text itself" if strength == 0 else "1 word" if strength == 1 else f"{strength:.0f} words"
