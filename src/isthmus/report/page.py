"""The report: one HTML page that needs no network and runs no script.

Every text on it is escaped by the template engine, and the page's own policy forbids scripts and requests, so that an
adversarial text cannot be adversarial to its reader.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import isthmus
from isthmus.core.errors import MissingExtra
from isthmus.core.files import write_atomic
from isthmus.report import numerals, steps
from isthmus.report.attack import balance, randomised, terms
from isthmus.report.attack import figure as attack_figure
from isthmus.report.attack.images import ImageGallery
from isthmus.report.attack.sentences import (
    coverage,
    describe_moved_pixels,
    describe_resources,
    describe_unbounded,
    is_large,
    of_embeddings,
    provenance,
    settings_line,
    subtitle,
    warnings,
    without_result,
)
from isthmus.report.attack.view import AttackView, RunView, read_run
from isthmus.report.certificate import page as certificate_page
from isthmus.report.evaluation.figure import diagrams, group_panels, of_run, reliability
from isthmus.report.evaluation.questions import question_lines
from isthmus.report.evaluation.speed import HOW_FAST, speed_lines
from isthmus.report.evaluation.view import EvaluationView, pool_splits
from isthmus.report.explanation.page import render_explained
from isthmus.report.marks import Marked, mark, visible
from isthmus.report.measure import page as measure_page
from isthmus.report.measure import view as measure_view
from isthmus.report.numerals import read_interval
from isthmus.report.tables import label_cells
from isthmus.report.training import figure as training_figure
from isthmus.report.training.shares import shares_line
from isthmus.runs.explained import read_explanations
from isthmus.runs.folder import RunFolder

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

_TEMPLATES = Path(__file__).parent / "templates"
_SHOWN, _SHOWN_OF_MANY, _MORE, _MORE_IMAGES = 5, 2, 25, 5


@dataclass(frozen=True)
class Verdict:
    """The model's prediction for one side."""

    name: str
    label: str
    score: float | None
    score_of: str = ""
    """The class whose score it is, where that is not the label."""


@dataclass(frozen=True)
class Item:
    """One adversarial example on the page."""

    id: str
    fields: tuple[Marked, ...]
    before: Verdict
    after: Verdict
    words: str
    similarity: float | None
    queries: int
    pictures: Any = None
    """Of an image: original, adversarial image and difference."""


@dataclass(frozen=True)
class Gallery:
    """Adversarial examples of one attack."""

    key: str
    series: int
    shown: tuple[Item, ...]
    more: tuple[Item, ...]


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
    attacked = [view for view in run.attacks if view.results]
    images = ImageGallery(run)
    galleries = [
        gallery(view, number % 6 + 1, _SHOWN if len(attacked) <= 6 else _SHOWN_OF_MANY, images, Markup)
        for number, view in enumerate(run.attacks)
        if view.successes
    ]
    drawn = {
        "robust_accuracy": attack_figure.robust_accuracy(run) if attacked else "",
        "query_budget": attack_figure.query_budget(run) if attacked else "",
        "words_changed": attack_figure.draw_words_changed(run) if attacked else "",
        "training": training_figure.training(run.log),
        "reliability": diagrams("run", of_run(run)),
    }
    page = environment.get_template("report.html").render(
        version=isthmus.__version__,
        style=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        run=run,
        path=run.folder.path.as_posix(),
        subtitle=subtitle(run),
        headline=run.headline,
        headline_names=terms.headline_names(run),
        severity=terms.severity(run.headline) if run.headline is not None else None,
        sentence=terms.headline_sentence(run),
        terms=terms.terms(run),
        warnings=[*warnings(run), *_troubling(attacked), *images.problems],
        attacks=attacked,
        together=run.together,
        any_abstained=any(view.summary.abstained for view in attacked),
        any_trouble=any(view.summary.errors + view.summary.timed_out for view in attacked),
        compared=any(not math.isnan(view.summary.similarity.estimate) for view in attacked),
        is_large=is_large,
        balanced=balance.list_lines(run),
        weakest=balance.weakest,
        majority=balance.majority,
        resources=describe_resources(run),
        coverage=coverage(run) if run.together is not None else "",
        unbounded=describe_unbounded(run, run.attacks),
        of_images=any(view.is_of_images for view in run.attacks),
        left_out=run.left_out,
        figures={name: Markup(svg) for name, svg in drawn.items()},
        detections=[_detection(view, Markup(attack_figure.detection(view))) for view in attacked if view.detection],
        randomised=randomised.section(run, Markup),
        evaluations=evaluations_page(run.evaluations, Markup),
        questions=questions_page(run.evaluations),
        speed=speed_page(run.evaluations),
        galleries=galleries,
        embeddings=[view for view in run.embeddings if view.results],
        of_embeddings=of_embeddings(run.embeddings),
        explanations=[
            {"title": visible(each.title, everything=True), "html": Markup(render_explained(each.explained))}
            for each in read_explanations(run.folder)
        ],
        troubles=_troubles(attacked),
        measures=measure_page.sections(run.folder),
        certificates=certificate_page.sections(run.folder),
        shares=shares_line(run.log),
        provenance=provenance(run),
        commands=steps.commands(run),
        first_attack=steps.first_attack(run),
    )
    return label_cells(page)


