"""Certified accuracy beside accuracy under attack: train, attack inside the synonym table, certify, write a page.

    python benchmarks/certificates.py --data SST2 --name sst2 --out benchmarks/out/certificates

Every step is an isthmus command that continues where it was stopped, so the same line again goes on. `--steps` chooses
some of them; the page holds whatever results there are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus.report.certificates import CertificateView, certificates, shown_strength
from isthmus.runs.folder import RunFolder

STEPS = ("train", "attack", "certify", "page")


def main() -> None:
    asked = _arguments()
    runs = {name: asked.out / f"{asked.name}-{name}" for name in ("standard", "safer", "cnn", "cnn-safer")}
    for command in commands(asked, runs):
        print("isthmus", *command, flush=True)
        # An attack inside a certificate ends with code 4: that must stop the benchmark.
        subprocess.run([sys.executable, "-m", "isthmus", *command], check=True)
    if "page" in asked.steps:
        page = asked.out / f"{asked.name}.md"
        page.write_text(written(asked, runs), encoding="utf-8")
        print(page)


def commands(asked: argparse.Namespace, runs: dict[str, Path]) -> Iterator[Sequence[str]]:
    """Every command of the steps that were asked for."""
    table, n = str(runs["safer"]), ("--n", str(asked.n), "--seed", str(asked.seed))
    for name, run in runs.items() if "train" in asked.steps else ():
        backbone = "cnn" if name.startswith("cnn") else asked.backbone
        defence = "safer" if name.endswith("safer") else "standard"
        rate = ("-S", "learning_rate=1e-3") if backbone == "cnn" else ()
        epochs = str(asked.epochs if backbone != "cnn" else 4)
        yield (
            "train", "--data", asked.data, "--backbone", backbone, "--defence", defence, "--epochs", epochs, *rate,
            "--out", str(run), "--seed", str(asked.seed),
        )  # fmt: skip
    for run in runs.values() if "attack" in asked.steps else ():
        yield ("attack", str(run), "--attack", "pwws", "-P", f"table={table}", *n)
    if "certify" in asked.steps:
        draws = ("-P", f"n={asked.draws}")
        for name in ("standard", "safer"):
            for sigma in asked.sigma:
                yield (
                    "certify", str(runs[name]), "--certificate", "gaussian", "-P", f"sigma={sigma}", "-P",
                    "paper_radius=true", "-P", f"table={table}", *draws, *n,
                )  # fmt: skip
        for name in ("standard", "safer", "cnn-safer"):
            yield ("certify", str(runs[name]), "--certificate", "synonym", "-P", f"table={table}", *draws, *n)
        for name in ("standard", "cnn"):
            yield ("certify", str(runs[name]), "--certificate", "exact", "-P", f"table={table}", *n)


def written(asked: argparse.Namespace, runs: dict[str, Path]) -> str:
    """The page."""
    lines = [
        f"# Certificates on {asked.name}",
        "",
        "Certified accuracy beside accuracy under attack (PWWS inside the same table), each with its 95 % interval "
        f"over {asked.n or 'all'} test examples. Made by `benchmarks/certificates.py`.",
    ]
    for name, run in runs.items():
        folder = RunFolder(run)
        for view in certificates(folder) if folder.exists else ():
            lines += ["", f"## {name}: {view.key}", "", *_described(view), "", *_table(view)]
    return "\n".join(lines) + "\n"


def _described(view: CertificateView) -> list[str]:
    parameters = {key: value for key, value in view.header["settings"]["parameters"].items() if value is not None}
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
        found.append(f"| {shown_strength(level.strength, view.unit)} | {' | '.join(cells)} |")
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
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.02, 0.05])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/certificates"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
