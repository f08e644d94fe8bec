"""``isthmus report``: the HTML report and the table of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from isthmus.cli import options


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
    examples: Annotated[int, typer.Option("--examples", min=0, help="Adversarial examples to print per attack.")] = 2,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write report.html of a run, and print its table and a few adversarial examples."""
    from isthmus.cli.console import print_json, progress_console, results
    from isthmus.cli.printing import print_run, run_json
    from isthmus.report.certificate.view import certificates
    from isthmus.report.page import write_report
    from isthmus.report.view import read_run
    from isthmus.runs.explained import read_explanations
    from isthmus.runs.folder import RunFolder
    from isthmus.verbs.measure import measurements

    folder = RunFolder(run)
    view = read_run(folder)
    with progress_console(quiet).status("writing the report"):
        page = write_report(folder)
    print_run(results(as_json, quiet), view, after="report", examples=examples, page=page)
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if as_json:
        measured = {each.key: each.measurement.to_json() for each in measurements(folder)}
        proven = {each.key: each.summary.to_json() for each in certificates(folder)}
        shown = {each.key: [one.to_json() for one in each.explained] for each in read_explanations(folder)}
        every = (("measures", measured), ("certificates", proven), ("explanations", shown))
        more = {name: found for name, found in every if found}
        print_json({**run_json(view), **more, "report": str(page)})
