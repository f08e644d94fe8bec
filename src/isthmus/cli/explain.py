"""``isthmus explain``: which words drive a prediction?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import options

_WHAT = "What is explained"


def explain(
    model: options.ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]…", help="Texts; two per example for a model that reads pairs."),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="Explanation method (isthmus list explanations).")
    ] = "integrated_gradients",
    classes: Annotated[
        str, typer.Option("--class", metavar="A,B", help="predicted, all, or names of classes.")
    ] = "predicted",
    parameter: options.Parameters = None,
    attack: Annotated[
        str | None,
        typer.Option(
            "--attack", metavar="NAME", help="Explain successes of this attack of the run.", rich_help_panel=_WHAT
        ),
    ] = None,
    outcome: Annotated[
        str,
        typer.Option("--outcome", help="Outcomes of the attack: succeeded, failed, or all.", rich_help_panel=_WHAT),
    ] = "succeeded",
    run: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="RUN", help="Run folder with the attack, if MODEL is not a run.", rich_help_panel=_WHAT
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="MODEL", help="A second model to compare with.", rich_help_panel=_WHAT),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", min=1, help="Number of texts. (default: 5; 10 of an attack)", rich_help_panel=_WHAT),
    ] = None,
    data: options.DataOption = None,
    text: options.TextOption = None,
    label: options.LabelOption = None,
    pair: options.PairOption = None,
    split: options.SplitOption = None,
    labels: options.LabelsOption = None,
    seed: options.Seed = 0,
    page: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write an HTML page.", rich_help_panel=options.OUTPUT)
    ] = None,
    figure: Annotated[
        str | None,
        typer.Option("--figure", metavar="FILE", help="Draw a figure (.svg, .png).", rich_help_panel=options.OUTPUT),
    ] = None,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep",
            help="Keep the explanations in the run for its report. (default: only for texts of an attack)",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    victim: options.VictimOption = None,
    headers: options.Headers = None,
    device: options.Device = None,
) -> None:
    """Show in colours which words drive a prediction.

    isthmus explain runs/demo "a moving, quiet film"

    isthmus explain runs/demo --attack pwws --method lime --class all

    isthmus explain runs/demo --attack pwws --against runs/defended

    isthmus explain https://example.com/classify "win a prize now" --method occlusion
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, progress_console, results
    from isthmus.cli.progress import fetching
    from isthmus.report.explanation.files import check_figure, write_figure, write_kept
    from isthmus.report.explanation.page import write_page
    from isthmus.report.explanation.terminal import print_explained
    from isthmus.verbs.explain import ExplainRequest
    from isthmus.verbs.explain import explain as run_explain

    if figure is not None:
        check_figure(Path(figure))
    request = ExplainRequest(
        model=model,
        texts=tuple(texts or ()),
        method=method,
        classes=options.names(classes),
        parameters=options.key_values(parameter),
        attack=attack,
        outcome=outcome,  # type: ignore[arg-type]
        against=against,
        keep=keep,
        data=options.data_request(data, text, label, pair),
        split=split,
        n=n,
        seed=seed,
        out=options.folder(run),
        labels=options.names(labels) or None,
        victim=options.victim(victim, headers),
        device=options.device(device),
        command=command_line(),
    )
    with fetching(quiet):
        found = run_explain(request)
    console = results(as_json, quiet)
    print_explained(console, found.explained)
    title = f"{model}: {method}"
    files = [] if found.kept is None else write_kept(found.kept, progress_console(quiet))
    if found.kept is not None:
        where = f"kept as {found.kept.key} in {found.kept.folder.explanations_path}"
        console.print(f"{where}; isthmus report shows it", style="dim", markup=False, soft_wrap=True)
    if page is not None:
        write_page(found.explained, Path(page), title)
    if figure is not None:
        files += write_figure(found.explained, title, Path(figure))
    if as_json:
        print_json(
            {
                "explanations": [each.to_json() for each in found.explained],
                "kept": None if found.kept is None else found.kept.key,
                "files": [path.as_posix() for path in files],
            }
        )
