"""The report: one HTML page that needs no network and runs no script.

Every text on it is escaped by the template engine, and the page's own policy forbids scripts and requests, so that an
adversarial text cannot be adversarial to its reader.
"""

from __future__ import annotations

from pathlib import Path

import isthmus
from isthmus.core.errors import MissingExtra
from isthmus.core.files import write_atomic
from isthmus.report import numerals, steps
from isthmus.report.attack import page as attack_page
from isthmus.report.attack.sentences import provenance, settings_line, subtitle
from isthmus.report.certificate import page as certificate_page
from isthmus.report.contents import add_contents
from isthmus.report.evaluation import page as evaluation_page
from isthmus.report.evaluation.figure import diagrams, of_run
from isthmus.report.explanation.page import render_explained
from isthmus.report.marks import visible
from isthmus.report.measure import page as measure_page
from isthmus.report.measure import view as measure_view
from isthmus.report.tables import label_cells
from isthmus.report.training import figure as training_figure
from isthmus.report.training.sentences import shares_line
from isthmus.report.view import RunView, read_run
from isthmus.runs.explained import read_explanations
from isthmus.runs.folder import RunFolder

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(folder: RunFolder) -> Path:
    """Write report.html from the contents of a run folder."""
    page = render(read_run(folder))
    with folder.hold("report"):
        write_atomic(folder.report_path, page.encode("utf-8", errors="replace"))
    return folder.report_path


def render(run: RunView) -> str:
    """The page as text."""
    try:
        import jinja2
    except ImportError:
        raise MissingExtra("jinja2", "report", "the report") from None
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # What autoescaping leaves: control characters and overrides of the reading direction.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    for name in (
        "percent", "bare_percent", "decimal", "short_bounds", "width", "three", "three_bounds", "two",
        "two_bounds",
    ):  # fmt: skip
        environment.filters[name] = getattr(numerals, name)
    environment.filters["bounds"] = numerals.percent_bounds
    environment.filters["described"] = settings_line
    environment.filters |= {
        "measured": measure_view.format_figure,
        "measured_bounds": measure_view.format_bounds,
        "shade": measure_page.shade,
    }
    figures = {"training": training_figure.training(run.log), "reliability": diagrams("run", of_run(run))}
    page = environment.get_template("report.html").render(
        version=isthmus.__version__,
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        run=run,
        path=run.folder.path.as_posix(),
        subtitle=subtitle(run),
        figures={name: Markup(svg) for name, svg in figures.items()},
        **attack_page.sections(run, Markup),
        evaluations=evaluation_page.evaluations(run.evaluations, Markup),
        questions=evaluation_page.questions(run.evaluations),
        speed=evaluation_page.speed(run.evaluations),
        explanations=[
            {"title": visible(each.title, everything=True), "html": Markup(render_explained(each.explained))}
            for each in read_explanations(run.folder)
        ],
        measures=measure_page.sections(run.folder),
        certificates=certificate_page.sections(run.folder),
        shares=shares_line(run.log),
        provenance=provenance(run),
        commands=steps.commands(run),
        first_attack=steps.first_attack(run),
    )
    return add_contents(label_cells(page))
