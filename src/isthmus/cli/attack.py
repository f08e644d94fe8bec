"""``isthmus attack``: how easily is a classifier fooled?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from isthmus.attacks.options import AttackOptions
from isthmus.cli import options
from isthmus.core.errors import ExitCode, UsageError, VictimError

if TYPE_CHECKING:
    from isthmus.attacks.result import AttackResult
    from isthmus.report.view import RunView
    from isthmus.verbs.attack import AttackRequest
    from isthmus.verbs.rows_file import RowsDone, RowsReport

_GOAL = "Goal"
_FEW = 4
"""With more attacks than this, the table is printed without examples."""


@options.add_field_options("chosen", AttackOptions)
def attack(
    model: options.ModelArgument,
    attacks: Annotated[
        str, typer.Option("--attack", metavar="A,B,…", help="Attacks by name (isthmus list attacks), or all.")
    ] = "deepwordbug,pwws",
    n: Annotated[int, typer.Option("--n", help="Examples to attack; 0 attacks all.")] = 200,
    parameter: options.Parameters = None,
    seed: options.Seed = 0,
    data: options.DataOption = None,
    text: options.TextOption = None,
    label: options.LabelOption = None,
    pair: options.PairOption = None,
    split: options.SplitOption = None,
    labels: options.LabelsOption = None,
    victim: options.VictimOption = None,
    headers: options.Headers = None,
    label_check: options.LabelCheckOption = True,
    target_label: Annotated[
        str | None,
        typer.Option(
            "--target-label", help="Targeted attack: the class to reach, not just any wrong one.", rich_help_panel=_GOAL
        ),
    ] = None,
    from_label: Annotated[
        str | None,
        typer.Option(
            "--from-label", help="Evasion: attack only this class, so that it is not detected.", rich_help_panel=_GOAL
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", help="Score at or above which the class is detected.", rich_help_panel=_GOAL),
    ] = None,
    at_fpr: Annotated[
        float | None,
        typer.Option(
            "--at-fpr",
            help="Choose the threshold that has this false-positive rate on clean dev data.",
            rich_help_panel=_GOAL,
        ),
    ] = None,
    protect: options.Protect = None,
    protect_pattern: options.ProtectPattern = None,
    protect_kind: options.ProtectKind = None,
    chosen: AttackOptions = AttackOptions(),
    fail_under: Annotated[
        str | None, options.fail_under("racc=0.40", "racc, sacc, balanced_racc, balanced_sacc, tpr.")
    ] = None,
    fail_over: Annotated[str | None, options.fail_over("asr=0.60")] = None,
    positive: options.Positive = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help=".csv: rows in TextAttack's columns; .jsonl: adversarial texts as data.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    retry_errors: options.RetryErrors = False,
    out: options.OutOfModel = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
    precision: Annotated[
        str,
        typer.Option(
            "--precision", help="fp32, or bf16 with successes confirmed in fp32.", rich_help_panel=options.MACHINE
        ),
    ] = "fp32",
) -> None:
    """Attack a classifier: how easily is it fooled? The same command resumes an interrupted run.

    isthmus attack runs/demo --attack deepwordbug,pwws --n 200

    isthmus attack some/hf-model --data reviews.csv --text review --label stars --fail-under racc=0.40
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, results
    from isthmus.cli.export import write_export
    from isthmus.cli.gate import PrintedGate
    from isthmus.cli.printing import print_run, read_back, run_json
    from isthmus.report.attack.export import format_of
    from isthmus.verbs.attack import AttackRequest, moves_embeddings
    from isthmus.verbs.goal_options import GoalRequest

    bar = PrintedGate.parse(fail_under, over=fail_over, positive=positive)
    if bar is not None:
        bar.check_goal(from_label)
    form = format_of(export) if export is not None else None
    request = AttackRequest(
        model=model,
        attacks=options.names(attacks),
        data=options.data_request(data, text, label, pair),
        split=split,
        parameters=options.key_values(parameter),
        n=options.examples(n, "attack"),
        seed=seed,
        out=options.folder(out),
        labels=options.names(labels) or None,
        goal=GoalRequest(target_label, from_label, threshold, at_fpr, positive),
        protect=tuple(protect) if protect else None,
        protect_pattern=protect_pattern,
        protect_kinds=options.names(protect_kind),
        precision=precision,
        victim=options.victim(victim, headers),
        device=options.device(device),
        label_check=label_check,
        retry_errors=retry_errors,
        command=command_line(),
        **chosen.values(AttackOptions),
    )
    if bar is not None and moves_embeddings(request):
        raise UsageError(
            "--fail-under and --fail-over do not apply to attacks on embeddings: nobody can send an embedding"
        )
    report = _run(request, quiet)
    view = _view(report)
    keys = [outcome.file.key for outcome in report.outcomes]
    console = results(as_json, quiet)
    every = (*report.outcomes, *report.embeddings)
    counts = {outcome.file.key: (outcome.made, len(outcome.results)) for outcome in every}
    said = read_back("attacked", counts, report.probe_queries)
    print_run(console, view, after="attack", keys=keys, evaluated=(), examples=1 if len(keys) <= _FEW else 0, said=said)
    failure = _all_failed(view)
    code = ExitCode.ERROR if failure else bar.judge(console, view, keys) if bar is not None else 0
    if export is not None and form is not None:
        write_export(list(view.attacks), export, form, quiet)
    if as_json:
        figures = run_json(view, keys)
        figures["attacked_now"] = sum(outcome.made for outcome in every)
        figures["probe_queries"] = report.probe_queries
        if bar is not None:
            figures["gate"] = {**bar.to_json(), "exit_code": code}
        print_json(figures)
    if failure is not None:
        raise failure
    if code:
        raise typer.Exit(code)


def _run(request: AttackRequest, quiet: bool) -> RowsReport[AttackResult]:
    from isthmus.cli.garbage import collect_rarely
    from isthmus.cli.progress import AttackBar, show_rows

    bar = AttackBar(quiet)
    with show_rows(bar, quiet), collect_rarely():
        from isthmus.verbs.attack import attack as run_attack

        return run_attack(request, bar)


def _all_failed(run: RunView) -> VictimError | None:
    """The error for an attack without a single answer: no result can pass or fail."""
    for view in (*run.attacks, *run.embeddings):
        without = view.summary.errors + view.summary.timed_out
        is_answered = any(result.prediction_before is not None for result in view.results)
        if view.results and without == view.summary.n and not is_answered:
            reason, _ = view.reasons()[0]
            how = "an error or a time-out" if view.summary.timed_out else "an error"
            return VictimError(f"{view.key}: every example ended in {how}: {reason}. Use --retry-errors to try again")
    return None


def _view(report: RowsReport[AttackResult]) -> RunView:
    """The run with only the results that this command asked for."""
    from isthmus.report.attack.view import AttackView
    from isthmus.report.view import read_run

    def views(outcomes: tuple[RowsDone[AttackResult], ...]) -> tuple[AttackView, ...]:
        asked: dict[str, AttackView] = {}
        for each in outcomes:  # The file may hold more rows than were asked for now; none of those is missing.
            header = {**each.header, "n": len(each.results)}
            asked[each.file.key] = AttackView(each.file.key, header, each.results)
        return tuple(asked.values())

    return read_run(report.folder, attacks=views(report.outcomes), embeddings=views(report.embeddings))
