"""Certificates on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isthmus.report.certificate.figure import draw_curve
from isthmus.report.certificate.view import CertificateView, certificates, format_strength
from isthmus.runs.folder import RunFolder
from isthmus.summaries.certificate import (
    Level,
)

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class CertificateSection:
    """One certificate as the page shows it."""

    view: CertificateView
    figure: Any
    levels: tuple[tuple[str, Level], ...]
    compared: bool


def sections(folder: RunFolder) -> list[CertificateSection]:
    """Every certificate of a run."""
    from markupsafe import Markup

    return [
        CertificateSection(
            view,
            Markup(draw_curve(view)),
            tuple((format_strength(level.strength, view.unit), level) for level in view.summary.levels),
            any(level.empirical is not None for level in view.summary.levels),
        )
        for view in certificates(folder)
    ]
