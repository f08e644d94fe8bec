"""Balanced accuracy, the weakest class, and constant predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.report.attack.detector import figures_of, name_detected_class
from isthmus.report.attack.view import AttackView
from isthmus.report.marks import visible
from isthmus.report.numerals import percent, percent_bounds
from isthmus.report.view import RunView
from isthmus.summaries.attack import Summary
from isthmus.summaries.balance import majority_warning

if TYPE_CHECKING:
    from rich.table import Table


TOO_FEW = 10
"""Predictions under which agreement proves nothing."""


def constant(view: AttackView, summary: Summary) -> str:
    """Warning in one sentence that predictions are constant; empty if the model separates the classes."""
    balance = summary.balance
    answered = sum(result.prediction_before is not None for result in view.results)
    if not answered:
        return ""  # Errors say nothing about the model.
    if len(balance.classes) > 1:
        only = None if balance.only_prediction is None else view.label(balance.only_prediction)
        if only is not None and answered < TOO_FEW:
            return f"All {answered} predictions are {only}: too few to tell whether the model separates the classes."
        return majority_warning(
            only,
            # Examples without an answer are no wrong predictions.
            max(summary.sacc.estimate, summary.correct / answered),
            view.label(balance.majority.label if balance.majority else None),
            balance.majority_share,
            "balanced_racc",
        )
    found = figures_of(view)
    if found is not None and found.negatives:
        label = name_detected_class(view)
        if found.fpr.estimate == 1:
            return (
                f"All {found.negatives} clean examples of other classes are flagged as {label} too: the model flags "
                "everything."
            )
        if found.caught_before.estimate <= found.fpr.estimate:
            return (
                f"Class {label} is flagged no more often than other classes ({percent(found.caught_before.estimate)} "
                f"and {percent(found.fpr.estimate)}): the model does not detect it."
            )
    if balance.majority is not None and view.goal.get("from_label") is None and summary.n > 1:
        label = view.label(balance.majority.label)
        return f"Every example is of class {label}: a model that always predicts {label} would score 100 %."
    return ""


def constants(run: RunView) -> list[str]:
    """The warnings of all attacks, each once."""
    found: dict[str, list[str]] = {}
    for view in run.attacks:
        warning = constant(view, view.summary) if view.results else ""
        if warning:
            found.setdefault(warning, []).append(view.key)
    return [f"{', '.join(keys)}: {warning}" for warning, keys in found.items()]


def list_lines(run: RunView, keys: Sequence[str] | None = None) -> list[tuple[str, AttackView, Summary]]:
    """Name, attack and figures of every line that has several classes."""
    views = [view for view in run.attacks if view.is_answered and (keys is None or view.key in keys)]
    lines = [(view.key, view, view.summary) for view in views]
    if run.together is not None and len(views) > 1:
        lines.append(("all together", run.alike[0], run.together))
    return [line for line in lines if len(line[2].balance.classes) > 1]


def majority(view: AttackView, summary: Summary) -> str:
    """``ham: 86.7 %``: the most frequent class and its share."""
    found = summary.balance.majority
    return "" if found is None else f"{view.label(found.label)}: {percent(summary.balance.majority_share)}"


def weakest(view: AttackView, summary: Summary) -> str:
    """``spam: 12.0 % (4.2–30.0)``: the class with the lowest robust accuracy."""
    found = summary.balance.weakest
    if found is None:
        return ""
    recall = found.robust_recall
    return f"{view.label(found.label)}: {percent(recall.estimate)} ({percent_bounds(recall, unit=False)})"


def balance_table(run: RunView, keys: Sequence[str] | None = None) -> Table | None:
    """Balanced accuracy and the share of the majority class; None if no sample has several classes."""
    from rich.table import Table
    from rich.text import Text

    lines = list_lines(run, keys)
    if not lines:
        return None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("balanced accuracy", overflow="fold", min_width=12)
    for heading in ("clean", "robust", "weakest class, robust", "majority class"):
        table.add_column(heading, justify="right", overflow="fold")
    for name, view, summary in lines:
        clean, robust = summary.balanced_sacc, summary.balanced_racc
        table.add_row(
            Text(visible(name, everything=True)),
            Text.assemble(percent(clean.estimate), "\n", (percent_bounds(clean, unit=False), "dim")),
            Text.assemble((percent(robust.estimate), "bold"), "\n", (percent_bounds(robust, unit=False), "dim")),
            Text(visible(weakest(view, summary), everything=True)),
            Text(visible(majority(view, summary), everything=True)),
        )
    return table
