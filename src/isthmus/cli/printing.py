"""Prints a verb's results for a run, and the JSON object at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.report.attack.balance import balance_table
from isthmus.report.attack.sentences import warnings
from isthmus.report.attack.terminal import (
    attack_table,
    detection_table,
    embedding_notes,
    embedding_table,
    footnotes,
    print_examples,
    print_steps,
)
from isthmus.report.attack.view import AttackView, RunView
from isthmus.report.certificate.terminal import print_certificate
from isthmus.report.certificate.view import certificates
from isthmus.report.evaluation.speed import HOW_FAST, speed_table
from isthmus.report.evaluation.terminal import evaluation_notes, evaluation_table
from isthmus.report.evaluation.view import EvaluationView
from isthmus.report.numerals import read_interval, three, three_bounds
from isthmus.report.steps import next_steps
from isthmus.report.training.shares import shares_line

if TYPE_CHECKING:
    from rich.console import Console


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
        console.print(attack_table(run, keys))
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


def print_evaluations(console: Console, views: Sequence[EvaluationView]) -> None:
    """Print the tables of texts and of questions, with their notes."""
    from rich.text import Text

    from isthmus.report.evaluation.questions import question_table
    from isthmus.report.marks import visible

    asked = [view for view in views if view.answers_questions]
    texts = [view for view in views if not view.answers_questions]
    if texts:
        console.print()
        console.print(evaluation_table(texts))
        console.print(evaluation_notes(texts))
    if asked:
        console.print()
        console.print(question_table(asked))
        console.print(Text("Under each figure: its 95 % interval, over groups of questions about one text.", "dim"))
    if any(view.speed for view in views):
        console.print()
        console.print(speed_table(views))
        console.print(Text(HOW_FAST, "dim"))
    for warning in (warning for view in asked for warning in view.warnings()):
        console.print(Text(visible(warning), style="yellow"))


def read_back(verb: str, counts: Mapping[str, tuple[int, int]], probe_queries: int) -> str:
    """``0 attacked now, 20 read back``: new and stored rows, by key."""
    several = len(counts) > 1
    parts = [
        f"{f'{key}: ' if several else ''}{now:,} {verb} now, {every - now:,} read back"
        for key, (now, every) in counts.items()
    ]
    asked = f" ({probe_queries} queries to check that the model is unchanged)" if probe_queries else ""
    return "; ".join(parts) + asked


def describe_training(results: Mapping[str, Any]) -> str:
    """How a model was trained, in one line."""
    counts = {what: int(results.get(f"{what}s") or 0) for what in ("example", "step")}
    examples, steps = (f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items())
    parts = [f"trained on {examples} in {steps}"]
    if results.get("wall_s"):
        parts.append(f"{float(results['wall_s']):,.0f} s")
    if results.get("dev_accuracy") is not None:
        from isthmus.core.statistics import wilson

        n = int(results.get("dev_examples") or 0)
        # What is deployed answers by several; `isthmus evaluate` asks that one.
        whose = " of a single pass" if results.get("dev_single_pass") else ""
        text = f"development accuracy{whose} {100 * float(results['dev_accuracy']):.1f} %"
        if n:
            interval = wilson(round(float(results["dev_accuracy"]) * n), n)
            text += f" ({100 * interval.low:.1f}–{100 * interval.high:.1f})"
        parts.append(text)
    if results.get("dev_calibration"):
        ece = read_interval(results["dev_calibration"].get("ece"))
        parts.append(f"calibration error {three(ece.estimate)} ({three_bounds(ece)})")
    if results.get("dev_f1") is not None:
        parts.append(f"development F1 {100 * float(results['dev_f1']):.1f} %")
        if results.get("dev_exact_match") is not None:
            parts.append(f"exact match {100 * float(results['dev_exact_match']):.1f} %")
    return ", ".join(parts)


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
    own = view.summary.get("ways", {}).get(view.headline, {})
    shown = {name: own.get(name) for name in ("accuracy", "balanced_accuracy")}
    shown["ece"] = (own.get("calibration") or {}).get("ece")
    if view.answers_questions:
        overall = view.summary.get("questions", {}).get("overall", {})
        shown = {name: overall.get(name) for name in ("exact_match", "f1")}
    return {
        **{name: (each or {}).get("estimate") for name, each in shown.items()},
        "intervals": {name: [(each or {}).get("low"), (each or {}).get("high")] for name, each in shown.items()},
        **view.summary,
        "speed": view.speed,
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
