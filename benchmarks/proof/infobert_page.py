"""docs/results/infobert.md from the runs: the tables alone, which the page's own text surrounds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from isthmus.core.files import read_json
from isthmus.core.statistics import bootstrap_mean
from isthmus.runs.folder import RunFolder
from proof.tables import markdown, over_seeds

ROWS = (
    "standard",
    "infobert",
    "freelb",
    "infobert freelb",
    "smart",
    "alum",
    "bottleneck only",
    "anchors only",
    "freelb bottleneck",
    "freelb anchors",
)
PAPER = (
    ("vanilla", "91.3; 86.7/86.4", "26.5 (test)", "44.9; 57.0/57.5", "0.0; 0.0/0.0"),
    ("InfoBERT", "91.7; 86.2/86.0", "28.7 (test)", "45.4; 57.2/58.6", "36.7; 43.5/46.6"),
    ("FreeLB", "92.4; 86.9/86.5", "27.4 (test)", "50.5; 64.0/62.9", "46.6; 60.0/60.7"),
    ("InfoBERT + FreeLB", "92.2; 87.2/87.2", "28.2 (test)", "52.6; 65.6/67.3", "50.8; 61.3/62.7"),
)
"""BERT-large on SNLI + MNLI: clean; ANLI; TextFooler sets of RoBERTa-large; TextFooler sets of BERT-large itself."""

Value = Callable[["Run"], float | None]


class Run:
    """One trained model's figures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "sets.json"
        self.sets: dict[str, dict[str, int]] = read_json(path) if path.is_file() else {}

    def share(self, *names: str) -> float | None:
        """Accuracy over the pairs of several sets together."""
        found = [self.sets[name] for name in names if name in self.sets]
        total = sum(entry["n"] for entry in found)
        return sum(entry["right"] for entry in found) / total if len(found) == len(names) and total else None

    def transferred(self, prefix: str) -> float | None:
        """Accuracy on the adversarial sets that were made from other seeds' standard models."""
        own = re.search(r"seed(\d+)$", self.folder.name)
        names = [name for name in self.sets if name.startswith(prefix) and own and not name.endswith(own[0])]
        return self.share(*names) if names else None

    def direct(self) -> dict[str, Any] | None:
        """The summary of the attack on this very model's SNLI pairs."""
        for file in RunFolder(self.folder).attack_files():
            header = file.header()
            if header["attack"] == "textfooler" and header["data"]["split"] == "test" and header.get("summary"):
                return dict(header["summary"])
        return None

    def robust(self) -> dict[str, bool]:
        """Which of the attacked pairs the model still got right."""
        for file in RunFolder(self.folder).attack_files():
            if file.header()["data"]["split"] == "test":
                return {row["id"]: row["outcome"] == "failed" for row in file.rows()}
        return {}


def runs_of(out: Path, name: str, seeds: int) -> list[Run]:
    """The runs of one row that were tested."""
    folders = [out / "runs" / f"{name.replace(' ', '-')}-seed{seed}" for seed in range(seeds)]
    return [run for run in map(Run, folders) if run.sets]


def page(out: Path, seeds: int) -> str:
    """Every table."""
    found = {name: runs_of(out, name, seeds) for name in ROWS}
    columns: dict[str, Value] = {
        "SNLI": lambda run: run.share("snli"),
        "MNLI m / mm": lambda run: run.share("mnli matched", "mnli mismatched"),
        "ANLI R1": lambda run: run.share("anli r1"),
        "R2": lambda run: run.share("anli r2"),
        "R3": lambda run: run.share("anli r3"),
        "ANLI": lambda run: run.share("anli r1", "anli r2", "anli r3"),
        "TextFooler SNLI set": lambda run: run.transferred("snli-"),
        "TextFooler MNLI sets": lambda run: run.transferred("mnli-"),
        "direct TextFooler": lambda run: (run.direct() or {}).get("racc"),
    }
    rows = [
        [name, str(len(runs)), *(over_seeds([value(run) for run in runs]) for value in columns.values())]
        for name, runs in found.items()
        if runs
    ]
    return "\n\n".join(
        [
            "# InfoBERT, FreeLB, SMART and ALUM on natural-language inference",
            markdown(["training", "seeds", *columns], rows),
            markdown(
                ["compared with standard", "accuracy left by TextFooler, difference in points"], list(paired(found))
            ),
            markdown(["training (BERT-large)", "SNLI; MNLI m/mm", "ANLI", "sets of RoBERTa", "own sets"], PAPER),
            "",
        ]
    )


def paired(found: dict[str, list[Run]]) -> Iterator[Sequence[str]]:
    """Each method against standard training on the same pairs; seeds are averaged first, pairs are resampled."""
    base = {run.folder.name.rpartition("-")[2]: run.robust() for run in found.get("standard", [])}
    for name, runs in found.items():
        changes: dict[str, list[float]] = {}
        for run in runs:
            other = base.get(run.folder.name.rpartition("-")[2], {})
            for key, holds in run.robust().items():
                if key in other:
                    changes.setdefault(key, []).append(float(holds) - float(other[key]))
        if name != "standard" and changes:
            change = bootstrap_mean([sum(values) / len(values) for values in changes.values()])
            yield name, f"{100 * change.estimate:+.1f} ({100 * change.low:+.1f} to {100 * change.high:+.1f})"
