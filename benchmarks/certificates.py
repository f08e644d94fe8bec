"""Certified accuracy beside accuracy under attack: train, attack inside the synonym table, certify, write a page.

    python benchmarks/certificates.py --data SST2 --name sst2 --out benchmarks/out/certificates
    python benchmarks/certificates.py --data SST2 --name sst2 --backbone cnn     only what a CPU certifies in minutes

Every step is an isthmus command that continues where it was stopped, so the same line again goes on. `--steps` and
`--certificates` choose some of them; the page holds whatever results there are, with a figure of each curve beside it.
An attack that succeeds inside a certificate ends it with exit code 4, as it ends `isthmus certify`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.measures.base import Plot, Series
from isthmus.report.certificate.view import CertificateView, certificates, format_strength
from isthmus.report.measure.figure import save
from isthmus.runs.folder import RunFolder

CERTIFICATES = ("gaussian", "synonym", "exact")
STEPS = ("train", "attack", "certify", "page")


class Model(NamedTuple):
    """A backbone and how it was trained."""

    backbone: str
    defence: str

    def run(self, asked: argparse.Namespace) -> Path:
        """Where its run lies."""
        return Path(asked.out / f"{asked.name}-{Path(self.backbone).name}-{self.defence}")


def main() -> None:
    asked = _arguments()
    models = [Model(backbone, defence) for backbone in (asked.backbone, "cnn") for defence in ("standard", "safer")]
    models = list(dict.fromkeys(models))
    for step in asked.steps:
        with ThreadPoolExecutor(asked.workers) as beside:  # a run is read and written by one command at a time
            ended = [beside.submit(one_by_one, commands(asked, model, step)) for model in models]
        if code := max(each.result() for each in ended):
            sys.exit(code)
    if "page" in asked.steps:
        page = asked.out / f"{asked.name}.md"
        page.write_text(written(asked, models), encoding="utf-8")
        print(page)


def one_by_one(given: Iterator[Sequence[str]]) -> int:
    """Run commands until one fails; the exit code of the last."""
    for command in given:
        print("isthmus", *command, flush=True)
        if code := subprocess.run([sys.executable, "-m", "isthmus", *command], check=False).returncode:
            return code
    return 0


def commands(asked: argparse.Namespace, model: Model, step: str) -> Iterator[Sequence[str]]:
    """What one step does with one model."""
    run, table = str(model.run(asked)), ("-P", f"table={Model(asked.backbone, 'safer').run(asked)}")
    n, draws = ("--n", str(asked.n), "--seed", str(asked.seed)), ("-P", f"n={asked.draws}")
    if step == "train":
        epochs = str(asked.epochs if model.backbone != "cnn" else 4)
        yield (
            "train", "--data", asked.data, "--backbone", model.backbone, "--defence", model.defence,
            "--epochs", epochs, "--out", run, "--seed", str(asked.seed),
            *(("--limit", str(asked.limit)) if asked.limit else ()),
        )  # fmt: skip
    elif step == "attack":
        yield ("attack", run, "--attack", "pwws", *table, *n)
    elif step == "certify":
        for name in asked.certificates:
            certify = ("certify", run, "--certificate", name, *table, *n)
            if name == "gaussian":
                for sigma in asked.sigma:
                    ball = ("-P", f"sigma={sigma}", "-P", "paper_radius=true", "-P", f"pgd={asked.pgd}")
                    yield (*certify, *ball, *draws)
            elif name == "synonym":
                yield (*certify, *draws)
            elif model.defence == "standard":  # a model that draws has no answer to be enumerated
                yield certify


def written(asked: argparse.Namespace, models: Sequence[Model]) -> str:
    """The page."""
    lines = [
        f"# Certificates on {asked.name}",
        "",
        "Certified accuracy beside accuracy under attack (PWWS inside the same table; gradient ascent on the "
        f"embeddings for `gaussian`), each with its 95 % interval over {asked.n or 'all'} test examples. Made by "
        "`benchmarks/certificates.py`.",
    ]
    found: dict[str, tuple[Path, CertificateView]] = {}
    for model in models:
        folder = RunFolder(model.run(asked))
        for view in sorted(certificates(folder), key=_order) if folder.exists else ():
            name = f"{Path(model.backbone).name}, {model.defence}: {_called(view)}"
            found[name] = asked.out / f"{folder.path.name}-{view.key}", view
    for unit, title, steps in (("words", "Words", _WORDS), ("radius", "Radius, in multiples of sigma", _SIGMAS)):
        views = {name: view for name, (_, view) in found.items() if (view.unit == "radius") == (unit == "radius")}
        lines += _glance(title, views, steps) if views else []
    for name, (stem, view) in found.items():
        figure = drawn(view, f"{asked.name}, {name}", stem)
        lines += ["", f"## {name}", "", *_described(view), "", *_table(view)]
        lines += ["", f"![Certified accuracy of {name}]({figure})"]
    return "\n".join(lines) + "\n"


_WORDS = (0.0, 1.0, 2.0, 3.0, math.inf)
_SIGMAS = (0.0, 0.5, 1.0, 1.5, 2.0)


def _glance(title: str, views: Mapping[str, CertificateView], steps: Sequence[float]) -> list[str]:
    """Certified accuracy and accuracy under attack of all certificates of one kind, beside each other."""
    named = ["all" if math.isinf(step) else f"{step:g}" for step in steps]
    lines = ["", f"## {title}: certified / under attack, %", "", f"| | n | {' | '.join(named)} |"]
    lines += ["|---" * (len(steps) + 2) + "|"]
    for name, view in views.items():
        unit = view.header["settings"]["parameters"].get("sigma") or 1.0
        cells = []
        for step in steps:
            at = [level for level in view.summary.levels if math.isclose(level.strength, step * unit, abs_tol=1e-9)]
            both = [(rate.certified, rate.empirical) for rate in at]
            cells += [" / ".join(_rate(each) for each in pair if each) for pair in both[:1]] or ["-"]
        lines.append(f"| {name} | {view.summary.n} | {' | '.join(cells)} |")
    return lines


def _order(view: CertificateView) -> tuple[str, float]:
    return view.header["certificate"], view.header["settings"]["parameters"].get("sigma") or 0.0


def _called(view: CertificateView) -> str:
    """The certificate, and its noise where it has any."""
    sigma = view.header["settings"]["parameters"].get("sigma")
    return str(view.header["certificate"]) + ("" if sigma is None else f", sigma {sigma:g}")


def drawn(view: CertificateView, name: str, stem: Path) -> str:
    """The file of a figure of both accuracies by strength."""
    levels, by_radius = view.summary.levels, view.unit == "radius"
    places = [level.strength if by_radius else float(place) for place, level in enumerate(levels)]
    series = []
    for which, rates in (
        ("certified", [level.certified for level in levels]),
        ("under attack", [level.empirical for level in levels]),
    ):
        known = [(place, rate) for place, rate in zip(places, rates, strict=True) if rate is not None]
        if known:
            heights = tuple(rate.estimate for _, rate in known)
            bounds = tuple((rate.low, rate.high) for _, rate in known)
            series.append(Series(which, tuple(place for place, _ in known), heights, y_bounds=bounds))
    plot = Plot(
        stem.name,
        name,
        "L2 radius around the embedding sequence" if by_radius else "words substituted",
        "right",
        tuple(series),
        percent="y",
        ticks=() if by_radius else tuple(format_strength(level.strength, view.unit) for level in levels),
    )
    return save(plot, stem)[0].name


def _described(view: CertificateView) -> list[str]:
    given = view.header["settings"]["parameters"]
    parameters = {key: value for key, value in given.items() if value is not None and key != "table"}
    told = [f"- parameters: `{json.dumps(parameters)}`"]
    told += [
        f"- {key.replace('_', ' ')}: {view.statement.get(key)}" for key in ("classifier", "threat_model", "probability")
    ]
    return told + [f"- {note}" for note in view.notes()]


def _table(view: CertificateView) -> list[str]:
    found = [
        "| " + ("radius" if view.unit == "radius" else "substituted") + " | certified | under attack |",
        "|---|---|---|",
    ]
    for level in view.summary.levels:
        cells = [_rate(level.certified), _rate(level.empirical)]
        found.append(f"| {format_strength(level.strength, view.unit)} | {' | '.join(cells)} |")
    return found


def _rate(interval: Any) -> str:
    if interval is None:
        return ""
    return f"{100 * interval.estimate:.1f} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="what `isthmus train --data` takes")
    parser.add_argument("--name", default="data", help="for folders and titles")
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int, help="maximum training texts, for a quick look")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--pgd", type=int, default=10, help="steps of the attack on the embeddings; 0: none")
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.02, 0.05])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="commands beside each other")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--certificates", nargs="+", choices=CERTIFICATES, default=list(CERTIFICATES))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/certificates"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
