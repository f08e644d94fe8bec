"""Tables and adversarial examples for a terminal of eighty columns.

Texts are never read as markup and cannot steer the terminal. Where there is no colour, changed words stand in brackets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.report.attack.detector import (
    OF_DETECTORS,
    OF_PREDICTIONS,
    DetectorFigures,
    describe_answer,
    describe_others,
    groups,
    name_detected_class,
    vocabulary,
)
from isthmus.report.attack.randomised import describe_judgement as randomised
from isthmus.report.attack.sentences import (
    ABSTAINED,
    coverage,
    describe_moved_pixels,
    describe_options,
    describe_resources,
    describe_search,
    describe_unbounded,
    is_large,
    of_embeddings,
    settings_line,
    without_result,
)
from isthmus.report.attack.verdict import headline_sentence, judge
from isthmus.report.attack.view import AttackView
from isthmus.report.cells import stack
from isthmus.report.marks import Piece, mark, visible
from isthmus.report.numerals import (
    decimal,
    percent,
    percent_bounds,
    short_bounds,
    three,
    two,
    two_bounds,
)
from isthmus.report.view import RunView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from isthmus.core.statistics import Interval
    from isthmus.summaries.attack import Summary

_OF_TEXTS = "No candidates: examples without any candidate edit; counted as {}."
_OF_IMAGES = "Largest change, l2: mean size of the perturbation, over successes."


_COLOURS = {"severe": "bold red", "weak": "bold yellow", "holds": "bold green"}


def verdict(run: RunView) -> Text:
    """The verdict and the main finding, in the words of the page."""
    from rich.text import Text

    found = judge(run)
    text = Text()
    if found is not None:
        text.append(f"{visible(str(found))}\n", style=_COLOURS.get(found.name, "bold"))
    return text.append(visible(headline_sentence(run)))


def attack_tables(run: RunView, keys: Sequence[str] | None = None) -> list[Table]:
    """One table of the attacks on predictions, and one of those on a detector: their rates are not the same."""
    return [attack_table(run, [view.key for view in views]) for views in groups(_choose_views(run, keys))]


def attack_table(run: RunView, keys: Sequence[str] | None = None) -> Table:
    """The figures of a run's attacks with intervals; `keys` selects some of them."""
    from rich.table import Table

    views = _choose_views(run, keys)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("attack", overflow="fold", min_width=12, vertical="top")
    lines = [(view.key, view.summary, view.is_answered) for view in views]
    if run.together is not None and len(views) > 1 and any(view is run.alike[0] for view in views):
        lines.insert(0, ("all together", run.together, True))  # The strongest statement comes first.
    abstained = any(summary.abstained for _, summary, _ in lines)
    compared = any(map(_is_compared, views)) and not abstained  # Both would not fit; see `footnotes`.
    words = vocabulary(views)
    rates = ["\n".join(rate.split()) for rate in (words.before, words.after)]
    headings = [*rates, "attack\nsuccess", *(["ab-\nstained"] if abstained else [])]
    moved = (
        ["largest\nchange", "l2"] if any(summary.linf is not None for _, summary, _ in lines) else ["words\nchanged"]
    )
    untried = ["no can-\ndidates"] if len(moved) == 1 else []  # Every image has a gradient to follow.
    headings += [*untried, "average\nqueries", *moved, *(["simi-\nlarity"] if compared else [])]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for name, summary, answered in lines:
        table.add_row(*_make_line(name, summary, abstained, compared, answered))
    return table


