"""Prints a verb's results for a run, and the JSON object at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.report.attack.balance import balance_table
from isthmus.report.attack.sentences import warnings
from isthmus.report.attack.terminal import (
    attack_tables,
    detection_table,
    embedding_notes,
    embedding_table,
    footnotes,
    print_examples,
    print_steps,
    verdict,
)
from isthmus.report.attack.view import AttackView
from isthmus.report.certificate.terminal import print_certificate
from isthmus.report.certificate.view import certificates
from isthmus.report.evaluation.terminal import print_evaluations
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.steps import next_steps
from isthmus.report.training.sentences import shares_line
from isthmus.report.training.terminal import describe_training
from isthmus.report.view import RunView
from isthmus.summaries.evaluation import EvaluationSummary

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus.core.statistics import Interval


def print_run(
    console: Console,
    run: RunView,
    *,
    after: str,
    keys: Sequence[str] | None = None,
    evaluated: Sequence[str] | None = None,
    examples: int = 2,
    page: Path | None = None,
    said: str | None = None,
) -> None:
    """Print title, table, notes, examples and next commands; `said` goes under the title."""
    from rich.text import Text

    from isthmus.report.attack.sentences import subtitle
    from isthmus.report.marks import visible

    console.print()
    console.print(Text.assemble((visible(run.name), "bold"), (f"   {visible(subtitle(run))}", "dim")))
    if run.record.results:
        console.print(Text(describe_training(run.record.results), style="dim"))
    if shares := shares_line(run.log):
        console.print(Text(visible(shares), style="dim"))
    if said:
        console.print(Text(said))
    views = [view for view in run.attacks if view.results and (keys is None or view.key in keys)]
    if views:
        console.print()
        console.print(verdict(run))
        for table in attack_tables(run, keys):
            console.print()
            console.print(table)
        console.print(footnotes(run, keys))
        balance = balance_table(run, keys)
        if balance is not None:
            console.print()
            console.print(balance)
        for view in views:
            if view.detection:
                console.print()
                console.print(detection_table(view))
        console.print()
        for view in views:
            print_examples(console, view, examples)
    if any(view.results for view in run.embeddings):
        console.print()
        console.print(embedding_table(run))
        console.print(embedding_notes(run))
    evaluations = [view for view in run.evaluations if evaluated is None or view.key in evaluated]
    print_evaluations(console, evaluations)
    if keys is None and evaluated is None:
        for certificate in certificates(run.folder):
            print_certificate(console, certificate)
    for warning in warnings(run):
        console.print(Text(visible(warning), style="yellow"))
    if after == "report":
        from isthmus.report.measure.terminal import print_tables

        print_tables(console, run.folder)
    if page is not None:
        console.print(Text.assemble("\nReport: ", (str(page), "bold")), soft_wrap=True)
    print_steps(console, next_steps(run, after))


def read_back(verb: str, counts: Mapping[str, tuple[int, int]], probe_queries: int) -> str:
    """``0 attacked now, 20 read back``: new and stored rows, by key."""
    several = len(counts) > 1
    parts = [
        f"{f'{key}: ' if several else ''}{now:,} {verb} now, {every - now:,} read back"
        for key, (now, every) in counts.items()
    ]
    asked = f" ({probe_queries} queries to check that the model is unchanged)" if probe_queries else ""
    return "; ".join(parts) + asked


def attack_json(view: AttackView) -> dict[str, Any]:
    """The figures of one attack."""
    raw_effort = view.header.get("effort")
    effort: Mapping[str, Any] = raw_effort if isinstance(raw_effort, Mapping) else {}
    found = {
        **view.summary.to_json(),
        "wall_s": round(float(effort.get("wall_s") or 0.0), 4),
        "cpu_s": round(float(effort.get("cpu_s") or 0.0), 4),
        "effort": dict(effort),
        "resources": dict(view.resources),
        "preset": view.preset,
        "labels": list(view.labels),
    }
    if view.detection:
        found["detection"] = {key: value for key, value in view.detection.items() if key != "negative_scores"}
    return found


def evaluation_json(view: EvaluationView) -> dict[str, Any]:
    """The figures of one evaluation; those of the model as saved come first."""
    summary, speed = view.summary, view.speed
    shown: dict[str, Interval | None] = {"accuracy": None, "balanced_accuracy": None, "ece": None}
    if isinstance(summary, EvaluationSummary):
        own = summary.own
        shown = {"accuracy": own.accuracy, "balanced_accuracy": own.balanced_accuracy, "ece": own.calibration.ece}
    elif view.answers_questions:
        overall = summary.overall if summary is not None else None
        shown = {"exact_match": overall.exact_match, "f1": overall.f1} if overall else {"exact_match": None, "f1": None}
    figures = {name: {} if each is None else each.to_json() for name, each in shown.items()}
    price = {"price_per_hour": view.price_per_hour, "cost_per_1000": view.cost_per_1000}
    return {
        **{name: each.get("estimate") for name, each in figures.items()},
        "intervals": {name: [each.get("low"), each.get("high")] for name, each in figures.items()},
        **(summary.to_json() if summary is not None else {}),
        "speed": None if speed is None else {**speed.to_json(), **price},
        "set": view.header.get("set"),
        "suspicion": view.header.get("suspicion"),
        "warnings": view.warnings(),
    }


def run_json(run: RunView, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """The figures of a run: those of its only attack at the top, or of the union of several."""
    views = [view for view in run.attacks if view.results and (keys is None or view.key in keys)]
    each = {view.key: attack_json(view) for view in views}
    found: dict[str, Any] = {"run": run.folder.path.as_posix()}
    if len(views) == 1:
        found |= each[views[0].key]
    elif views:
        if run.together is not None:
            found |= run.together.to_json() | {"together": [view.key for view in run.alike]}
        found |= {name: round(sum(figures[name] for figures in each.values()), 4) for name in ("wall_s", "cpu_s")}
    if run.record.results:
        found["training"] = dict(run.record.results)
    found["attacks"] = each
    if run.embeddings:
        found["embedding_attacks"] = {
            view.key: {
                **attack_json(view),
                "space": "embeddings",
                "embedding_length": view.header.get("embedding_length"),
            }
            for view in run.embeddings
            if view.results
        }
    if run.evaluations and keys is None:
        found["evaluations"] = {view.key: evaluation_json(view) for view in run.evaluations}
    if run.left_out:
        found["left_out"] = run.left_out
    found["warnings"] = warnings(run)
    return found
