"""Files of explanations: a figure on request, and the page and figures kept in a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import MissingExtra
from isthmus.core.files import make_folder
from isthmus.report.explanation import figure
from isthmus.report.explanation.page import write_page
from isthmus.runs.explained import Explained, KeptExplanations

if TYPE_CHECKING:
    from rich.console import Console


def check_figure(path: Path) -> None:
    """Refuse an unusable file name before anything is explained."""
    figure.check_path(path)


def write_figure(explained: Sequence[Explained], title: str, path: Path) -> list[Path]:
    """Draw a figure into a file."""
    return figure.save(explained, title, [path])


def write_kept(kept: KeptExplanations, console: Console | None = None) -> list[Path]:
    """Write page and figures of what a run keeps into its folder of figures; without matplotlib only the page."""
    stem = kept.folder.figures_path / f"explained-{kept.key}"
    page = stem.with_name(f"{stem.name}.html")
    with kept.folder.hold("explain"):
        make_folder(kept.folder.figures_path)
        write_page(kept.explained, page, f"{kept.folder.name}: {kept.title}")
        paths = [stem.with_name(f"{stem.name}{suffix}") for suffix in (".svg", ".png")]
        try:
            return [page, *figure.save(kept.explained, kept.title, paths)]
        except MissingExtra as error:
            if console is not None:
                console.print(str(error), markup=False)
            return [page]
