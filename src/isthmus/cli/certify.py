"""``isthmus certify``: what can be proven about a classifier?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import options

if TYPE_CHECKING:
    from isthmus.report.certificates import CertificateView
    from isthmus.runs.certify import CertifyReport, CertifyRequest


def certify(
    model: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or any model that attack takes.")],
    certificate: Annotated[
        str, typer.Option("--certificate", metavar="NAME", help="gaussian, synonym or exact.")
    ] = "gaussian",
    n: Annotated[int, typer.Option("--n", help="Examples to certify; 0 certifies all.")] = 200,
    parameter: options.Parameters = None,
    seed: options.Seed = 0,
    data: options.Data = None,
    text: options.Text = None,
    label: options.Label = None,
    pair: options.Pair = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="Split to certify. (default: test, else dev)", rich_help_panel="Data"),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option("--labels", metavar="A,B,…", help="What the data calls the outputs.", rich_help_panel="Data"),
    ] = None,
    label_check: Annotated[
        bool,
        typer.Option(
            "--label-check/--no-label-check", help="Stop if accuracy is no better than chance.", rich_help_panel="Data"
        ),
    ] = True,
    protect: Annotated[
        list[str] | None,
        typer.Option(
            "--protect", metavar="COLUMN", help="The attacker cannot touch this column.", rich_help_panel="Data"
        ),
    ] = None,
    protect_pattern: Annotated[
        str | None,
        typer.Option(
            "--protect-pattern", metavar="REGEX", help="The attacker cannot touch what matches.", rich_help_panel="Data"
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STRENGTH",
            help="Radius, number of words, or all, at which the rate is read. (default: 0 for a radius, else all)",
            rich_help_panel="Output",
        ),
    ] = None,
    fail_under: Annotated[
        str | None,
        typer.Option(
            "--fail-under",
            metavar="certified=0.40",
            help="Exit 1 if the interval lies under the bar, 3 if it straddles it.",
            rich_help_panel="Output",
        ),
    ] = None,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Certify again what ended in an error.", rich_help_panel="Output")
    ] = False,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    device: options.Device = None,
) -> None:
    """Prove up to where a classifier's answers hold. The same command again continues an interrupted run.

    isthmus certify runs/demo --certificate gaussian -P sigma=0.05 --n 200

    isthmus certify runs/safer --certificate synonym --fail-under certified=0.40

    Exit code 4: an attack of the run succeeded inside a certificate, which is a bug.
    """
    from isthmus.cli.attack import data_request
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, results
    from isthmus.cli.gate import CERTIFIED, Bar
    from isthmus.core.errors import UsageError
    from isthmus.report.certificates import CertificateView, print_certificate, shown_strength
    from isthmus.runs.certificates import certified_at
    from isthmus.runs.certify import CertifyRequest

    bar = Bar.parse(fail_under, CERTIFIED) if fail_under is not None else None
    strength = _strength(at)
    if n < 0:
        raise UsageError(f"--n is the number of examples to certify (0: all), not {n}")
    request = CertifyRequest(
        model=model,
        certificate=certificate,
        parameters=options.key_values(parameter),
        data=data_request(data, text, label, options.pair(pair)),
        split=split,
        n=n or None,
        seed=seed,
        out=Path(out) if out is not None else None,
        labels=options.names(labels) or None,
        protect=tuple(protect) if protect else None,
        protect_pattern=protect_pattern,
        device=device,
        label_check=label_check,
        retry_errors=retry_errors,
        command=command_line(),
    )
    report = _run(request, quiet)
    view = CertificateView(report.file.key, report.header, report.rows, report.challenges)
    if strength is None:
        strength = 0.0 if view.unit == "radius" else float("inf")
    rates = {"certified": certified_at(report.rows, strength), "clean": view.summary.clean}
    console = results(as_json, quiet)
    print_certificate(console, view)
    code = 0
    if bar is not None:
        code = bar.judge_rates(console, f"{view.key} at {shown_strength(strength, view.unit)}", rates)
    if as_json:
        figures = _json(report, view, strength, rates)
        if bar is not None:
            figures["gate"] = {"bar": bar.to_json(), "exit_code": code}
        print_json(figures)
    if code:
        raise typer.Exit(code)


def _strength(given: str | None) -> float | None:
    from isthmus.core.errors import UsageError

    if given is None:
        return None
    try:
        value = float("inf") if given == "all" else float(given)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise UsageError(f"--at takes a radius, a number of words or all, not {given!r}")
    return value


def _run(request: CertifyRequest, quiet: bool) -> CertifyReport:
    from isthmus.cli.progress import CertifyBar, shown
    from isthmus.runs.certify import certify as run_certify

    bar = CertifyBar(quiet)
    with shown(bar, quiet):
        return run_certify(request, bar)


def _json(report: CertifyReport, view: CertificateView, strength: float, rates: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": report.folder.path.as_posix(),
        "certificate": view.key,
        "unit": view.unit,
        "statement": dict(view.statement),
        "at": "all" if strength == float("inf") else strength,
        "certified": rates["certified"].to_dict(),
        **view.summary.to_json(),
        "certified_now": report.certified_now,
        "effort": report.header.get("effort"),
        "resources": report.header["settings"]["resources"],
        "parameters": report.header["settings"]["parameters"],
    }
