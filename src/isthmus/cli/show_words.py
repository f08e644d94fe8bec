"""``isthmus show-words``: the words that a model trained with `flat` relies on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import options

_WHAT = "What is shown"


def show_words(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run trained with flat.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Words per list.", rich_help_panel=_WHAT)] = 15,
    sort: Annotated[
        str,
        typer.Option("--sort", help="Sort by importance, frequency or replaced.", rich_help_panel=_WHAT),
    ] = "importance",
    least: Annotated[
        int,
        typer.Option("--least", min=1, help="List words seen this often in training.", rich_help_panel=_WHAT),
    ] = 5,
    against: Annotated[
        str | None, typer.Option("--against", metavar="RUN", help="A run to compare with.", rich_help_panel=_WHAT)
    ] = None,
    parameter: options.Parameters = None,
    seed: options.Seed = 0,
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="Write the words (.csv, .jsonl).", rich_help_panel=options.OUTPUT
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """List the learned importance of each word, and its correlation with frequency and replacements.

    isthmus show-words runs/flat

    isthmus show-words runs/flat --against runs/flat-without-gamma -P synonyms=wordnet

    The figures are those of `isthmus measure RUN --measure learned_importance`, and the run keeps them.
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, progress_console, results
    from isthmus.cli.progress import MeasureBar
    from isthmus.measures.base import Asked
    from isthmus.report.measure.files import write_figures
    from isthmus.report.measure.terminal import print_measured
    from isthmus.report.measure.words import check_order, check_path, print_words, word_rows, write_words
    from isthmus.verbs.measure import MeasureRequest
    from isthmus.verbs.measure import measure as run_measure

    check_order(sort)
    if export is not None:
        check_path(Path(export))
    request = MeasureRequest(
        runs=(run,),
        measures=("learned_importance",),
        parameters=options.key_values(parameter),
        asked=Asked(seed=seed),
        against=against,
        device=options.device(device),
        command=command_line(),
    )
    bar = MeasureBar(quiet)
    try:
        (found,) = run_measure(request, bar.step)
    finally:
        bar.close()
    files = write_figures(found, progress_console(quiet))
    console = results(as_json, quiet)
    rows = word_rows(found.measurement)
    print_words(console, rows, n, sort, least)
    print_measured(console, found, files)
    if export is not None:
        write_words(rows, Path(export))
    if as_json:
        print_json(
            {
                "run": found.folder.path.as_posix(),
                "key": found.key,
                **found.measurement.to_json(),
                "files": [path.as_posix() for path in files],
            }
        )
