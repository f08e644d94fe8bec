"""Tables and adversarial examples for a terminal of eighty columns.

Texts are never read as markup and cannot steer the terminal. Where there is no colour, changed words stand in brackets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.report.describe import without_result
from isthmus.report.marks import Piece, mark, visible
from isthmus.report.numerals import bounds, decimal, decimal_bounds, percent, read_interval, three
from isthmus.report.view import AttackView, RunView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from isthmus.core.statistics import Interval
    from isthmus.runs.summary import Summary


def attack_table(run: RunView, keys: Sequence[str] | None = None) -> Table:
    """The figures of a run's attacks, each with its interval; `keys` limits it to those."""
    from rich.table import Table

    views = _chosen(run, keys)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("attack", overflow="fold", min_width=8, vertical="top")
    for heading in (
        "\nn",
        "clean\naccuracy",
        "robust\naccuracy",
        "attack\nsuccess",
        "average\nqueries",
        "words\nchanged",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for view in views:
        table.add_row(*_line(view.key, view.summary))
    if run.together is not None and len(views) > 1:
        table.add_row(*_line("all together", run.together))
    return table


def _chosen(run: RunView, keys: Sequence[str] | None) -> list[AttackView]:
    return [view for view in run.attacks if view.rows and (keys is None or view.key in keys)]


def _line(name: str, summary: Summary) -> list[Text]:
    from rich.text import Text

    return [
        Text(visible(name, everything=True)),
        Text(str(summary.n)),
        _rate(summary.sacc),
        _rate(summary.racc, "bold"),
        _rate(summary.asr),
        _two(decimal(summary.avg_queries.estimate), decimal_bounds(summary.avg_queries)),
        _rate(summary.words_changed),
    ]


def _rate(interval: Interval, style: str = "") -> Text:
    return _two(percent(interval.estimate), bounds(interval, unit=False), style)


def _two(figure: str, interval: str, style: str = "") -> Text:
    from rich.text import Text

    return Text.assemble((figure, style), "\n", (interval, "dim"))


def footnotes(run: RunView, keys: Sequence[str] | None = None) -> Text:
    """What the table leaves out: how to read it, and examples without a result."""
    from rich.text import Text

    lines = ["Under each figure its 95 % interval. Robust: right, and the attack failed, of all n."]
    lines += [line for line in map(without_result, _chosen(run, keys)) if line]
    return Text("\n".join(visible(line) for line in lines), style="dim")


def detection_table(view: AttackView) -> Table:
    """What an evasion did to the detector."""
    from rich.table import Table
    from rich.text import Text

    found = view.detection or {}
    label = visible(view.label(found.get("label")), everything=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(f"{view.key}: evasion of {label}")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    threshold = found.get("threshold")
    chosen = "likeliest class" if threshold is None else f"threshold {float(threshold):.4g}"
    before, after, false = (read_interval(found.get(key)) for key in ("tpr_before", "tpr_after", "fpr"))
    table.add_row(Text(f"true-positive rate ({chosen})"), _rate(before), _rate(after, "bold"))
    table.add_row(Text(f"false-positive rate (of {found.get('negatives', 0)} clean others)"), _rate(false), Text(""))
    table.add_row(
        Text("area under the ROC curve"),
        Text(three(found.get("auc_before"))),
        Text(three(found.get("auc_after")), "bold"),
    )
    return table


def print_examples(console: Console, view: AttackView, count: int = 2) -> None:
    """The first `count` successes, changed words marked."""
    from rich.padding import Padding
    from rich.text import Text

    coloured = console.is_terminal and not console.no_color
    for row in view.successes[:count]:
        before, after = view.label(row.get("prediction_before")), view.label(row.get("prediction_after"))
        head = Text.assemble(
            (f"{view.key} ", "dim"), (visible(before, everything=True), "bold"), " → ",
            (visible(after, everything=True), "bold"), (f"   {row['id']}", "dim"),
        )  # fmt: skip
        console.print(head)
        for field in mark(row, context=120):
            if field.is_changed:
                console.print(Padding(_text(field.before, "red", coloured), (0, 0, 0, 2)))
                console.print(Padding(_text(field.after, "green", coloured), (0, 0, 1, 2)))


def _text(pieces: Sequence[Piece], colour: str, coloured: bool) -> Text:
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
