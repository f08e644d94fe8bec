"""Attacks on the page: adversarial examples, detectors, and examples without a result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from isthmus.report.attack import balance, figure, randomised, terms
from isthmus.report.attack.detector import (
    DetectorFigures,
    RateNames,
    describe_answer,
    describe_others,
    groups,
    is_evasion,
    name_detected_class,
    threshold,
    vocabulary,
)
from isthmus.report.attack.images import ImageGallery
from isthmus.report.attack.sentences import (
    coverage,
    describe_moved_pixels,
    describe_resources,
    describe_unbounded,
    is_large,
    of_embeddings,
    warnings,
    without_result,
)
from isthmus.report.attack.verdict import has_answers, headline_names, headline_sentence, judge
from isthmus.report.attack.view import AttackView
from isthmus.report.marks import Marked, mark, visible
from isthmus.report.view import RunView
from isthmus.summaries.attack import Summary

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult

_SHOWN, _SHOWN_OF_MANY, _MORE, _MORE_IMAGES = 5, 2, 25, 5


@dataclass(frozen=True)
class ShownPrediction:
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
    before: ShownPrediction
    after: ShownPrediction
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


@dataclass(frozen=True)
class _Group:
    """Attacks in one table."""

    views: Sequence[AttackView]
    run: RunView

    @property
    def numbered(self) -> list[tuple[int, AttackView]]:
        """Each attack with its number in the run, which is its colour."""
        return [
            (number, view) for number, view in enumerate(self.run.attacks) if any(view is own for own in self.views)
        ]

    @property
    def words(self) -> RateNames:
        """The names of its rates."""
        return vocabulary(self.views)

    @property
    def together(self) -> Summary | None:
        """The union, where it is one of these attacks."""
        return self.run.together if any(view is alike for view in self.views for alike in self.run.alike) else None


def sections(run: RunView, markup: Any) -> dict[str, Any]:
    """What the template shows of the attacks of a run, by the names it has there."""
    attacked = [view for view in run.attacks if view.results]
    images = ImageGallery(run)
    galleries = [
        gallery(view, number % 6 + 1, _SHOWN if len(attacked) <= 6 else _SHOWN_OF_MANY, images, markup)
        for number, view in enumerate(run.attacks)
        if view.successes
    ]
    drawn = {
        "robust_accuracy": figure.robust_accuracy(run),
        "query_budget": figure.query_budget(run),
        "words_changed": figure.draw_words_changed(run),
    }
    return {
        "headline": run.headline,
        "headline_names": headline_names(run),
        "answered": has_answers(run),
        "severity": judge(run),
        "sentence": headline_sentence(run),
        "terms": terms.terms(run),
        "warnings": [*warnings(run), *_troubling(attacked), *images.problems],
        "attacks": attacked,
        "groups": [_Group(views, run) for views in groups(attacked)],
        "words": vocabulary(attacked),
        "any_abstained": any(view.summary.abstained for view in attacked),
        "any_trouble": any(view.summary.errors + view.summary.timed_out for view in attacked),
        "compared": any(not math.isnan(view.summary.similarity.estimate) for view in attacked),
        "is_large": is_large,
        "balanced": balance.list_lines(run),
        "majority": balance.majority,
        "resources": describe_resources(run),
        "coverage": coverage(run) if run.together is not None else "",
        "unbounded": describe_unbounded(run, run.attacks),
        "of_images": any(view.is_of_images for view in run.attacks),
        "left_out": run.left_out,
        "attack_figures": {name: markup(svg) for name, svg in drawn.items()},
        "detections": [_detection(view, markup(figure.detection(view))) for view in attacked if view.detection],
        "randomised": randomised.section(run, markup),
        "galleries": galleries,
        "embeddings": [view for view in run.embeddings if view.results],
        "of_embeddings": of_embeddings(run.embeddings),
        "troubles": _troubles(attacked),
    }


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


def _verdict(name: str, view: AttackView, prediction: int | None, scores: Sequence[float]) -> ShownPrediction:
    said, score = describe_answer(view, prediction, scores)
    score_of = name_detected_class(view) if is_evasion(view) else ""
    return ShownPrediction(name, visible(said, everything=True), score, visible(score_of, everything=True))


def _troubling(views: Sequence[AttackView]) -> list[str]:
    """Attacks with too many errors for the accuracies to be trusted."""
    many = [view for view in views if view.summary.errors + view.summary.timed_out > 0.05 * view.summary.n]
    return [without_result(view) for view in many]


def _troubles(views: Sequence[AttackView]) -> list[dict[str, Any]]:
    return [
        {"key": view.key, "reason": reason[:300], "count": count}
        for view in views
        for reason, count in view.reasons()[:12]
    ]


def _detection(view: AttackView, drawn: Any) -> dict[str, Any]:
    found = DetectorFigures.read(view.detection or {})
    label = name_detected_class(view)
    return {
        "key": view.key,
        "label": visible(label, everything=True),
        "note": f"{view.summary.n} texts of class {label} were attacked. The false-positive rate is that of "
        f"{describe_others(found)}. {terms.sentence(threshold(view))} The attack stops as soon as a text passes, so "
        "its scores lie just under the threshold, and an area under the ROC curve after it would mean nothing.",
        "figure": drawn,
        "found": found,
    }
