"""``isthmus measure``: information in a model's representations, and related measures."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from isthmus.cli import options

_WHAT = "What is measured"


def measure(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Run folders.")],
    measures: Annotated[
        str | None, typer.Option("--measure", metavar="A,B", help="Measures (isthmus list measures).")
    ] = None,
    parameter: options.Parameters = None,
    n: Annotated[
        int | None,
        typer.Option("--n", min=1, help="Examples per split. (default: depends on the measure)", rich_help_panel=_WHAT),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="A,B", help="Splits. (default: all)", rich_help_panel=_WHAT),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="A sentence to measure; may be repeated.", rich_help_panel=_WHAT),
    ] = None,
    epochs: Annotated[
        str, typer.Option("--epochs", help="last, or all if snapshots were kept.", rich_help_panel=_WHAT)
    ] = "last",
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="A run to compare with.", rich_help_panel=_WHAT)
    ] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """Measure a run: information, anchored words and more. The same command reads stored results.

    isthmus measure runs/demo --measure information,information_plane

    isthmus measure runs/demo --measure anchored_words --text "a moving, quiet film"

    isthmus measure runs/beta-* --measure trade_off -P over=beta -P attack=pwws
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, progress_console, results
    from isthmus.cli.progress import MeasureBar
    from isthmus.core.errors import UnknownName
    from isthmus.measures.base import Asked
    from isthmus.report.measure.files import write_figures
    from isthmus.report.measure.terminal import print_measured
    from isthmus.verbs.measure import MeasureRequest
    from isthmus.verbs.measure import measure as run_measure

    if epochs not in ("last", "all"):
        raise UnknownName("choice of epochs", epochs, ("last", "all"))
    request = MeasureRequest(
        runs=tuple(runs),
        measures=options.names(measures),
        parameters=options.key_values(parameter),
        asked=Asked(n, options.names(split), seed, epochs == "all", tuple(text or ())),
        against=against,
        device=options.device(device),
        command=command_line(),
    )
    bar = MeasureBar(quiet)
    try:
        found = run_measure(request, bar.step)
    finally:
        bar.close()
    console = results(as_json, quiet)
    files: list[Any] = []
    for each in found:
        drawn = write_figures(each, progress_console(quiet))
        print_measured(console, each, drawn)
        files.append([path.as_posix() for path in drawn])
    if as_json:
        print_json(
            {
                "measurements": [
                    {
                        "run": each.folder.path.as_posix(),
                        "key": each.key,
                        "was_there": each.was_there,
                        **each.measurement.to_json(),
                        "files": paths,
                    }
                    for each, paths in zip(found, files, strict=True)
                ]
            }
        )
