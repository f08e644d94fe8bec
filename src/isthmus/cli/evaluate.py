"""``isthmus evaluate``: accuracy and calibration of a classifier on fixed sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import options
from isthmus.core.errors import ExitCode, VictimError

if TYPE_CHECKING:
    from isthmus.report.view import RunView
    from isthmus.verbs.evaluate import EvaluateRequest
    from isthmus.verbs.evaluate.one_set import Answered
    from isthmus.verbs.rows_file import RowsReport


def evaluate(
    model: options.ModelArgument,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="SET",
            help="Data by name, file or folder, or an attack's rows or export; may be repeated. "
            "(default: the run's own test data)",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", metavar="A,B,…", help="Splits, or all. (default: test, else dev)", rich_help_panel=options.DATA
        ),
    ] = None,
    rows: Annotated[
        str,
        typer.Option(
            "--rows",
            help="Rows of an attack: its successes, or all attempted examples with their last texts.",
            rich_help_panel=options.DATA,
        ),
    ] = "successes",
    n: Annotated[int, typer.Option("--n", help="Examples per set; 0 takes all.", rich_help_panel=options.DATA)] = 0,
    task: Annotated[
        str | None,
        typer.Option(
            "--task", help="classification or qa. (default: what the run was trained for)", rich_help_panel=options.DATA
        ),
    ] = None,
    text: options.TextOption = None,
    label: options.LabelOption = None,
    pair: options.PairOption = None,
    labels: options.LabelsOption = None,
    label_check: options.LabelCheckOption = True,
    draws: Annotated[int, typer.Option("--draws", help="Random draws to average, for a stochastic model.")] = 12,
    latency: Annotated[
        int | None,
        typer.Option(
            "--latency",
            metavar="TEXTS",
            help="Texts to time one by one; 0: none. (default: 50; 0 for a service or a function)",
            rich_help_panel="Machine",
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            "--price-per-hour", help="Price of the machine, for the cost of 1,000 texts.", rich_help_panel="Machine"
        ),
    ] = None,
    seed: options.Seed = 0,
    fail_under: Annotated[
        str | None,
        options.fail_under("accuracy=0.80", "accuracy, balanced_accuracy, tpr; for questions exact_match, f1."),
    ] = None,
    positive: options.Positive = None,
    predictions: Annotated[
        str | None,
        typer.Option(
            "--predictions",
            metavar="FILE",
            help="Write predicted answers in the format of SQuAD's official script.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    retry_errors: options.RetryErrors = False,
    out: options.OutOfModel = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    victim: options.VictimOption = None,
    headers: options.Headers = None,
    device: options.Device = None,
    precision: Annotated[
        str, typer.Option("--precision", help="fp32 or bf16.", rich_help_panel=options.MACHINE)
    ] = "fp32",
) -> None:
    """Evaluate a classifier on static sets: accuracy, calibration, transfer of adversarial texts.

    isthmus evaluate runs/demo

    isthmus evaluate runs/other --on runs/demo/attacks/pwws.jsonl --on anli --split dev_r1,dev_r2
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, results
    from isthmus.cli.gate import EVALUATED, PrintedGate
    from isthmus.cli.printing import evaluation_json, print_run, read_back
    from isthmus.report.evaluation.view import pool_splits
    from isthmus.verbs.evaluate import EvaluateRequest, SetRequest

    bar = PrintedGate.parse(fail_under, EVALUATED, positive=positive)
    sets = SetRequest(
        on=tuple(on or ()),
        split=options.names(split),
        text=text,
        label=label,
        pair=options.pair(pair),
        rows=rows,  # type: ignore[arg-type]  # checked where sets are opened
    )
    request = EvaluateRequest(
        model=model,
        sets=sets,
        task=options.task_name(task) if task is not None else None,
        n=options.examples(n, "evaluate on"),
        draws=draws,
        latency=latency,
        price_per_hour=price_per_hour,
        seed=seed,
        out=options.folder(out),
        labels=options.names(labels) or None,
        victim=options.victim(victim, headers),
        precision=precision,
        device=options.device(device),
        label_check=label_check,
        retry_errors=retry_errors,
        command=command_line(),
    )
    report = _run(request, quiet)
    view = _view(report)
    console = results(as_json, quiet)
    counts = {outcome.file.key: (outcome.made, len(outcome.results)) for outcome in report.outcomes}
    said = read_back("evaluated", counts, report.probe_queries)
    print_run(console, view, after="evaluate", keys=(), said=said)
    if predictions is not None:
        _write_predictions(report, view, predictions, quiet)
    failure = _all_failed(view)
    code = ExitCode.ERROR if failure else bar.print_evaluations(console, view.evaluations) if bar is not None else 0
    if as_json:
        each = {each.key: evaluation_json(each) for each in view.evaluations}
        figures: dict[str, Any] = {"run": view.folder.path.as_posix()}
        figures |= next(iter(each.values())) if len(each) == 1 else {}
        figures |= {"evaluations": each, "asked_now": sum(outcome.made for outcome in report.outcomes)}
        figures["probe_queries"] = report.probe_queries
        together = {part.name: part for part in pool_splits(view.evaluations)}
        if together:
            figures["pooled"] = {
                name: {"splits": list(part.splits), "n": part.n, "accuracy": part.accuracy.to_dict()}
                for name, part in together.items()
            }
        if bar is not None:
            figures["gate"] = {**bar.to_json(), "exit_code": code}
        print_json(figures)
    if failure is not None:
        raise failure
    if code:
        raise typer.Exit(code)


def _run(request: EvaluateRequest, quiet: bool) -> RowsReport[Answered]:
    from isthmus.cli.progress import EvaluateBar, show_rows
    from isthmus.verbs.evaluate import evaluate as run_evaluate

    bar = EvaluateBar(quiet)
    with show_rows(bar, quiet):
        return run_evaluate(request, bar)


def _write_predictions(report: RowsReport[Answered], run: RunView, file: str, quiet: bool) -> None:
    from isthmus.cli.console import progress_console
    from isthmus.core.errors import UsageError
    from isthmus.core.files import write_json
    from isthmus.verbs.evaluate.questions import predictions

    if len(run.evaluations) != 1 or not run.evaluations[0].answers_questions:
        raise UsageError(
            "--predictions needs a qa model and exactly one --on: it writes the answers to one set of questions"
        )
    found = predictions(report.outcomes[0].results)
    write_json(file, found)
    progress_console(quiet).print(f"{file}: {len(found):,} answers", markup=False, soft_wrap=True)


def _view(report: RowsReport[Answered]) -> RunView:
    """The run with only the sets and rows that this command asked for."""
    from isthmus.report.evaluation.view import EvaluationView
    from isthmus.report.view import read_run

    asked = tuple(EvaluationView(outcome.file.key, outcome.header) for outcome in report.outcomes)
    return read_run(report.folder, evaluations=asked)


def _all_failed(run: RunView) -> VictimError | None:
    """The error for a set without a single answer: no result can pass or fail."""
    for view in run.evaluations:
        summary = view.summary
        if summary is None or not summary.answered:
            reason = summary.reasons[0].reason if summary is not None and summary.reasons else "unknown"
            return VictimError(f"{view.key}: no example was answered: {reason}. Use --retry-errors to try again")
    return None