def evaluations_page(views: Sequence[EvaluationView], markup: Any) -> dict[str, Any] | None:
    """The section on evaluations; None if there are none."""
    views = [view for view in views if not view.answers_questions]
    if not views:
        return None
    finished = [view for view in views if view.is_finished]
    drawn = [
        {"svg": markup(reliability(group)), "title": visible(group[0].key, everything=True) if len(group) == 1 else ""}
        for group in group_panels(finished)
    ]
    return {
        "views": finished,
        "figures": [each for each in drawn if each["svg"]],
        "warnings": [warning for view in views for warning in view.warnings()],
        "pooled": [str(each) for each in pool_splits(finished)],
        "stochastic": any(len(view.ways) > 1 for view in views),
    }


def questions_page(views: Sequence[EvaluationView]) -> dict[str, Any] | None:
    """The section on questions; None if there are none."""
    asked = [view for view in views if view.answers_questions]
    if not asked:
        return None
    warnings = [warning for view in asked for warning in view.warnings()]
    return {"views": [view for view in asked if view.is_finished], "lines": question_lines, "warnings": warnings}


def speed_page(views: Sequence[EvaluationView]) -> dict[str, Any] | None:
    """The section on speed; None if nothing was timed."""
    found = speed_lines(views)
    if not found.lines:
        return None
    priced = any(view.cost_per_1000 is not None for view in views)
    return {"headings": found.headings, "lines": found.lines, "note": HOW_FAST, "priced": priced}


def gallery(view: AttackView, series: int, shown: int, images: ImageGallery, markup: Any) -> Gallery:
    """The first successes of an attack, in the order of the sample."""
    more = _MORE_IMAGES if view.is_of_images else _MORE  # A picture takes the room of hundreds of words.
    items = tuple(
        replace(item(view, result), pictures=markup(images.pictures(view, result)))
        if view.is_of_images
        else item(view, result)
        for result in view.successes[: shown + more]
    )
    return Gallery(view.key, series, items[:shown], items[shown:])


def item(view: AttackView, result: AttackResult) -> Item:
    """One adversarial example, its texts cut into unchanged and changed pieces."""
    words, changed = result.words, round(result.words_changed * result.words)
    return Item(
        id=visible(result.id, everything=True),
        fields=mark(result),
        before=_verdict("original", view, result.prediction_before, result.score_before),
        after=_verdict("adversarial", view, result.prediction_after, result.score_after),
        words=describe_moved_pixels(result) or (f"{changed} of {words} words changed" if words else "words changed"),
        similarity=result.similarity,
        queries=result.logical_queries,
    )


def _verdict(name: str, view: AttackView, prediction: int | None, scores: Sequence[float]) -> Verdict:
    said, score = terms.describe_verdict(view, prediction, scores)
    score_of = terms.name_detected_class(view) if terms.is_evasion(view) else ""
    return Verdict(name, visible(said, everything=True), score, visible(score_of, everything=True))


def _troubling(views: Sequence[AttackView]) -> list[str]:
    """Attacks with so many errors that the accuracies mean little."""
    many = [view for view in views if view.summary.errors + view.summary.timed_out > 0.05 * view.summary.n]
    return [without_result(view) for view in many]


def _troubles(views: Sequence[AttackView]) -> list[dict[str, Any]]:
    return [
        {"key": view.key, "reason": reason[:300], "count": count}
        for view in views
        for reason, count in view.reasons()[:12]
    ]


def _detection(view: AttackView, figure: Any) -> dict[str, Any]:
    found = dict(view.detection or {})
    label = terms.name_detected_class(view)
    negatives = int(found.get("negatives") or 0)
    without = int(found.get("negatives_without_answer") or 0)
    silent = f" ({without} more had no answer)" if without else ""
    return {
        "key": view.key,
        "label": visible(label, everything=True),
        "note": f"{view.summary.n} examples of {label} were attacked; {negatives} examples of other classes were "
        f"only scored{silent}. {terms.sentence(terms.threshold(view))} The attack stops as soon as a text passes, so "
        "that how far it got beyond the threshold, and the area under the ROC curve after it, say nothing.",
        "figure": figure,
        "tpr_before": read_interval(found.get("tpr_before")),
        "tpr_after": read_interval(found.get("tpr_after")),
        "fpr": read_interval(found.get("fpr")),
        "auc_before": found.get("auc_before"),
    }
