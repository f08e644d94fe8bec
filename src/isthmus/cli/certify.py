"""``isthmus certify``: how robust is a classifier provably?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import options

if TYPE_CHECKING:
    from isthmus.report.certificate.view import CertificateView
    from isthmus.verbs.certify import CertifyReport, CertifyRequest


def certify(
    model: options.ModelArgument,
    certificate: Annotated[
        str, typer.Option("--certificate", metavar="NAME", help="gaussian, synonym or exact.")
    ] = "gaussian",
    n: Annotated[int, typer.Option("--n", help="Examples to certify; 0 certifies all.")] = 200,
    parameter: options.Parameters = None,
    seed: options.Seed = 0,
    data: options.DataOption = None,
    text: options.TextOption = None,
    label: options.LabelOption = None,
    pair: options.PairOption = None,
    split: options.SplitOption = None,
    labels: options.LabelsOption = None,
    label_check: options.LabelCheckOption = True,
    protect: options.Protect = None,
    protect_pattern: options.ProtectPattern = None,
    protect_kind: options.ProtectKind = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STRENGTH",
            help="Certified accuracy at this radius or number of words, or all. (default: 0 for a radius, else all)",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    fail_under: Annotated[str | None, options.fail_under("certified=0.40")] = None,
    retry_errors: options.RetryErrors = False,
    out: options.OutOfModel = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    victim: options.VictimOption = None,
    headers: options.Headers = None,
    device: options.Device = None,
) -> None:
    """Compute certified robustness: what no attack can change. The same command resumes an interrupted run.

    isthmus certify runs/demo --certificate gaussian -P sigma=0.05 --n 200

    isthmus certify runs/safer --certificate synonym --fail-under certified=0.40

    isthmus certify runs/rsmi --certificate gaussian -V masking=none

    Exit code 4: an attack of the run succeeded inside a certificate. This is a bug.
    """
    from isthmus.cli.command import command_line
    from isthmus.cli.console import print_json, results
    from isthmus.cli.gate import CERTIFIED, PrintedGate
    from isthmus.cli.printing import read_back
    from isthmus.report.certificate.terminal import print_certificate
    from isthmus.report.certificate.view import CertificateView, format_strength
    from isthmus.summaries.certificate import accuracy_at
    from isthmus.verbs.certify import CertifyRequest

    bar = PrintedGate.parse(fail_under, CERTIFIED)
    strength = _strength(at)
    request = CertifyRequest(
        model=model,
        certificate=certificate,
        parameters=options.key_values(parameter),
        data=options.data_request(data, text, label, pair),
        split=split,
        n=options.examples(n, "certify"),
        seed=seed,
        out=options.folder(out),
        labels=options.names(labels) or None,
        protect=tuple(protect) if protect else None,
        protect_pattern=protect_pattern,
        protect_kinds=options.names(protect_kind),
        victim=options.victim(victim, headers),
        device=options.device(device),
        label_check=label_check,
        retry_errors=retry_errors,
        command=command_line(),
    )
    report = _run(request, quiet)
    (done,) = report.outcomes
    # The file may hold more rows than were asked for now; none of those is missing.
    header = {**done.header, "n": len(done.results), "challenges": len(report.challenges)}
    view = CertificateView(done.file.key, header, done.results, report.challenges)
    if strength is None:
        strength = 0.0 if view.unit == "radius" else float("inf")
    rates = {"certified": accuracy_at(done.results, strength), "clean": view.summary.clean}
    console = results(as_json, quiet)
    print_certificate(console, view)
    counts = {view.key: (done.made, len(done.results))}
    console.print(read_back("certified", counts, report.probe_queries))
    code = 0
    if bar is not None:
        code = bar.print_rates(console, f"{view.key} at {format_strength(strength, view.unit)}", rates)
    if as_json:
        figures = _json(report, view, strength, rates)
        if bar is not None:
            figures["gate"] = {**bar.to_json(), "exit_code": code}
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
    from isthmus.cli.progress import CertifyBar, show_rows
    from isthmus.verbs.certify import certify as run_certify

    bar = CertifyBar(quiet)
    with show_rows(bar, quiet):
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
        "certified_now": report.outcomes[0].made,
        "probe_queries": report.probe_queries,
        "effort": view.header.get("effort"),
        "resources": view.header["settings"]["resources"],
        "parameters": view.header["settings"]["parameters"],
    }