def embedding_table(run: RunView) -> Table:
    """The figures of a run's attacks on embeddings."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("on embeddings", overflow="fold", min_width=12, vertical="top")
    headings = ("clean\naccuracy", "robust\naccuracy", "attack\nsuccess", "average\nqueries", "largest\nchange", "l2")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for view in run.embeddings:
        if view.results:
            table.add_row(*_make_line(view.key, view.summary, abstained=False, compared=False))
    return table


def embedding_notes(run: RunView) -> Text:
    """How to read that table."""
    from rich.text import Text

    views = [view for view in run.embeddings if view.results]
    lines = [of_embeddings(views)]
    lines += [f"{view.key}: {line}" for view in views if (line := settings_line(view))]
    lines += [line for line in (*map(without_result, views), *map(randomised, views)) if line]
    return Text("\n".join(visible(line) for line in lines), style="dim")


def _choose_views(run: RunView, keys: Sequence[str] | None) -> list[AttackView]:
    return [view for view in run.attacks if view.results and (keys is None or view.key in keys)]


def _is_another(view: AttackView) -> bool:
    """Whether the name alone does not identify what was run."""
    return view.key != view.attack or bool(describe_options(view) or describe_search(view))


def _is_compared(view: AttackView) -> bool:
    return not math.isnan(view.summary.similarity.estimate)


def _make_line(name: str, summary: Summary, abstained: bool, compared: bool, answered: bool = True) -> list[Text]:
    from rich.text import Text

    none = summary.no_candidates
    declined = f"{summary.abstained_before} clean", f"{summary.abstained_after} after"
    return [
        Text.assemble(visible(name, everything=True), "\n", (f"n {summary.n}", "dim")),
        *([_rate(summary.sacc), _rate(summary.racc, "bold")] if answered else [Text("–"), Text("–")]),
        _rate(summary.asr),
        *([Text("\n".join(declined))] if abstained else []),
        *([Text(str(none), style="yellow" if is_large(none, summary) else "")] if summary.linf is None else []),
        stack(decimal(summary.avg_queries.estimate), short_bounds(summary.avg_queries)),
        *_format_changes(summary),
        *([stack(two(summary.similarity.estimate), two_bounds(summary.similarity))] if compared else []),
    ]


def _format_changes(summary: Summary) -> list[Text]:
    """How much the successes changed: words, or pixels."""
    if summary.linf is None or summary.l2 is None:
        return [_rate(summary.words_changed)]
    return [stack(two(each.estimate), two_bounds(each)) for each in (summary.linf, summary.l2)]


def _rate(interval: Interval, style: str = "") -> Text:
    return stack(percent(interval.estimate), percent_bounds(interval, unit=False), style)


def footnotes(run: RunView, keys: Sequence[str] | None = None) -> Text:
    """Notes under the table: how to read it, examples without a result, and resources used."""
    from rich.text import Text

    views = _choose_views(run, keys)
    words = vocabulary(views)
    read = [
        {
            OF_DETECTORS: "Caught before, after: flagged before and after the attack, out of all n.",
            OF_PREDICTIONS: "Robust accuracy: correct and not fooled, out of all n.",
        }[vocabulary(group)]
        for group in groups(views)
    ]
    more = _OF_IMAGES if any(view.is_of_images for view in views) else _OF_TEXTS.format(words.kept)
    lines = [" ".join(["Under each figure: its 95 % interval.", *read, more])]
    lines += [f"{view.key}: {line}" for view in views if (line := settings_line(view)) and _is_another(view)]
    if any(view.summary.abstained for view in views):
        lines.append(ABSTAINED)
        for view in filter(_is_compared, views):
            similarity = view.summary.similarity
            lines.append(f"{view.key}: similarity {two(similarity.estimate)} ({two_bounds(similarity)})")
    lines += [line for line in (*map(without_result, views), *map(randomised, views)) if line]
    if run.together is not None and len(views) > 1:
        lines.append(coverage(run))
    lines += [describe_unbounded(run, views)] if describe_unbounded(run, views) else []
    text = Text("\n".join(visible(line) for line in lines), style="dim")
    for used in describe_resources(run, [view.key for view in views]):
        text.append("\n" + visible(str(used)), style="yellow" if used.is_stand_in else "")
    for name, reason in run.left_out.items():
        text.append("\n" + visible(f"{name} was left out: {reason}"), style="yellow")
    return text


def detection_table(view: AttackView) -> Table:
    """Effect of an evasion attack on the detector."""
    from rich.table import Table
    from rich.text import Text

    found = DetectorFigures.read(view.detection or {})
    label = visible(name_detected_class(view), everything=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"{view.key}: evasion of {label}", overflow="fold")
    table.add_column("before", justify="right", no_wrap=True)
    table.add_column("after", justify="right", no_wrap=True)
    chosen = "likeliest class" if found.threshold is None else f"threshold {found.threshold:.4g}"
    table.add_row(Text(f"{label} caught ({chosen})"), _rate(found.caught_before), _rate(found.caught_after, "bold"))
    table.add_row(Text(f"false-positive rate ({describe_others(found)})"), _rate(found.fpr), Text("the same", "dim"))
    # An attack stops as soon as a text passes: an AUC after it would measure where it stopped.
    table.add_row(Text("area under the ROC curve, clean texts"), Text(three(found.auc_before)), Text(""))
    return table


def print_examples(console: Console, view: AttackView, count: int = 2) -> None:
    """Print the first `count` successes, changed words marked."""
    from rich.padding import Padding
    from rich.text import Text

    coloured = console.is_terminal and not console.no_color
    for result in view.successes[:count]:
        before = describe_answer(view, result.prediction_before, result.score_before)[0]
        after = describe_answer(view, result.prediction_after, result.score_after)[0]
        head = Text.assemble(
            (f"{view.key} ", "dim"), (visible(before, everything=True), "bold"), " → ",
            (visible(after, everything=True), "bold"), (f"   {result.id}{describe_moved_pixels(result, ', ')}", "dim"),
        )  # fmt: skip
        console.print(head)
        for field in mark(result, context=120):
            if field.is_changed:
                console.print(Padding(_mark_text(field.before, "red", coloured), (0, 0, 0, 2)))
                console.print(Padding(_mark_text(field.after, "green", coloured), (0, 0, 1, 2)))


def _mark_text(pieces: Sequence[Piece], colour: str, coloured: bool) -> Text:
    from rich.text import Text

    text = Text(overflow="fold")
    for piece in pieces:
        content = " ".join(piece.text.split("\n"))
        if piece.changed:
            text.append(content if coloured else f"[{content}]", style=f"bold {colour} underline")
        else:
            text.append(content)
    return text


def print_steps(console: Console, steps: Sequence[tuple[str, str]]) -> None:
    """What to run next, each command on its own line so that it can be copied."""
    from rich.text import Text

    console.print(Text("\nWhat to run next", style="bold"))
    for command, reason in steps:
        console.print(Text(f"  {reason}", style="dim"))
        console.print(Text(f"    {command}"), soft_wrap=True)
